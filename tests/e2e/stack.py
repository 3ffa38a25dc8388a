"""The product as a user runs it: a real HAProxy, the real ``dial controller``, real requests.

Only what lies outside the product is played: the application (three members whose delay can
be set), its clients (an open loop of requests), and what agents see of a neighbour.

Runs may overlap.  All sockets are unix sockets in a directory of the stack's own, and the
controller picks its port itself; the log's port alone has to be known before anything runs,
so it is taken on a loopback address that belongs to this process.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx

from dial.errors import BalancerError

from .application import CONFIGURED, QUIET_S, Member, Proxy, until
from .product import OPERATOR_TOKEN, SAMPLES_EVERY_S, TOKEN, Controller, sample

SLOW_S = 0.3
REQUESTS_PER_S = 80.0


class Stack:
    """Everything together, with requests that come and agents that post."""

    by_delay = False
    """Whether HAProxy has the rules for the shortest expected delay."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.members = {name: Member(directory / name) for name in CONFIGURED}
        self.proxy = Proxy(directory, self.members, by_delay=self.by_delay)
        self.controller = Controller(directory / "dial.toml")
        self.silent: set[str] = set()
        """Backends whose agent does not post."""
        self.denied: set[str] = set()
        """Backends whose agent says that CPU time is denied."""

    def settings(self, **changes: str) -> str:
        """A configuration that learns fast and is sure only of large changes.

        The quiet T90 is 30 ms.  On M/M/1's curve through it, release at rho_bg 0.4 is at some
        50 ms: what a busy machine adds to 30 ms does not keep load away.
        """
        for name, token in (("token", TOKEN), ("operator", OPERATOR_TOKEN)):
            (self.directory / name).touch(mode=0o600)
            (self.directory / name).write_text(token)
        own = {"service": "app", "mode": "enforce", "interval_s": "0.5"} | changes
        return f"""
service = "{own["service"]}"
mode = "{own["mode"]}"
interval_s = {own["interval_s"]}
backends = {{ s1.peak_rps = 150.0, s2.peak_rps = 150.0, s3.peak_rps = 150.0 }}
[adapter]
name = "haproxy"
[adapter.options]
socket = "{own.get("socket", self.proxy.runtime)}"
log = "tcp://{self.proxy.log_host}:{self.proxy.log_port}"
check_wait_s = 0.3
[api]
token_file = "{self.directory}/token"
operator_token_file = "{self.directory}/operator"
[detector]
learn_intervals = 3
[estimator]
drift = 0.3
[guards]
min_requests = 3
floor_share = 0.5
max_step = 1.0
engage_rho_bg = 0.5
release_evidence = 1.0
blind_rho_bg = {own.get("blind_rho_bg", "0.4")}
[record]
path = "{self.directory}/ticks.jsonl"
"""

    async def learnt(self) -> None:
        """Wait until T_x of every backend is known, and a slow one would be outside its band.

        One hiccup of the machine makes the band of the first few intervals wider than that.
        """

        async def bands() -> bool:
            rows = (await self.controller.state())["backends"]
            return len(rows) == len(CONFIGURED) and all(
                isinstance(row["t_x_ms"], float)
                and isinstance(row["expected_t_x_ms"], float)
                and row["expected_t_x_ms"] < 1e3 * SLOW_S / 2
                for row in rows
            )

        await until(bands, "all backends learnt")

    def neighbour(self, name: str, *, there: bool) -> None:
        """A neighbour comes or goes: the member is slow, and its agent sees why."""
        self.members[name].delay_s = SLOW_S if there else QUIET_S
        (self.denied.add if there else self.denied.discard)(name)

    async def moved_away_from(self, name: str) -> dict[str, int]:
        """Wait until HAProxy gives that backend less than half its configured share."""
        share = CONFIGURED[name] / sum(CONFIGURED.values())

        async def moved() -> dict[str, int]:
            with suppress(BalancerError):
                weights = await self.proxy.weights()
                return weights if weights[name] < share / 2 * sum(weights.values()) else {}
            return {}

        return dict(await until(moved, f"load moved away from {name}"))

    async def configured(self) -> None:
        """Wait until HAProxy has the configured weights again."""

        async def again() -> bool:
            return await self.proxy.weights() == CONFIGURED

        await until(again, "configured weights")

    async def send_requests(self) -> None:
        """An open loop: a slow answer holds no other request up."""
        asked: set[asyncio.Task[bool]] = set()
        try:
            while True:
                request = asyncio.create_task(self.proxy.get())
                asked.add(request)
                request.add_done_callback(asked.discard)
                await asyncio.sleep(1.0 / REQUESTS_PER_S)
        finally:
            await asyncio.gather(*asked)

    async def send_samples(self) -> None:
        while True:
            for name in CONFIGURED.keys() - self.silent:
                with suppress(httpx.HTTPError):
                    await self.controller.post(sample(name, denied=name in self.denied))
            await asyncio.sleep(SAMPLES_EVERY_S)


@asynccontextmanager
async def background(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


AnyStack = TypeVar("AnyStack", bound=Stack)


@asynccontextmanager
async def start_stack(
    kind: type[AnyStack] = Stack,  # type: ignore[assignment] # the default is a Stack
    *,
    run: bool = True,
    **changes: str,
) -> AsyncIterator[AnyStack]:
    """Start everything, the controller only if it is to ``run``; stops all of it."""
    async with AsyncExitStack() as closing:
        # Short, unlike tmp_path: a unix socket's path has room for 107 bytes.
        directory = tempfile.TemporaryDirectory(prefix="dial-")
        stack = kind(Path(closing.enter_context(directory)))
        for member in stack.members.values():
            await member.start()
            closing.push_async_callback(member.close)
        closing.push_async_callback(stack.proxy.stop)
        await stack.proxy.start()
        stack.controller.config.write_text(stack.settings(**changes))
        await closing.enter_async_context(background(stack.send_requests()))
        closing.push_async_callback(stack.controller.stop)
        if run:
            await stack.controller.start()
            await until(stack.controller.ready, "the controller is ready")
            await closing.enter_async_context(background(stack.send_samples()))
        try:
            yield stack
        except AssertionError as error:
            error.add_note(f"The controller's log:\n{stack.controller.log() if run else '-'}")
            raise
