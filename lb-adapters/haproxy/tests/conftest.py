"""The conformance suite's harness, around the fake and around a real HAProxy."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

import dial_haproxy
from dial.conformance.upstream import Upstream
from dial.errors import BalancerError
from dial.ports import free_port
from dial_haproxy.config import (
    FRONTEND,
    HTTPLOG,
    Rules,
    expected_delay,
    snippet,
    socket_line,
)
from dial_haproxy.runtime import RuntimeClient
from dial_haproxy.state import parse_info
from dial_haproxy.testing import FakeHAProxy, FakeServer, send_log

NAMES = ("s1", "s2", "s3")
STARTED_WITHIN_S = 10.0


class FakeHarness:
    """The fake, which spreads requests in turn over what has weight and logs them."""

    def __init__(self, directory: Path, algorithm: str) -> None:
        self.port = free_port()
        self.backends = NAMES
        servers = {name: FakeServer(configured_weight=10) for name in NAMES}
        self.fake = FakeHAProxy(directory / "s", servers=servers, algorithm=algorithm)
        self.adapter = dial_haproxy.create(
            "app",
            {
                "socket": str(self.fake.path),
                "log": f"tcp://127.0.0.1:{self.port}",
                "check_wait_s": 0.0,
            },
        )
        self.is_logging = False

    async def log_ready(self) -> None:
        await self.adapter.log_opened()
        self.is_logging = True

    async def send(self, requests: int) -> None:
        usable = [name for name, server in self.fake.servers.items() if server.in_force]
        now_us = int(time.time() * 1e6)
        lines = []
        for i in range(requests):
            name = usable[i % len(usable)]
            self.fake.servers[name].attempts += 1
            lines.append(f"app,{name},{now_us - 700},{now_us},0,0,1,1,200,----,0,0,-\n")
        if self.is_logging:
            await send_log("127.0.0.1", self.port, "".join(lines).encode())

    async def garble(self, lines: int) -> None:
        await send_log("127.0.0.1", self.port, b"no line of ours\n" * lines)

    async def restart(self) -> None:
        self.fake.reload()

    async def stop(self) -> None:
        await self.fake.stop()


async def is_alone(master: Path) -> bool:
    """Whether a master answers, and no worker of before a reload is left."""
    reader, writer = await asyncio.open_unix_connection(master)
    try:
        writer.write(b"show proc\n")
        writer.write_eof()
        listed = await reader.read()
    finally:
        writer.close()
    return b"# workers" in listed and b"# old workers" not in listed


class RealHarness:
    """A real HAProxy on free ports with three tiny backends in this process."""

    def __init__(
        self,
        directory: Path,
        balance: str,
        log: str,
        reloads: bool,
        frontend: str,
        config: Callable[[RealHarness], str],
        by_delay: bool,
    ) -> None:
        self.backends = NAMES
        self.directory = directory
        self.reloads = reloads
        self.port = free_port()
        self.runtime = directory / "s"
        self.master = directory / "m"
        self.log = {
            "tcp": f"tcp://127.0.0.1:{free_port()}",
            "syslog": f"syslog://127.0.0.1:{free_port(socket.SOCK_DGRAM)}",
            "unixgram": f"unixgram:{directory / 'log'}",
        }[log]
        self.adapter = dial_haproxy.create(
            "app", {"socket": str(self.runtime), "log": self.log, "check_wait_s": 0.3}
        )
        self.client = RuntimeClient(self.adapter.options.socket, 5.0)
        self.frontend = frontend
        self.balance = balance
        self.rules = expected_delay("app", NAMES, balance=balance) if by_delay else Rules((), ())
        self.write_config = config
        self.process: asyncio.subprocess.Process | None = None
        self.members = [Upstream() for _ in NAMES]
        self.member_ports: list[int] = []

    def config(self) -> str:
        log = self.adapter.options.log
        ring, frontend = "", f"    log {log.path or f'{log.host}:{log.port}'} local0\n{HTTPLOG}"
        if log.scheme == "tcp":
            ring = snippet(log_port=log.port).section
            frontend = FRONTEND
        servers = "".join(
            f"    server {name} 127.0.0.1:{port} weight 10\n"
            for name, port in zip(NAMES, self.member_ports, strict=True)
        )
        in_global, in_backend = (
            "".join(f"    {statement}\n" for statement in statements)
            for statements in (self.rules.in_global, self.rules.in_backend)
        )
        return f"""
global
{socket_line(str(self.runtime))}{in_global}{ring}
defaults
    mode http
    timeout connect 1s
    timeout client 5s
    timeout server 5s
