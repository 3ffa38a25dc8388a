"""The runtime around the step, on a balancer in memory and a clock that stands still."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from dial.adapter import RequestBatch
from dial.controller import runtime
from dial.controller.replay import replay
from dial.controller.runtime import read_log
from dial.errors import BalancerUnreachable
from dial.service.feed import WeightFeed
from dial.settings import Settings
from dial.types import Mode

from .world import World


@pytest.fixture
def make(service):
    """Build a controller over the simulated service; returns it with its surroundings."""

    def build(mode=Mode.ENFORCE, record=None):
        return World(service, mode=mode, record={"path": record})

    return build


async def test_a_neighbour_leads_to_weights_written_and_read_back(make):
    world = make()
    await world.controller.begin()
    await world.pass_ticks(10)
    assert world.balancer.writes == []
    world.service.rho_bg["s1"] = 0.6
    await world.pass_ticks(4)
    assert world.service.weights["s1"] < 100 < world.service.weights["s2"]
    assert world.publisher.current.report.ok
    assert world.count("dial_weight_writes_total", result="ok") >= 3


async def test_shadow_mode_plans_the_same_and_writes_nothing(make):
    world = make(mode=Mode.SHADOW)
    await world.controller.begin()
    await world.pass_ticks(10)
    world.service.rho_bg["s1"] = 0.6
    await world.pass_ticks(4)
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
    await world.controller.begin()
    await world.pass_ticks(10)
    world.service.rho_bg["s1"] = 0.6
    await world.pass_ticks(4)
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
    await world.controller.begin()
    await world.pass_ticks(10)
    world.service.rho_bg["s1"] = 0.6
    await world.pass_ticks(5)
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
