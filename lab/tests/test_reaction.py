"""What is read out of a series of weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.controller.recording import Tick
from dial.types import (
    Action,
    ApplyReport,
    BackendObservation,
    BackendPlan,
    Cause,
    NoData,
    Observation,
    Plan,
    ServerState,
    Verdict,
    WeightKind,
    WeightMeaning,
)
from dial_lab.reaction import (
    Phases,
    changes,
    direction_changes,
    is_even,
    judge,
    recovery_s,
    share,
    weights_in_effect,
)

EVEN = {"s1": 100, "s2": 100, "s3": 100}
SHIFTED = {"s1": 20, "s2": 140, "s3": 140}
PHASES = Phases(quiet_s=20.0, contended_s=60.0, recovered_s=20.0)


def report(at_s: float, **weights: int) -> ApplyReport:
    pairs = tuple(weights.items())
    return ApplyReport(version=1, at_s=1000.0 + at_s, wanted=pairs, in_effect=pairs)


def tick(
    at_s: float,
    *,
    weight: int,
    share: float,
    cause: Cause = Cause.CPU,
    action: Action = Action.HOLD,
) -> Tick:
    """One of s1 and s2, of which s1 has this weight and is to have this share."""
    nothing = NoData("of no matter here")
    meaning = WeightMeaning(WeightKind.SERVICE_RATE, minimum=1, maximum=256, zero_drains=True)
    weights, shares = {"s1": weight, "s2": 100}, {"s1": share, "s2": 1.0 - share}
    seen = tuple(
        BackendObservation(name, nothing, nothing, ServerState(name, each, 100, True, 0, 0, 0))
        for name, each in weights.items()
    )
    verdict = Verdict(cause, nothing, nothing, nothing, nothing)
    planned = tuple(
        BackendPlan(name, verdict, shares[name], each) for name, each in weights.items()
    )
    now_s = 1000.0 + at_s
    observation = Observation(1, now_s, 1.0, "1", "leastconn", meaning, seen, "m")
    return Tick(1, observation, Plan(1, now_s, action, "", planned))


def test_share_is_weight_over_the_sum() -> None:
    assert share(SHIFTED, "s1") == pytest.approx(20 / 300)


@pytest.mark.parametrize(
    ("weight", "even"),
    # Share of s1 times three: 105/305 * 3 = 1.033, 94/294 * 3 = 0.959, 110/310 * 3 = 1.065.
    [(105, True), (94, True), (110, False), (90, False)],
)
def test_even_means_every_share_within_five_percent(weight: int, even: bool) -> None:
    assert is_even({**EVEN, "s1": weight}) is even


def test_recovery_runs_to_the_moment_since_which_weights_are_even() -> None:
    series = [(0.0, EVEN), (25.0, SHIFTED), (84.0, EVEN), (86.0, SHIFTED), (90.0, EVEN)]
    assert recovery_s(series, after_s=80.0, until_s=100.0) == 10.0


def test_recovery_is_null_when_the_block_ends_first() -> None:
    assert recovery_s([(0.0, EVEN), (25.0, SHIFTED)], after_s=80.0, until_s=100.0) is None


def test_recovery_is_zero_when_nothing_was_moved() -> None:
    assert recovery_s([(0.0, EVEN), (30.0, EVEN)], after_s=80.0, until_s=100.0) == 0.0


def test_small_steps_one_way_and_trembling_are_no_turns() -> None:
    assert direction_changes([0.33, 0.25, 0.17, 0.10, 0.12, 0.10, 0.13], even=1 / 3) == 0


def test_every_large_reversal_is_a_turn() -> None:
    # A fifth of the even share is 0.067: down to 0.10, up to 0.20, down to 0.10.
    assert direction_changes([0.33, 0.10, 0.20, 0.10], even=1 / 3) == 2


def test_slow_way_back_counts_once() -> None:
    assert direction_changes([0.33, 0.10, 0.14, 0.18, 0.22], even=1 / 3) == 1


@given(st.lists(st.floats(0, 1), max_size=30))
def test_turns_are_fewer_than_steps(shares: list[float]) -> None:
    assert 0 <= direction_changes(shares, 1 / 3) <= max(0, len(shares) - 2)


def test_report_of_some_backends_leaves_the_others_as_they_were() -> None:
    series = weights_in_effect([], [report(0, **EVEN), report(25, s1=20)], start_s=1000.0)
    assert series[-1] == (25.0, {"s1": 20, "s2": 100, "s3": 100})


def test_changes_keep_the_first_entry_and_those_that_differ() -> None:
    assert changes([(0.0, EVEN), (1.0, EVEN), (2.0, SHIFTED)]) == [(0.0, EVEN), (2.0, SHIFTED)]


def test_block_is_judged_by_its_phases() -> None:
    reports = [report(-2, **EVEN), report(23.5, **SHIFTED), report(86, **EVEN), report(101, s1=1)]
    judged = judge([], reports, "s1", 1000.0, PHASES)
    assert judged.reaction_s == pytest.approx(3.5)
    assert judged.recovery_s == pytest.approx(6.0)
    assert judged.weight_changes_quiet == 0
    assert judged.weights[-1][1] == EVEN  # what was written after the block is not part of it


def test_a_probe_is_no_turn_and_a_share_that_turns_is() -> None:
    # From an even half to 0.35 and back: more than the tenth that is a fifth of the even share.
    weights = [100, 55, 55, 100, 100, 55, 55]
    probed = [0.5, 0.35, 0.35, 0.35, 0.35, 0.35, 0.35]
    turned = [0.5, 0.35, 0.35, 0.5, 0.5, 0.35, 0.35]
    for shares, turns in ((probed, 0), (turned, 2)):
        ticks = [
            tick(25.0 + number, weight=weight, share=share)
            for number, (weight, share) in enumerate(zip(weights, shares, strict=True))
        ]
        assert judge(ticks, [], "s1", 1000.0, PHASES).direction_changes == turns


def test_where_nobody_comes_every_change_is_one_in_quiet() -> None:
    reports = [report(-2, **EVEN), report(23.5, **SHIFTED), report(86, **EVEN), report(101, s1=1)]
    judged = judge([], reports, "s1", 1000.0, PHASES, quiet_s=PHASES.end_s)
    assert judged.weight_changes_quiet == 2  # there and back; what came after the end is no part


def test_who_is_taken_last_of_idle_servers_is_no_reaction() -> None:
    # Last of idle ones from 19 on, beside a neighbour from 20 to 80: found at 24, gone by 85.
    def at(at_s: float, weight: int, cause: Cause, action: Action) -> Tick:
        return tick(at_s, weight=weight, share=0.5, cause=cause, action=action)

    ticks = [
        at(19.0, 100, Cause.NONE, Action.PREFER),
        at(20.0, 32, Cause.NONE, Action.HOLD),
        at(24.0, 32, Cause.CPU, Action.SHIFT),
        at(25.0, 20, Cause.CPU, Action.HOLD),
        at(85.0, 20, Cause.NONE, Action.RELEASE),
        at(86.0, 32, Cause.NONE, Action.HOLD),
        at(87.0, 32, Cause.NONE, Action.HOLD),
    ]
    reports = [report(19.1, s1=32), report(24.1, s1=20), report(85.1, s1=32)]
    judged = judge(ticks, reports, "s1", 1000.0, PHASES)
    assert judged.reaction_s == pytest.approx(4.1)
    assert judged.recovery_s == pytest.approx(7.0)
    assert judged.load_moved
    assert not judge(ticks[:2], reports[:1], "s1", 1000.0, PHASES).load_moved


def test_change_in_the_quiet_phase_is_counted() -> None:
    judged = judge([], [report(-2, **EVEN), report(5, s1=90)], "s1", 1000.0, PHASES)
    assert judged.weight_changes_quiet == 1
    assert judged.reaction_s is None
