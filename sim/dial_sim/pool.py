"""What a controller sees of the simulated service: the product's own windows and observations.

The log is the response times of the engine, gathered by :class:`~dial.telemetry.RequestWindows`;
the balancer's counters are the engine's.  An agent in each server sees what it would of a CPU
neighbour: the work that was done, and the time that work had to wait for a processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dial.adapter import RequestBatch
from dial.settings import Settings
from dial.telemetry import Observer, RequestWindows
from dial.types import (
    METRIC_NAMES,
    AgentSample,
    BalancerState,
    Measured,
    NoData,
    Observation,
    ServerState,
    WeightKind,
    WeightMeaning,
)
from dial_sim.engine import World

CONFIGURED = 100
"""Weight of every server in the balancer's own configuration."""

_SCHEDULING = 0.15
"""Wait for the processor without a neighbour, of the time that is run: what a quiet VM shows."""

_ABSENT: dict[str, Measured] = dict.fromkeys(METRIC_NAMES, NoData("not simulated"))


class Pool:
    """The balancer of a simulated service.

    Parameters
    ----------
    servers, balancers : how many.
    kind : what the policy makes of a weight.
    settings : of the controller.
    model_checksum : of its model.

    Attributes
    ----------
    weights
        int64[n], in force.
    """

    def __init__(
        self,
        servers: int,
        balancers: int,
        kind: WeightKind,
        *,
        settings: Settings,
        model_checksum: str,
    ) -> None:
        self.names = names_of(servers)
        self.weights = np.full(servers, CONFIGURED, np.int64)
        self._total = np.zeros(servers, np.int64)
        self._algorithm = "leastconn" if kind is WeightKind.CONCURRENCY else "roundrobin"
        self._meaning = WeightMeaning(kind, 1, 256, zero_drains=True, balancers=balancers)
        self._windows = RequestWindows(settings.percentile, settings.guards.min_requests)
        self._observer = Observer(self._windows, model_checksum)

    def observe(self, world: World, now_s: float, interval_s: float) -> Observation:
        """The interval that has just ended; ``now_s`` is simulated time."""
        self._total += world.sent
        self._windows.add(self._log(world))
        return self._observer.observe(
            self.balancer(world), self._samples(world, now_s, interval_s), now_s, interval_s
        )

    def balancer(self, world: World) -> BalancerState:
        """As an adapter would read it."""
        flying = world.flying.sum(axis=0).tolist()
        weights, total = self.weights.tolist(), self._total.tolist()
        servers = tuple(
            ServerState(name, weights[i], CONFIGURED, True, flying[i], total[i], 0)
            for i, name in enumerate(self.names)
        )
        return BalancerState("1", self._algorithm, self._meaning, servers)

    def take(self, changes: tuple[tuple[str, int], ...]) -> NDArray[np.float64]:
        """Put weights in force; returns all that are, float64[n]."""
        for name, weight in changes:
            self.weights[number_of(name)] = weight
        return self.weights.astype(np.float64)

    def _log(self, world: World) -> RequestBatch:
        backend, place = np.nonzero(np.arange(world.times_s.shape[1]) < world.kept[:, None])
        times_ms = 1e3 * world.times_s[backend, place].astype(np.float64)
        return RequestBatch(
            names=self.names,
            backend=backend.astype(np.int32),
            end_s=np.full(times_ms.size, np.nan),
            latency_ms=times_ms,
            connect_ms=np.full(times_ms.size, np.nan),
            failed=np.zeros(times_ms.size, np.bool_),
        )

    def _samples(
        self, world: World, now_s: float, interval_s: float
    ) -> dict[str, tuple[AgentSample, ...]]:
        ran = np.minimum(world.ran_s / interval_s, 1.0)
        waited = world.waited_s / interval_s + _SCHEDULING * ran
        seen = zip(self.names, ran.tolist(), waited.tolist(), strict=True)
        return {name: (sample(now_s, interval_s, used, late),) for name, used, late in seen}


def sample(now_s: float, interval_s: float, used: float, late: float) -> AgentSample:
    """What an agent sees of a server that ran ``used`` and waited ``late`` of the time."""
    measured: dict[str, Measured] = {
        "cpu_usr_cores": 0.8 * used,
        "cpu_sys_cores": 0.2 * used,
        "cpu_capacity_cores": 1.0,
        "run_queue_wait_cores": late,
        "throttled_fraction": 0.0,
    }
    metrics: dict[str, Any] = _ABSENT | measured
    return AgentSample(at_s=now_s, interval_s=interval_s, **metrics)


def names_of(servers: int) -> tuple[str, ...]:
    """Of the servers, in order."""
    return tuple(f"s{number}" for number in range(servers))


def number_of(name: str) -> int:
    """Of a server, by its name."""
    return int(name[1:])
