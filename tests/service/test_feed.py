"""The weight feed: versions, renewal, long poll, token."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest

from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import IntakeError
from dial.service import feed as feed_module
from dial.service.feed import WeightFeed
from dial.settings import Settings
from dial.types import ApplyReport

TOKEN = {"Authorization": "Bearer correct-horse-battery-staple"}


def later(snapshot: Snapshot, seconds: float, **weights: int) -> Snapshot:
    """The same some time later, with these weights in force."""
    assert snapshot.observation is not None
    observation = snapshot.observation
    backends = tuple(
        replace(b, server=replace(b.server, weight=weights.get(b.name, b.server.weight)))
        for b in observation.backends
    )
    observation = replace(observation, now_s=observation.now_s + seconds, backends=backends)
    return replace(snapshot, at_s=snapshot.at_s + seconds, observation=observation)


@pytest.fixture
def feed(publisher: Publisher, settings: Settings) -> WeightFeed:
    return WeightFeed(publisher, settings)


def test_before_the_first_reading_there_are_no_weights(feed: WeightFeed) -> None:
    with pytest.raises(IntakeError, match="no tick has read"):
        feed.current()


def test_weights_written_after_the_reading_are_in_force(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)  # read as 100 and 100, then s1 was written as 33
    assert feed.current().weights == {"s1": 33, "s2": 100}


def test_the_balancer_as_it_was_read_counts_more_than_an_old_report(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(later(after, 1.0, s1=50))
    assert feed.current().weights == {"s1": 50, "s2": 100}


def test_the_same_weights_keep_their_version_and_are_stood_by(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    first = feed.current()
    publisher.publish(later(after, 5.0, s1=33))
    second = feed.current()
    assert second.version == first.version
    assert second.at_s == first.at_s + 5.0


def test_versions_grow_even_if_the_clock_is_set_back(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    first = feed.current().version
    publisher.publish(replace(later(after, -100.0, s1=60), report=None))
    assert feed.current().version == first + 1


def test_a_tick_that_could_not_read_the_balancer_stands_by_nothing(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    first = feed.current()
    publisher.publish(replace(after, at_s=after.at_s + 9.0, observation=None, trouble="away"))
    assert feed.current() == first


def test_weights_hold_as_long_as_a_lease(
    feed: WeightFeed, publisher: Publisher, after: Snapshot, settings: Settings
) -> None:
    publisher.publish(after)
    assert feed.current().valid_s == settings.lease_expires_s


async def test_a_follower_waits_until_the_weights_change(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    first = (await client.get("/v1/weights", headers=TOKEN)).json()
    assert (first["format"], first["service"]) == (1, "web")
    asking = asyncio.create_task(
        client.get("/v1/weights", params={"after": first["version"]}, headers=TOKEN)
    )
    await asyncio.sleep(0.1)
    assert not asking.done()
    publisher.publish(later(after, 1.0, s1=50))
    second = (await asking).json()
    assert second["weights"] == {"s1": 50, "s2": 100}
    assert second["version"] > first["version"]


async def test_a_follower_of_weights_that_stay_is_answered_within_their_time(
    feed: WeightFeed,
    publisher: Publisher,
    after: Snapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher.publish(after)
    timeout = asyncio.timeout
    waits: list[float] = []

    def at_once(seconds: float) -> asyncio.Timeout:
        waits.append(seconds)
        return timeout(0.0)

    monkeypatch.setattr(feed_module.asyncio, "timeout", at_once)
    version = feed.current().version
    assert (await feed.newer_than(version)).version == version
    assert waits == [10.0 / 3.0]


def test_a_snapshot_is_looked_at_once_however_many_ask(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    assert feed.current() is feed.current()


def test_weights_written_after_a_tick_in_trouble_are_in_force(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    first = feed.current()
    report = ApplyReport(8, after.at_s + 1.0, (("s1", 100),), in_effect=(("s1", 100),))
    publisher.publish(
        replace(after, at_s=after.at_s + 1.0, observation=None, report=report, trouble="away")
    )
    put_back = feed.current()
    assert put_back.weights == {"s1": 100, "s2": 100}
    assert put_back.version > first.version
    assert put_back.at_s == first.at_s  # read no later than that


async def test_followers_are_answered_when_the_controller_ends(
    feed: WeightFeed, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    version = feed.current().version
    asking = asyncio.create_task(feed.newer_than(version))
    await asyncio.sleep(0)
    publisher.end()
    async with asyncio.timeout(1.0):
        assert (await asking).version == version
        assert (await feed.newer_than(version)).version == version


async def test_too_many_followers_are_answered_at_once(
    feed: WeightFeed, publisher: Publisher, after: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish(after)
    monkeypatch.setattr(feed_module, "MAX_WAITING", 0)
    version = feed.current().version
    async with asyncio.timeout(1.0):
        assert (await feed.newer_than(version)).version == version


async def test_the_weights_need_the_token_where_there_is_one(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    assert (await client.get("/v1/weights")).status_code == 401
    assert (await client.get("/v1/weights", headers=TOKEN)).status_code == 200


async def test_before_the_first_reading_a_follower_is_told_to_come_back(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/v1/weights", headers=TOKEN)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "not_ready"
