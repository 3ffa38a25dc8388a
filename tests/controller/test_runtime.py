"""The runtime around the step, on a balancer in memory and a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import numpy as np
import pytest

from dial.adapter import RequestBatch
from dial.clock import ManualClock
from dial.controller.policy import PolicySource
from dial.controller.replay import replay
from dial.controller.runtime import Controller, read_log
from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import BalancerUnreachable
from dial.intake.inbox import SampleInbox
from dial.metrics import Metrics
from dial.model import LAB, load_model
from dial.settings import Settings
from dial.telemetry import RequestWindows
from dial.types import ApplyReport, BalancerState, Mode, ServerState


class MemoryBalancer:
    """An adapter whose balancer is a dictionary."""

    name = "memory"

    def __init__(self, service) -> None:
        self.service = service
        self.reachable = True
        self.writes: list[dict[str, int]] = []
        self.batches: list[RequestBatch] = []

    async def read(self) -> BalancerState:
        if not self.reachable:
            raise BalancerUnreachable("memory: nobody answers")
        servers = tuple(
            ServerState(n, self.service.weights[n], self.service.configured[n], True, 0, 0, 0)
            for n in self.service.names
        )
        return BalancerState(self.service.epoch, "roundrobin", self.service.meaning, servers)

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        if not self.reachable:
            raise BalancerUnreachable("memory: nobody answers")
        self.writes.append(dict(weights))
        self.service.weights |= weights
        wanted = tuple(weights.items())
        return ApplyReport(version, 0.0, wanted, wanted)

    async def requests(self) -> AsyncIterator[RequestBatch]:
        for batch in self.batches:
            yield batch

    async def check(self):
        return ()

    async def aclose(self) -> None:
        pass


@pytest.fixture
def make(service, tmp_path):
    """Build a controller over the simulated service; returns it with its surroundings."""

    def build(mode=Mode.ENFORCE, record=None):
        settings = Settings(
            service="app",
            mode=mode,
            interval_s=2.0,
            adapter={"name": "memory"},
            record={"path": record},
        )
        balancer = MemoryBalancer(service)
        windows = RequestWindows(90.0, 20)
        inbox = SampleInbox()
        publisher = Publisher(Snapshot("app", "memory", mode, 0.0, 0.0))
        metrics = Metrics()
        clock = ManualClock(1_000_000.0 + 2.0 * service.tick)
        controller = Controller(
            settings,
            PolicySource.of(settings, load_model(LAB)),
            adapter=balancer,
            windows=windows,
            inbox=inbox,
            publisher=publisher,
            metrics=metrics,
            clock=clock,
        )
        return World(controller, balancer, windows, inbox, publisher, metrics, clock, service)

    return build


class World:
    """A controller and what surrounds it."""

    def __init__(self, controller, balancer, windows, inbox, publisher, metrics, clock, service):
        self.controller = controller
        self.balancer = balancer
        self.windows = windows
        self.inbox = inbox
        self.publisher = publisher
        self.metrics = metrics
        self.clock = clock
        self.service = service
        self.random = np.random.default_rng(1)

    async def pass_ticks(self, count: int) -> None:
        """Feed what the simulated service would log and sample, and tick."""
        for _ in range(count):
            self.clock.advance(2.0)
            observation = self.service.observe()
            for backend in observation.backends:
                self.windows.add(self._batch(backend.name, backend.window.t_mean_ms))
                pending = self.inbox._pending[backend.name]
                pending.samples.append(backend.sample)
            await self.controller.tick(2.0)

    def _batch(self, name: str, mean_ms: float) -> RequestBatch:
        n = 400
        return RequestBatch(
            names=(name,),
            backend=np.zeros(n, np.int32),
            end_s=np.zeros(n),
            latency_ms=self.random.exponential(mean_ms, n),
            connect_ms=np.full(n, np.nan),
            failed=np.zeros(n, np.bool_),
        )

    def count(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(metric, labels) or 0.0


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
    world.windows.add(world._batch("s1", 1000.0))
    await world.controller.begin()
    await world.pass_ticks(1)
    assert world.publisher.current.observation.backends[0].window.requests == 400


async def test_malformed_log_lines_are_counted(make):
    world = make()
    batch = world._batch("s1", 10.0)
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
