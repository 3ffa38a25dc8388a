"""A controller on a balancer in memory, a simulated service and clocks that stand still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import numpy as np

from dial.adapter import RequestBatch
from dial.clock import ManualClock
from dial.controller.control import Controller
from dial.controller.policy import PolicySource
from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import BalancerUnreachable
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.lease import Moment
from dial.metrics import Metrics
from dial.model import LAB, load_model
from dial.settings import Settings
from dial.telemetry import RequestWindows
from dial.tracing import Tracer
from dial.types import ApplyReport, BalancerState, Mode, NoData, ServerState


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
            ServerState(
                name=n,
                weight=self.service.weights[n],
                configured_weight=self.service.configured[n],
                usable=n not in self.service.unusable,
                in_flight=0,
                requests_total=0,
                errors_total=0,
            )
            for n in self.service.names
        )
        return BalancerState(self.service.epoch, "roundrobin", self.service.meaning, servers)

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        if not self.reachable:
            raise BalancerUnreachable("memory: nobody answers")
        self.writes.append(dict(weights))
        self.service.weights |= weights
        wanted = tuple(weights.items())
        at_s = 1_000_000.0 + 2.0 * self.service.tick  # as the world's clock
        return ApplyReport(version, at_s, wanted, wanted)

    async def requests(self) -> AsyncIterator[RequestBatch]:
        for batch in self.batches:
            yield batch

    async def check(self):
        return ()

    async def aclose(self) -> None:
        pass


class World:
    """A controller and what surrounds it.

    Parameters
    ----------
    service : the simulated service; a second world over it is a second controller.
    tracer : what makes traces.
    settings : those that differ from the defaults.
    """

    def __init__(
        self,
        service,
        *,
        mode: Mode = Mode.ENFORCE,
        tracer: Tracer | None = None,
        **settings: object,
    ) -> None:
        self.service = service
        self.settings = Settings(
            service="app", mode=mode, interval_s=2.0, adapter={"name": "memory"}, **settings
        )
        self.balancer = MemoryBalancer(service)
        self.windows = RequestWindows(90.0, 20)
        self.inbox = SampleInbox()
        self.publisher = Publisher(Snapshot("app", "memory", mode, 0.0, 0.0))
        self.metrics = Metrics()
        self.clock = ManualClock(1_000_000.0 + 2.0 * service.tick)
        self.orders = OrderBook(self.settings, self.clock)
        self.boot = "first"
        self.controller = Controller(
            self.settings,
            PolicySource.of(self.settings, load_model(LAB)),
            adapter=self.balancer,
            windows=self.windows,
            inbox=self.inbox,
            orders=self.orders,
            publisher=self.publisher,
            metrics=self.metrics,
            clock=self.clock,
            now=self.now,
            tracer=tracer,
        )
        self.random = np.random.default_rng(1)

    def now(self) -> Moment:
        return Moment(self.boot, self.clock.monotonic_s())

    async def pass_ticks(self, count: int) -> None:
        """Feed what the simulated service would log and sample, and tick."""
        for _ in range(count):
            self.clock.advance(2.0)
            observation = self.service.observe()
            for backend in observation.backends:
                self.windows.add(self.batch(backend.name, backend.window.t_mean_ms))
                if not isinstance(backend.sample, NoData):
                    self.inbox._pending[backend.name].samples.append(backend.sample)
            await self.controller.tick(2.0)

    async def learn(self) -> None:
        """Begin, and learn from a quiet time."""
        await self.controller.begin()
        await self.pass_ticks(10)

    async def contend(self, ticks: int = 4) -> None:
        """Learn, and let a neighbour come to s1 that load is moved away from."""
        await self.learn()
        self.service.rho_bg["s1"] = 0.6
        await self.pass_ticks(ticks)

    async def shift(self) -> dict[str, int]:
        """The same; the weights that it leads to."""
        await self.contend()
        assert self.service.weights["s1"] < 100
        return dict(self.service.weights)

    def batch(self, name: str, mean_ms: float, n: int = 400) -> RequestBatch:
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
