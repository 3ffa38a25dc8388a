"""What a drill needs beyond the stack: things that break, and a count of who noticed.

A log that can be cut and garbled on its way, a HAProxy that reloads, an admin, a watchdog,
and a controller that is killed or stopped from outside.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from dial.lease import LeaseFile
from dial_haproxy.state import parse_info

from .application import CONFIGURED, WITHIN_S, Member, Proxy, log_address, until
from .product import DIAL, environment
from .stack import REQUESTS_PER_S, Stack, background

Bytes = Callable[[bytes], bytes]


class Reloadable(Proxy):
    """HAProxy as a service manager runs it: a master, which a signal makes reload."""

    def __init__(self, directory: Path, members: dict[str, Member]) -> None:
        super().__init__(directory, members)
        self.mode = ("-W", "-S", str(directory / "master"))

    async def epoch(self) -> str:
        """Of the process that answers."""
        (text,) = await self._client.ask(("show info",))
        return parse_info(text).epoch

    async def reload(self) -> None:
        """Returns when the new process answers."""
        before = await self.epoch()
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

        async def another() -> bool:
            return await self.epoch() != before

        await until(another, "another HAProxy process")

    async def admin(self, command: str) -> str:
        """What an admin types into the runtime socket."""
        (said,) = await self._client.ask((command,))
        return said


class LogPipe:
    """The way of the log from HAProxy to DIAL."""

    def __init__(self, here: tuple[str, int], there: tuple[str, int]) -> None:
        self._here, self._there = here, there
        self._serving: set[asyncio.Task[None] | None] = set()
        self._server: asyncio.Server | None = None
        self.change: Bytes = bytes
        """What becomes of the bytes on their way."""

    async def start(self) -> None:
        """Take connections, first or again."""
        self._server = await asyncio.start_server(self._serve, *self._here)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        onward = writer
        try:
            onward = await self._connect()
            while chunk := await reader.read(65_536):
                onward.write(self.change(chunk))
                await onward.drain()
        except (OSError, asyncio.CancelledError):
            pass  # cut, or DIAL or HAProxy ended
        finally:
            for end in (writer, onward):
                end.transport.abort()
            self._serving.discard(asyncio.current_task())

    async def _connect(self) -> asyncio.StreamWriter:
        """To DIAL, as soon as it listens: a HAProxy that is turned away at once comes at once."""
        while True:
            with suppress(OSError):
                return (await asyncio.open_connection(*self._there))[1]
            await asyncio.sleep(0.2)

    async def cut(self) -> None:
        """Break what is open, and take no more."""
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(0)  # what was accepted last begins to be served
            serving = [task for task in self._serving if task]
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving)
            await self._server.wait_closed()
            self._server = None


class Watchdog:
    """``dial watchdog --config FILE`` as a process."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._errors = config.with_name("watchdog.log")
        self._process: asyncio.subprocess.Process | None = None

    def log(self) -> str:
        """Its standard error so far."""
        return self._errors.read_text()

    async def start(self) -> None:
        """Returns when it watches."""
        with self._errors.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                DIAL, "watchdog", "--config", str(self._config), stderr=errors, env=environment()
            )

        async def watches() -> bool:
            assert self._process is not None
            assert self._process.returncode is None, self.log()
            return "watches" in self.log()

        await until(watches, "the watchdog watches")

    async def stop(self) -> int:
        """SIGTERM, if it still runs; its exit code."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.terminate()
        async with asyncio.timeout(WITHIN_S):
            return await self._process.wait()


class Drill(Stack):
    """A stack that can be broken.

    Attributes
    ----------
    failed
        Requests that were not answered 200.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.members = self.application(directory)
        self.proxy: Reloadable = Reloadable(directory, self.members)
        self.log_in = log_address()
        self.log = LogPipe((self.proxy.log_host, self.proxy.log_port), self.log_in)
        self.watchdog = Watchdog(self.controller.config)
        self.lease = LeaseFile(directory / "app.lease", "app")
        self.failed = 0

    def application(self, directory: Path) -> dict[str, Member]:
        """The servers behind HAProxy."""
        return {name: Member(directory / name) for name in CONFIGURED}

    def settings(self, **changes: str) -> str:
        """The stack's, with a lease, and the log coming through the pipe."""
        text = super().settings(**changes)
        there = f"{self.proxy.log_host}:{self.proxy.log_port}"
        host, port = self.log_in
        expires_s = changes.get("expires_s", "10.0")
        lease = f'[lease]\npath = "{self.lease.path}"\nexpires_s = {expires_s}\n'
        return text.replace(there, f"{host}:{port}") + lease

    async def send_requests(self) -> None:
        """An open loop, as the stack's, that counts what fails."""
        asked: set[asyncio.Task[bool]] = set()

        def answered(request: asyncio.Task[bool]) -> None:
            asked.discard(request)
            self.failed += not request.result()

        try:
            while True:
                request = asyncio.create_task(self.proxy.get())
                asked.add(request)
                request.add_done_callback(answered)
                await asyncio.sleep(1.0 / REQUESTS_PER_S)
        finally:
            await asyncio.gather(*asked)

    def signal_controller(self, number: signal.Signals) -> None:
        """As the kernel's out-of-memory killer, or a debugger, would."""
        assert self.controller.process is not None
        self.controller.process.send_signal(number)

    async def start_controller_again(self) -> None:
        """As a service manager does when it has died; returns when it is ready."""
        assert self.controller.process is not None
        await self.controller.process.wait()
        await self.controller.start()
        await until(self.controller.ready, "the controller is ready again")

    async def mitigate(self) -> dict[str, int]:
        """Learn, and let a neighbour come to s1; the weights in force afterwards."""
        await self.learnt()
        self.neighbour("s1", there=True)
        await self.moved_away_from("s1")
        return await self.settled()

    async def settled(self) -> dict[str, int]:
        """Wait until the weights in force stay the same for some ticks."""
        seen: list[dict[str, int]] = []

        async def same() -> dict[str, int]:
            seen.append(await self.proxy.weights())
            await self.controller.ticks(1)
            alike = len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]
            return seen[-1] if alike else {}

        return dict(await until(same, "weights that stay"))

    @asynccontextmanager
    async def seen_weights(self) -> AsyncIterator[list[dict[str, int]]]:
        """Look at the weights all the time; the list is of those that were in force."""
        seen: list[dict[str, int]] = []

        async def look() -> None:
            while True:
                found = await self.proxy.weights()
                if found not in seen:
                    seen.append(found)
                await asyncio.sleep(0.03)

        async with background(look()):
            yield seen

    @asynccontextmanager
    async def load_stays_away(self) -> AsyncIterator[None]:
        """From s1, which never gets half of its configured share; refined the weights may be."""
        share = CONFIGURED["s1"] / sum(CONFIGURED.values())
        async with self.seen_weights() as seen:
            yield
        assert seen
        for weights in seen:
            assert weights["s1"] < share / 2 * sum(weights.values())

    @asynccontextmanager
    async def weights_stay(self, wanted: dict[str, int]) -> AsyncIterator[None]:
        """None may ever differ."""
        async with self.seen_weights() as seen:
            yield
        assert seen == [wanted]


def said(log: str, pattern: str) -> re.Match[str]:
    """The one line of a log that matches."""
    (found,) = [m for line in log.splitlines() if (m := re.search(pattern, line))]
    return found
