"""A real NATS server, and balancers in memory."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from dial.adapter import RequestBatch
from dial.clock import SystemClock
from dial.fleet.link import Link, connect
from dial.settings import Settings
from dial.types import ApplyReport, BalancerState, ServerState, WeightKind, WeightMeaning

WAIT_S = 20.0
"""Longest wait for something that must come; a test that meets it has failed."""

INTERVAL_S = 0.2
PEAK_RPS = 1500.0
ARRIVAL_PER_S = 1700.0
MEANING = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server with JetStream, at a port that was free."""
    program = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert program, "nats-server is not installed: make setup-dev"
    folder = tmp_path_factory.mktemp("nats")
    arguments = ["-js", "-sd", str(folder / "js"), "-a", "127.0.0.1", "-p", "-1"]
    with (folder / "log").open("wb") as output:
        server = subprocess.Popen(
            [program, *arguments, "--ports_file_dir", str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _address(folder / f"nats-server_{server.pid}.ports", server)
    finally:
        server.terminate()
        server.wait(10.0)


def _address(ports: Path, server: subprocess.Popen[bytes]) -> str:
    while True:
        try:
            server.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
        else:
            raise AssertionError((ports.parent / "log").read_text())
        if ports.exists() and (content := ports.read_text()):
            url: str = json.loads(content)["nats"][0]
            return url


class Names:
    """Service names that no other test has used: all share one server."""

    number = 0

    @classmethod
    def next(cls) -> str:
        cls.number += 1
        return f"app.{cls.number}"


@pytest.fixture
def make_settings(nats_url: str, tmp_path: Path):
    service = Names.next()

    def make(name: str = "dial-1", **given: object) -> Settings:
        table = {
            "service": service,
            "mode": "enforce",
            "interval_s": INTERVAL_S,
            "adapter": {"name": "memory"},
            "api": {"port": 0},
            "backends": {n: {"peak_rps": PEAK_RPS} for n in ("s1", "s2", "s3")},
            "fleet": {"servers": [nats_url], "name": name, "leader_ttl_s": 1.0},
        }
        return Settings(**(table | given))

    return make


@pytest.fixture
async def open_link(make_settings) -> AsyncIterator[object]:
    links: list[Link] = []

    async def opened(name: str = "dial-1") -> Link:
        links.append(await connect(make_settings(name).fleet, Counter()))
        return links[-1]

    yield opened
    for link in links:
        await link.aclose()


class Pool:
    """Three servers behind any number of balancers; what neighbours take of each."""

    names = ("s1", "s2", "s3")

    def __init__(self) -> None:
        self.rho_bg: dict[str, float] = {}


class MemoryBalancer:
    """One of ``of`` balancers of a pool: an adapter that needs no other program."""

    name = "memory"

    def __init__(self, pool: Pool, of: int = 1, seed: int = 1) -> None:
        self.pool = pool
        self.weights = dict.fromkeys(pool.names, 100)
        self.total = dict.fromkeys(pool.names, 0)
        self.writes: list[tuple[int, dict[str, int]]] = []
        self._of = of
        self._random = np.random.default_rng(seed)
        self._closed = asyncio.Event()

    async def read(self) -> BalancerState:
        servers = tuple(
            ServerState(name, self.weights[name], 100, True, 0, self.total[name], 0)
            for name in self.pool.names
        )
        return BalancerState("1", "roundrobin", MEANING, servers)

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        self.writes.append((version, dict(weights)))
        self.weights |= weights
        wanted = tuple(weights.items())
        return ApplyReport(version, 0.0, wanted, wanted)

    async def requests(self) -> AsyncIterator[RequestBatch]:
        clock = SystemClock()
        while not self._closed.is_set():
            await clock.sleep(INTERVAL_S / 4)
            yield self._batch(INTERVAL_S / 4)

    async def check(self):
        return ()

    async def aclose(self) -> None:
        self._closed.set()

    def _batch(self, interval_s: float) -> RequestBatch:
        """What an M/M/1 at each server would have answered."""
        total = sum(self.weights.values())
        backend, latency_ms = [], []
        for number, name in enumerate(self.pool.names):
            rate = ARRIVAL_PER_S * self.weights[name] / total
            left = PEAK_RPS * (1.0 - self.pool.rho_bg.get(name, 0.0))
            n = round(rate * interval_s / self._of)
            self.total[name] += n
            backend.append(np.full(n, number, np.int32))
            latency_ms.append(self._random.exponential(1e3 / max(left - rate, 10.0), n))
        n = sum(map(len, backend))
        return RequestBatch(
            names=self.pool.names,
            backend=np.concatenate(backend),
            end_s=np.zeros(n),
            latency_ms=np.concatenate(latency_ms),
            connect_ms=np.full(n, np.nan),
            failed=np.zeros(n, np.bool_),
        )


async def until(what, why: str = "") -> None:
    """Wait until ``what()`` is true."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not what():  # noqa: ASYNC110 - what other processes do sets no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"did not come about within {WAIT_S:g} s: {why}") from None
