"""Two services side by side, offered the same requests at the same moments.

One has DIAL, the other the weights of its configuration.  Both have a HAProxy and three
servers of their own; what else the computer does meets both at once, so that what differs
between them is what DIAL did.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from tests.e2e.application import CONFIGURED, Member, until
from tests.e2e.drill import Drill
from tests.e2e.product import TOKEN

SERVICE_S = 0.01
"""Mean service time, exponential: long against what HAProxy and Python add (1 ms)."""

REQUESTS_PER_S = 100.0
"""A third of what the three servers can serve; s1 is configured to get 40 of them."""

INTERVAL_S = 1.0
EXPIRES_S = 3.0
_GIVE_UP_S = 10.0

_LEARN_S = 12.0
"""Twice the intervals that the detector needs: s3 has 20 requests in one, now and then fewer."""


class Server(Member):
    """First come, first served; the URL says how long a request takes with nobody beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.slower = 1.0
        self._turn = asyncio.Lock()

    async def answer(self, head: bytes) -> None:
        """Serve one request."""
        async with self._turn:
            await asyncio.sleep(int(head.split()[1][1:] or 0) * 1e-6 * self.slower)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    at_s: float
    """When it was sent, by :func:`time.monotonic`."""
    latency_s: float
    failed: bool


class Arm(Drill):
    """One of the two services."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.answers: list[Answer] = []
        self.has_dial = False

    def application(self, directory: Path) -> dict[str, Member]:
        """Servers with a queue."""
        self.servers = {name: Server(directory / name) for name in CONFIGURED}
        return dict(self.servers)

    def settings(self, **_: str) -> str:
        """Defaults, but for a tick of a second."""
        token = self.directory / "token"
        token.touch(mode=0o600)
        token.write_text(TOKEN)
        host, port = self.log_in
        peaks = ", ".join(f"{name}.peak_rps = {1.0 / SERVICE_S}" for name in CONFIGURED)
        return f"""
service = "app"
mode = "enforce"
interval_s = {INTERVAL_S}
backends = {{ {peaks} }}
[adapter]
name = "haproxy"
[adapter.options]
socket = "{self.proxy.runtime}"
log = "tcp://{host}:{port}"
[api]
token_file = "{token}"
[lease]
path = "{self.lease.path}"
expires_s = {EXPIRES_S}
"""

    async def learnt(self) -> None:
        """Wait until something is expected of every backend."""

        async def expected() -> bool:
            rows = (await self.controller.state())["backends"]
            return all(isinstance(row["expected_t_x_ms"], float) for row in rows)

        await asyncio.sleep(_LEARN_S)
        await until(expected, "all backends learnt")

    async def send_requests(self) -> None:
        """Nothing: :func:`offer` sends to both arms."""

    def neighbour(self, name: str, *, there: bool) -> None:
        """A neighbour that takes half comes or goes, and the agent sees why."""
        self.servers[name].slower = 2.0 if there else 1.0
        (self.denied.add if there else self.denied.discard)(name)

    async def ask(self, service_us: int) -> None:
        """Send one request, and note what became of it."""
        at_s = time.monotonic()
        answer = b""
        try:
            async with asyncio.timeout(_GIVE_UP_S):
                reader, writer = await asyncio.open_unix_connection(self.directory / "fe")
                try:
                    writer.write(
                        b"GET /%d HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n" % service_us
                    )
                    answer = await reader.read()
                finally:
                    writer.close()
        except OSError:  # of which a timeout is one
            pass
        failed = not answer.startswith(b"HTTP/1.1 200 ")
        self.answers.append(Answer(at_s, time.monotonic() - at_s, failed))


async def offer(arms: Sequence[Arm], seed: int) -> None:
    """Send each request to all arms at once, until cancelled; arrivals are Poisson."""
    chance = random.Random(seed)  # noqa: S311 - arrivals, no secret
    asked: set[asyncio.Task[None]] = set()
    due_s = time.monotonic()
    while True:
        due_s += chance.expovariate(REQUESTS_PER_S)
        await asyncio.sleep(due_s - time.monotonic())
        service_us = max(1, round(1e6 * chance.expovariate(1.0 / SERVICE_S)))
        for arm in arms:
            request = asyncio.create_task(arm.ask(service_us))
            asked.add(request)
            request.add_done_callback(asked.discard)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the clients of one arm saw in a period."""

    requests: int
    errors: int
    p90_ms: float

    @classmethod
    def of(cls, answers: Sequence[Answer], begin_s: float, end_s: float) -> Seen:
        """Of the requests that were sent from ``begin_s`` to ``end_s``."""
        sent = [answer for answer in answers if begin_s <= answer.at_s < end_s]
        served_ms = [1e3 * answer.latency_s for answer in sent if not answer.failed]
        return cls(
            requests=len(sent),
            errors=len(sent) - len(served_ms),
            p90_ms=quantiles(served_ms, n=10, method="inclusive")[-1],
        )