frontend {self.frontend}
    bind 127.0.0.1:{self.port}
{frontend}    default_backend app
backend app
    balance {self.balance}
{in_backend}{servers}
"""

    async def start(self) -> None:
        self.member_ports = [await member.start() for member in self.members]
        (self.directory / "haproxy.cfg").write_text(self.write_config(self))
        await self._spawn()

    async def _spawn(self) -> None:
        mode = ["-W", "-S", str(self.master)] if self.reloads else ["-db"]
        with (self.directory / "stderr").open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                "haproxy", *mode, "-f", str(self.directory / "haproxy.cfg"), stderr=errors
            )
        await self._until_epoch_is_not(None)
        if self.reloads:
            # A signal before the master's own loop runs would be lost.
            await self._until(lambda: is_alone(self.master))

    async def _until_epoch_is_not(self, old: str | None) -> None:
        async def look() -> bool:
            return await self.epoch() != old

        await self._until(look)

    async def _until(self, look: Callable[[], Awaitable[object]]) -> None:
        """Poll, for HAProxy has no way to say that it is ready."""
        assert self.process is not None
        error: Exception | None = None
        give_up = time.monotonic() + STARTED_WITHIN_S
        while time.monotonic() < give_up and self.process.returncode is None:
            try:
                if await asyncio.wait_for(look(), give_up - time.monotonic()):
                    return
            except (BalancerError, OSError, TimeoutError) as caught:
                error = caught
            await asyncio.sleep(0.01)
        state = f"ended with {self.process.returncode}"
        if self.process.returncode is None:
            state = f"not ready after {STARTED_WITHIN_S:g} s (last: {error})"
        said = (self.directory / "stderr").read_text()
        raise AssertionError(f"HAProxy {state} and said: {said}")

    async def epoch(self) -> str:
        (text,) = await self.client.ask(("show info",))
        return parse_info(text).epoch

    async def log_ready(self) -> None:
        await self.adapter.log_opened()

    async def get(self, path: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        response = await reader.read()
        writer.close()
        await writer.wait_closed()
        return int(response.split()[1])

    async def send(self, requests: int) -> None:
        for _ in range(requests):
            assert await self.get("/") == 200

    async def garble(self, lines: int) -> None:
        log = self.adapter.options.log
        if log.scheme == "tcp":
            await send_log(log.host, log.port, b"app,s1,nonsense\n" * lines)
            return
        family = socket.AF_UNIX if log.path else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            for _ in range(lines):
                sender.sendto(b"<134>nonsense", log.path or (log.host, log.port))

    async def restart(self) -> None:
        assert self.process is not None
        if self.reloads:
            before = await self.epoch()
            self.process.send_signal(signal.SIGUSR2)
            await self._until_epoch_is_not(before)
            # Until it has heard that it is to end the old worker takes requests as well, and a
            # ring hands on none that a worker logs from then on.
            await self._until(lambda: is_alone(self.master))
        else:
            await self.stop()
            await self._spawn()

    async def stop(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            await self.process.wait()
            self.process = None

    async def close(self) -> None:
        await self.adapter.aclose()
        await self.stop()
        for member in self.members:
            await member.close()


@pytest.fixture
def directory():
    """Short, unlike tmp_path: a unix socket's path has room for 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dial-") as name:
        yield Path(name)


@pytest.fixture
def haproxy_check() -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """What HAProxy itself says of a configuration file."""

    def run(path: Path) -> subprocess.CompletedProcess[str]:
        if shutil.which("haproxy") is None:
            pytest.skip("no haproxy program here: install HAProxy 2.4 or newer")
        command = ["haproxy", "-c", "-f", str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    return run


@pytest.fixture
def fake_harness(
    directory: Path,
) -> Callable[..., AbstractAsyncContextManager[FakeHarness]]:
    @asynccontextmanager
    async def make(algorithm: str = "roundrobin") -> AsyncIterator[FakeHarness]:
        harness = FakeHarness(directory, algorithm)
        await harness.fake.start()
        try:
            yield harness
        finally:
            await harness.adapter.aclose()
            await harness.fake.stop()

    return make


@pytest.fixture
def real_harness(
    directory: Path,
) -> Callable[..., AbstractAsyncContextManager[RealHarness]]:
    @asynccontextmanager
    async def make(
        balance: str = "roundrobin",
        log: str = "tcp",
        *,
        reloads: bool = False,
        frontend: str = "fe",
        config: Callable[[RealHarness], str] = RealHarness.config,
        by_delay: bool = False,
    ) -> AsyncIterator[RealHarness]:
        if shutil.which("haproxy") is None:
            pytest.skip("no haproxy program here: install HAProxy 2.4 or newer")
        harness = RealHarness(directory, balance, log, reloads, frontend, config, by_delay)
        try:
            await harness.start()
            yield harness
        finally:
            await harness.close()

    return make
