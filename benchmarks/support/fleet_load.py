"""A service for the fleet's benchmark: agents in thousands, and readers of balancers in memory.

    python -m benchmarks.support.fleet_load agents CONFIG URL SERVICE COUNT
    python -m benchmarks.support.fleet_load reader CONFIG NAME BALANCERS

Each agent is the product's own client on a connection of its own, at 1 Hz; what it says is what an
agent of a quiet VM says.  A reader is the product's own, beside a balancer in memory whose servers
answer as M/M/1 would; a neighbour takes half of server 0 while there is a file ``neighbour`` beside
the configuration.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dial import subjects
from dial.adapter import Finding, RequestBatch
from dial.agent.client import Kind
from dial.agent.nats import NatsClient, parse_server
from dial.agent.wire import encode
from dial.clock import SystemClock
from dial.fleet.link import connect
from dial.fleet.reader import Reader
from dial.settings import load_settings
from dial.types import (
    METRIC_NAMES,
    AgentSample,
    ApplyReport,
    BalancerState,
    NoData,
    ServerState,
    WeightKind,
    WeightMeaning,
)

PEAK_RPS = 100.0
RATE_PER_S = 40.0
RHO_BG = 0.5
NEIGHBOUR = "neighbour"
_ABSENT: dict[str, object] = dict.fromkeys(METRIC_NAMES, NoData("not measured"))
_MEANING = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)


def names_of(count: int) -> tuple[str, ...]:
    """Of the servers."""
    return tuple(f"s{number}" for number in range(count))


def sample(at_s: float, *, contended: bool) -> AgentSample:
    """What the agent of a server sees."""
    used = RATE_PER_S / PEAK_RPS
    metrics: dict[str, Any] = _ABSENT | {
        "cpu_usr_cores": 0.8 * used,
        "cpu_sys_cores": 0.2 * used,
        "cpu_capacity_cores": 1.0,
        "run_queue_wait_cores": 0.1 + (RHO_BG if contended else 0.0),
        "throttled_fraction": 0.0,
    }
    return AgentSample(at_s=at_s, interval_s=1.0, **metrics)


def agents(neighbour: Path, url: str, service: str, count: int) -> None:
    """Publish for ``count`` agents at 1 Hz, evenly over the second, until SIGTERM."""
    _allow_connections(count)
    server = parse_server(f"{url}/{service}")
    clients = [
        NatsClient(server, subjects.samples(service, f"s{i}"), f"vm-{i}:1", "-")
        for i in range(count)
    ]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    sent, refused = Counter[Kind](), 0
    begin_s, number = time.monotonic(), 0
    while not stopped:
        due_s = begin_s + number / count
        if (early_s := due_s - time.monotonic()) > 0.0:
            time.sleep(early_s)
        one = number % count
        seen = sample(time.time(), contended=one == 0 and neighbour.exists())
        body = encode(f"s{one}", f"vm-{one}:1", [seen])
        sent[clients[one].post(body).kind] += 1
        number += 1
    refused = sum(n for kind, n in sent.items() if kind is not Kind.ACCEPTED)
    late_s = time.monotonic() - begin_s - number / count
    print(json.dumps({"sent": sent[Kind.ACCEPTED], "refused": refused, "late_s": late_s}))


def _allow_connections(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(count + 256, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


class MemoryBalancer:
    """One of ``of`` balancers of a service of ``count`` servers."""

    name = "memory"

    def __init__(self, count: int, of: int, interval_s: float, neighbour: Path) -> None:
        self.names = names_of(count)
        self._weights = np.full(count, 100, np.int64)
        self._total = np.zeros(count, np.int64)
        self._rate_per_s = RATE_PER_S / of
        self._of = of
        self._interval_s = interval_s
        self._random = np.random.default_rng()
        self._neighbour = neighbour

    async def read(self) -> BalancerState:
        """As of now."""
        weights, total = self._weights.tolist(), self._total.tolist()
        servers = tuple(
            ServerState(name, weights[i], 100, True, 1, total[i], 0)
            for i, name in enumerate(self.names)
        )
        return BalancerState("1", "roundrobin", _MEANING, servers)

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        """Taken at once."""
        for name, weight in weights.items():
            self._weights[int(name[1:])] = weight
        wanted = tuple(weights.items())
        return ApplyReport(version, time.time(), wanted, wanted)

    async def requests(self) -> AsyncIterator[RequestBatch]:
        """An interval's worth at a time."""
        while True:
            await asyncio.sleep(self._interval_s)
            yield self._batch()

    def _batch(self) -> RequestBatch:
        rate = self._rate_per_s * self._weights / self._weights.mean()
        left = np.full(len(self.names), PEAK_RPS)
        if self._neighbour.exists():
            left[0] *= 1.0 - RHO_BG
        mean_ms = 1e3 / np.maximum(left - rate * self._of, 5.0)
        requests = self._random.poisson(rate * self._interval_s)
        self._total += requests
        backend = np.repeat(np.arange(len(self.names), dtype=np.int32), requests)
        return RequestBatch(
            names=self.names,
            backend=backend,
            end_s=np.full(backend.size, time.time()),
            latency_ms=self._random.exponential(mean_ms[backend]),
            connect_ms=np.full(backend.size, np.nan),
            failed=np.zeros(backend.size, np.bool_),
        )

    async def check(self) -> tuple[Finding, ...]:
        """Nothing to change."""
        return ()

    async def aclose(self) -> None:
        """Nothing to give back."""


async def read(config: Path, name: str, balancers: int) -> None:
    """Run a reader until it is ended."""
    settings = load_settings(config)
    settings = settings.model_copy(
        update={"fleet": settings.fleet.model_copy(update={"name": name})}
    )
    link = await connect(settings.fleet, Counter())
    neighbour = config.with_name(NEIGHBOUR)
    balancer = MemoryBalancer(len(settings.backends), balancers, settings.interval_s, neighbour)
    reader = Reader(settings, balancer, link, SystemClock())
    await reader.begin()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reader.read_log())
        tasks.create_task(reader.follow())
        while True:
            await asyncio.sleep(settings.interval_s)
            await reader.tick(settings.interval_s)


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "agents":
        agents(Path(given[0]).with_name(NEIGHBOUR), given[1], given[2], int(given[3]))
    else:
        asyncio.run(read(Path(given[0]), given[1], int(given[2])))
