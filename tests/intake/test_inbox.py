"""Samples between arrival and tick."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.errors import IntakeError
from dial.intake.inbox import SampleInbox
from dial.intake.samples import SampleBatch, decode_batch

NOW_S = 1_000_000.0


def batch(*at_s: float, backend: str = "s1", agent: str = "vm1:42") -> SampleBatch:
    samples = [{"at_s": t, "interval_s": 1.0, "metrics": {}} for t in at_s]
    body = {"version": 1, "backend": backend, "agent": agent, "samples": samples}
    return decode_batch(json.dumps(body).encode())


@pytest.fixture
def inbox() -> SampleInbox:
    inbox = SampleInbox(max_pending=4)
    inbox.set_backends(["s1", "s2"])
    return inbox


def times(inbox: SampleInbox, now_s: float = NOW_S) -> dict[str, list[float]]:
    return {name: [s.at_s for s in samples] for name, samples in inbox.take(now_s).items()}


def test_a_tick_takes_everything_once_and_leaves_out_the_silent(inbox: SampleInbox) -> None:
    receipt = inbox.offer(batch(NOW_S - 2, NOW_S - 1), NOW_S)
    assert (receipt.accepted, receipt.duplicates) == (2, 0)
    assert times(inbox) == {"s1": [NOW_S - 2, NOW_S - 1]}
    assert times(inbox) == {}


def test_a_retried_post_is_counted_as_duplicate_even_after_the_tick(inbox: SampleInbox) -> None:
    inbox.offer(batch(NOW_S - 2, NOW_S - 1), NOW_S)
    inbox.take(NOW_S)
    receipt = inbox.offer(batch(NOW_S - 2, NOW_S - 1, NOW_S), NOW_S)
    assert (receipt.accepted, receipt.duplicates) == (1, 2)
    assert times(inbox) == {"s1": [NOW_S]}


@pytest.mark.parametrize(
    ("at_s", "reason"),
    [
        (NOW_S - 60.0, None),
        (NOW_S - 60.1, "stale"),
        (NOW_S - 3600.0, "stale"),
        (NOW_S + 5.0, None),
        (NOW_S + 5.1, "future"),
    ],
)
def test_age_is_at_most_60_s_and_5_s_ahead(
    inbox: SampleInbox, at_s: float, reason: str | None
) -> None:
    if reason is None:
        assert inbox.offer(batch(at_s), NOW_S).accepted == 1
        return
    with pytest.raises(IntakeError, match=r"'s1'.*samples\[0\]\.at_s") as caught:
        inbox.offer(batch(at_s), NOW_S)
    assert (caught.value.reason, caught.value.where) == (reason, "samples[0].at_s")


def test_one_bad_sample_refuses_the_whole_batch(inbox: SampleInbox) -> None:
    with pytest.raises(IntakeError, match=r"samples\[1\]"):
        inbox.offer(batch(NOW_S, NOW_S - 3600), NOW_S)
    assert times(inbox) == {}
    # Nor is its good sample remembered as the newest one.
    assert inbox.offer(batch(NOW_S), NOW_S).accepted == 1


def test_an_unknown_backend_is_told_which_there_are(inbox: SampleInbox) -> None:
    with pytest.raises(IntakeError, match=r"'s9'.*s1, s2") as caught:
        inbox.offer(batch(NOW_S, backend="s9"), NOW_S)
    assert caught.value.reason == "unknown_backend"


def test_before_the_balancer_was_read_nothing_is_taken() -> None:
    inbox = SampleInbox()
    with pytest.raises(IntakeError, match="has not been read yet") as caught:
        inbox.offer(batch(NOW_S), NOW_S)
    assert caught.value.reason == "not_ready"
    assert inbox.take(NOW_S) == {}


def test_the_oldest_make_room_when_no_tick_takes_them(inbox: SampleInbox) -> None:
    first = inbox.offer(batch(NOW_S - 5, NOW_S - 4, NOW_S - 3), NOW_S)
    second = inbox.offer(batch(NOW_S - 2, NOW_S - 1, NOW_S), NOW_S)
    assert (first.evicted, second.evicted) == (0, 2)  # 3 + 3 - 4
    assert times(inbox) == {"s1": [NOW_S - 3, NOW_S - 2, NOW_S - 1, NOW_S]}


def test_of_two_agents_the_newest_wins_and_their_samples_never_mix(inbox: SampleInbox) -> None:
    inbox.offer(batch(NOW_S - 2, agent="vm1:42"), NOW_S)
    receipt = inbox.offer(batch(NOW_S - 1, agent="vm2:7"), NOW_S)
    assert (receipt.agent_changed, receipt.superseded) == (True, 1)
    late = inbox.offer(batch(NOW_S - 2, agent="vm1:42"), NOW_S)
    assert (late.agent_changed, late.duplicates) == (False, 1)
    assert times(inbox) == {"s1": [NOW_S - 1]}


def test_backends_keep_their_samples_over_a_new_reading_unless_they_left(
    inbox: SampleInbox,
) -> None:
    inbox.offer(batch(NOW_S, backend="s1"), NOW_S)
    inbox.offer(batch(NOW_S, backend="s2"), NOW_S)
    inbox.set_backends(["s2", "s3"])
    assert times(inbox) == {"s2": [NOW_S]}


def test_a_clock_set_back_an_hour_does_not_silence_the_agent(inbox: SampleInbox) -> None:
    inbox.offer(batch(NOW_S), NOW_S)
    earlier_s = NOW_S - 3600
    assert times(inbox, earlier_s) == {}
    assert inbox.offer(batch(earlier_s), earlier_s).accepted == 1


@given(st.lists(st.lists(st.integers(-50, 5), min_size=1, max_size=5), max_size=8))
def test_what_is_handed_over_is_ordered_unique_and_bounded(posts: list[list[int]]) -> None:
    inbox = SampleInbox(max_pending=4)
    inbox.set_backends(["s1"])
    accepted = evicted = 0
    for post in posts:
        receipt = inbox.offer(batch(*(NOW_S + t for t in post)), NOW_S)
        assert receipt.accepted + receipt.duplicates == len(post)
        accepted += receipt.accepted
        evicted += receipt.evicted
    taken = times(inbox).get("s1", [])
    assert taken == sorted(set(taken))
    assert len(taken) == accepted - evicted <= 4
