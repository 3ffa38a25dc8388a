"""The runtime around the step, on a balancer in memory and a clock that stands still."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from dial.adapter import RequestBatch
from dial.clock import ManualClock
from dial.controller import control, runtime
from dial.controller.replay import replay
from dial.controller.runtime import read_log, tick_until
from dial.errors import BalancerUnreachable
from dial.service.feed import WeightFeed
from dial.settings import Settings
from dial.types import Cause, Mode, Orders

from .world import World


@pytest.fixture
def make(service):
    """Build a controller over the simulated service; returns it with its surroundings."""

    def build(mode=Mode.ENFORCE, record=None):
        return World(service, mode=mode, record={"path": record})

    return build


async def test_a_neighbour_leads_to_weights_written_and_read_back(make):
    world = make()
    await world.learn()
    assert world.balancer.writes == []
    world.service.rho_bg["s1"] = 0.6
    await world.pass_ticks(4)
    assert world.service.weights["s1"] < 100 < world.service.weights["s2"]
    assert world.publisher.current.report.ok
    assert world.count("dial_weight_writes_total", result="ok") >= 3


async def test_shadow_mode_plans_the_same_and_writes_nothing(make):
    world = make(mode=Mode.SHADOW)
    await world.contend()
    assert world.balancer.writes == []
    assert dict(world.publisher.current.plan.changes)["s1"] < 100
    assert world.service.weights == {"s1": 100, "s2": 100, "s3": 100}


async def test_an_unreachable_balancer_is_trouble_that_passes(make):
    world = make()
    await world.controller.begin()
    await world.pass_ticks(2)
    world.balancer.reachable = False
    await world.pass_ticks(1)
    assert "nobody answers" in world.publisher.current.trouble
    assert world.publisher.current.plan is None
    assert world.count("dial_balancer_unreachable_total") == 1
    world.balancer.reachable = True
    await world.pass_ticks(1)
    assert world.publisher.current.trouble is None
    assert world.publisher.current.observation.backends[0].window.requests == 400


async def test_a_controller_cannot_begin_without_its_balancer(make):
    world = make()
    world.balancer.reachable = False
    with pytest.raises(BalancerUnreachable):
        await world.controller.begin()


async def test_the_end_puts_the_configured_weights_back(make):
    world = make()
    await world.shift()
    await world.controller.end()
    assert world.service.weights == {"s1": 100, "s2": 100, "s3": 100}


async def test_the_end_is_told_to_those_who_follow_the_weights(make):
    world = make()
    await world.shift()
    feed = WeightFeed(world.publisher, world.settings)
    assert feed.current().weights["s1"] < 100
    waiting = asyncio.create_task(feed.newer_than(2**62))
    await asyncio.sleep(0)
    await world.controller.end()
    await asyncio.wait_for(waiting, 1.0)
    assert feed.current().weights == {"s1": 100, "s2": 100, "s3": 100}


async def test_the_end_of_a_quiet_controller_writes_nothing(make):
    world = make()
    await world.controller.begin()
    await world.pass_ticks(5)
    await world.controller.end()
    assert world.balancer.writes == []


async def test_what_was_recorded_replays(make, tmp_path):
    path = tmp_path / "r.jsonl"
    world = make(record=path)
    await world.contend(ticks=5)
    await world.controller.end()
    result = replay(path)
    assert (result.ticks, result.mismatches) == (15, ())


async def test_a_recording_that_cannot_be_written_ends_and_control_goes_on(make, tmp_path):
    (tmp_path / "file").write_text("")
    world = make(record=tmp_path / "file" / "r.jsonl")  # a file where a folder must be
    await world.controller.begin()
    await world.pass_ticks(3)
    assert world.publisher.current.trouble is None
    assert world.count("dial_ticks_total") == 3


async def test_what_was_logged_before_the_beginning_belongs_to_no_tick(make):
    world = make()
    world.windows.add(world.batch("s1", 1000.0))
    await world.controller.begin()
    await world.pass_ticks(1)
    assert world.publisher.current.observation.backends[0].window.requests == 400


async def test_malformed_log_lines_are_counted(make):
    world = make()
    batch = world.batch("s1", 10.0)
    world.balancer.batches = [
        RequestBatch(
            batch.names,
            batch.backend,
            batch.end_s,
            batch.latency_ms,
            batch.connect_ms,
            batch.failed,
            malformed=3,
            unattributed=2,
        )
    ]
    await asyncio.wait_for(read_log(world.balancer, world.windows, world.metrics), 5)
    assert world.count("dial_log_lines_malformed_total") == 3
    assert world.count("dial_log_requests_unattributed_total") == 2


def test_who_enforces_without_a_lease_is_told_what_that_means():
    settings = Settings(service="app", mode=Mode.ENFORCE, adapter={"name": "memory"})
    with capture_logs() as logs, runtime._sole_writer(settings):
        pass
    (warning,) = logs
    assert warning["log_level"] == "warning"
    assert warning["event"].startswith("no lease.path is configured")


def test_shadow_mode_needs_no_lease_and_no_lock(tmp_path):
    path = tmp_path / "nowhere" / "app.lease"
    settings = Settings(service="app", adapter={"name": "memory"}, lease={"path": path})
    with capture_logs() as logs, runtime._sole_writer(settings):
        pass
    assert logs == []


class Looked:
    """Ticks that take ``takes_s`` each; stops the loop after ``count`` of them."""

    def __init__(self, clock, stop, *, count, takes_s=0.0):
        self.clock, self.stop, self.count, self.takes_s = clock, stop, count, takes_s
        self.at_s, self.intervals_s = [], []

    async def tick(self, interval_s):
        self.at_s.append(self.clock.monotonic_s())
        self.intervals_s.append(interval_s)
        self.clock.advance(self.takes_s)
        if len(self.at_s) == self.count:
            self.stop.set()


class Suspects:
    """Answers after each tick on time, and from when on there is something new to see."""

    def __init__(self, clock, suspicious, news_at_s):
        self.clock, self.suspicious, self.news_at_s = clock, iter(suspicious), news_at_s

    def has_young_suspicion(self):
        return next(self.suspicious)

    def has_news_of_it(self):
        return self.clock.monotonic_s() >= self.news_at_s


@pytest.fixture
def ticks(monkeypatch):
    """Tick every 20 s by a clock that moves on by what the loop waits; returns when, from 0.

    A wait that is to end after ``stops_at_s`` ends ``stops_for_s`` later: the process had stopped.
    """

    async def run(
        count, suspicious, *, news_at_s=0.0, takes_s=0.0, stops_at_s=math.inf, stops_for_s=0.0
    ):
        clock, stop = ManualClock(0.0), asyncio.Event()
        ticking = Looked(clock, stop, count=count, takes_s=takes_s)
        suspects = Suspects(clock, suspicious, news_at_s)

        async def wait(_, **limits):
            before_s = clock.monotonic_s()
            clock.advance(limits["timeout"])
            if before_s <= stops_at_s < clock.monotonic_s():
                clock.advance(stops_for_s)
            await asyncio.sleep(0)

        monkeypatch.setattr(asyncio, "wait", wait)
        reader = asyncio.get_running_loop().create_future()
        await tick_until(stop, reader, ticking, 20.0, clock, suspicious=suspects)
        assert ticking.intervals_s == [b - a for a, b in pairwise([0.0, *ticking.at_s])]
        return ticking.at_s

    return run


async def test_nothing_is_suspicious_so_ticks_come_once_an_interval(ticks):
    assert await ticks(3, [False] * 3) == [20.0, 40.0, 60.0]


async def test_what_is_suspicious_is_looked_at_half_an_interval_sooner(ticks):
    assert await ticks(5, [False, True, False, True]) == [20.0, 40.0, 50.0, 60.0, 80.0]


async def test_a_look_waits_until_there_is_something_new_to_see(ticks):
    at_s = await ticks(3, [True, False], news_at_s=32.5)
    assert at_s == [20.0, 33.0, 40.0]


async def test_there_is_no_look_shortly_before_an_interval_ends(ticks):
    assert await ticks(3, [True] * 3, news_at_s=36.5) == [20.0, 40.0, 50.0]


async def test_there_are_never_more_than_two_looks_in_an_interval(ticks):
    assert await ticks(5, [True] * 5) == [20.0, 30.0, 40.0, 50.0, 60.0]


async def test_a_look_that_is_too_late_for_its_interval_is_left_to_the_tick_on_time(ticks):
    at_s = await ticks(3, [True, False, False], stops_at_s=25.0, stops_for_s=12.0)
    assert at_s == [20.0, 42.0, 60.0]


async def test_a_tick_that_takes_half_an_interval_is_not_followed_by_a_sooner_one(ticks):
    assert await ticks(3, [True] * 3, takes_s=15.0) == [20.0, 40.0, 60.0]


async def test_a_tick_longer_than_an_interval_skips_the_deadlines_it_missed(ticks):
    assert await ticks(3, [True] * 3, takes_s=30.0) == [20.0, 60.0, 100.0]


async def test_there_is_news_of_a_suspect_once_it_has_answered_enough_for_a_percentile(make):
    world = make()
    await world.contend(ticks=1)
    assert world.controller.has_young_suspicion()
    assert not world.controller.has_news_of_it()
    enough = world.settings.guards.min_requests
    world.windows.add(world.batch("s1", 100.0, enough - 1))
    world.windows.add(world.batch("s2", 10.0, enough))
    assert not world.controller.has_news_of_it()
    world.windows.add(world.batch("s1", 100.0, 1))
    assert world.controller.has_news_of_it()


async def test_there_is_news_once_all_suspects_have_answered_enough(make):
    world = make()
    await world.learn()
    world.service.rho_bg["s1"] = world.service.rho_bg["s2"] = 0.6
    await world.pass_ticks(1)
    enough = world.settings.guards.min_requests
    world.windows.add(world.batch("s2", 10.0, enough))
    assert not world.controller.has_news_of_it()
    world.windows.add(world.batch("s1", 100.0, enough))
    assert world.controller.has_news_of_it()


async def test_a_slow_backend_is_suspicious_until_load_has_moved(make):
    world = make()
    await world.learn()
    assert not world.controller.has_young_suspicion()
    world.service.rho_bg["s1"] = 0.6
    seen = []
    for _ in range(4):
        await world.pass_ticks(1)
        seen.append((world.controller.has_young_suspicion(), world.service.weights["s1"] < 100))
    assert seen[0] == (True, False)
    assert seen[-1] == (False, True)


async def test_a_second_victim_is_looked_at_sooner_too(make):
    world = make()
    await world.shift()
    assert not world.controller.has_young_suspicion()
    world.service.rho_bg["s2"] = 0.6
    await world.pass_ticks(1)
    assert set(world.controller._state.backends.contentions) == {"s1"}
    assert world.controller.has_young_suspicion()
    # It is the second one that there has to be news of.
    world.windows.add(world.batch("s1", 100.0, world.settings.guards.min_requests))
    assert not world.controller.has_news_of_it()
    world.windows.add(world.batch("s2", 100.0, world.settings.guards.min_requests))
    assert world.controller.has_news_of_it()


async def test_a_suspicion_that_stays_one_is_not_young_for_long(make):
    world = make()
    await world.learn()
    # Slower than usual, but by too little to move load for.
    world.service.rho_bg["s1"] = 0.15
    looks = []
    for _ in range(5):
        await world.pass_ticks(1)
        looks.append(world.controller.has_young_suspicion())
    assert looks == [True, True, True, True, False]


async def test_in_trouble_nothing_is_looked_at_sooner(make):
    world = make()
    await world.contend(ticks=1)
    assert world.controller.has_young_suspicion()
    world.balancer.reachable = False
    await world.pass_ticks(1)
    assert not world.controller.has_young_suspicion()


async def test_load_that_an_operator_keeps_with_a_victim_is_no_suspicion(service, monkeypatch):
    peak_rps = {name: {"peak_rps": 150.0} for name in service.names}
    world = World(service, backends=peak_rps)
    service.agents_dead.update(service.names)
    await world.learn()
    monkeypatch.setattr(world.orders, "now", lambda: Orders(frozen_since_s=1_000_000.0))
    service.rho_bg["s1"] = 0.6
    await world.pass_ticks(4)
    state = world.controller._state
    assert state.backends.contentions["s1"].cause is Cause.UNKNOWN
    assert state.shift is None
    assert "s1" in state.backends.suspects
    assert not world.controller.has_young_suspicion()


async def test_of_many_backends_one_is_always_slow_and_nothing_is_looked_at_sooner(
    make, monkeypatch
):
    world = make()
    await world.contend(ticks=1)
    assert world.controller.has_young_suspicion()
    monkeypatch.setattr(control, "_FEW_BACKENDS", 2)
    assert not world.controller.has_young_suspicion()
