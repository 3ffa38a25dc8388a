"""What the product is put in front of: an application of three members, behind HAProxy."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dial_haproxy.config import Rules, expected_delay, snippet
from dial_haproxy.options import Address
from dial_haproxy.runtime import RuntimeClient
from dial_haproxy.state import parse_servers

CONFIGURED = {"s1": 100, "s2": 100, "s3": 50}
"""Weights in haproxy.cfg: uneven, so that putting them back is not the same as evening out."""

QUIET_S = 0.03
WITHIN_S = 20.0
"""For anything that is awaited: far more than it takes, so that a busy machine passes too."""


async def until(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Poll until ``look`` finds something, and return that."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while not (found := await look()):  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"not within {WITHIN_S:g} s: {what}") from None
    return found


def log_address() -> tuple[str, int]:
    """A free port on 127.x.y.z, made of this process's id: nobody else asks there."""
    pid = os.getpid()
    host = f"127.{1 + pid // 65536 % 254}.{pid // 256 % 256}.{pid % 256}"
    with socket.create_server((host, 0)) as probe:
        return host, int(probe.getsockname()[1])


class Member:
    """One server of the application: answers every request after ``delay_s``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.delay_s = QUIET_S
        self._serving: set[asyncio.Task[None] | None] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            await self.answer(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._serving.discard(asyncio.current_task())

    async def answer(self, head: bytes) -> None:
        """Take the time that a request takes."""
        await asyncio.sleep(self.delay_s)

    async def close(self) -> None:
        self._server.close()
        await asyncio.gather(*(task for task in self._serving if task))
        await self._server.wait_closed()


class Proxy:
    """HAProxy in front of the members, with the lines that the adapter asks for."""

    mode: tuple[str, ...] = ("-db",)

    def __init__(
        self, directory: Path, members: dict[str, Member], *, by_delay: bool = False
    ) -> None:
        self.directory = directory
        self.members = members
        self.runtime = directory / "haproxy.sock"
        self.log_host, self.log_port = log_address()
        self.rules = Rules((), ())
        if by_delay:
            self.rules = expected_delay("app", list(members), balance="roundrobin")
        self._client = RuntimeClient(Address("unix", path=str(self.runtime)), 5.0)
        self._process: asyncio.subprocess.Process | None = None

    def config(self, service: str = "app") -> str:
        lines = snippet(str(self.runtime), self.log_host, self.log_port)
        servers = "".join(
            f"    server {name} unix@{member.path} weight {CONFIGURED[name]}\n"
            for name, member in self.members.items()
        )
        in_global, in_backend = (
            "".join(f"    {statement}\n" for statement in statements)
            for statements in (self.rules.in_global, self.rules.in_backend)
        )
        return f"""
global
{lines.in_global}{in_global}
{lines.section}
defaults
    mode http
    timeout connect 1s
    timeout client 5s
    timeout server 5s
frontend fe
    bind unix@{self.directory}/fe
{lines.in_frontend}    default_backend {service}
backend {service}
    balance roundrobin
{in_backend}{servers}"""

    async def start(self, config: str | None = None) -> None:
        """Start a process; returns when it takes requests."""
        file = self.directory / "haproxy.cfg"
        file.write_text(config or self.config())
        with (self.directory / "haproxy.err").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                "haproxy", *self.mode, "-f", str(file), stderr=errors
            )

        async def serving() -> bool:
            assert self._process is not None
            said = (self.directory / "haproxy.err").read_text()
            assert self._process.returncode is None, f"HAProxy ended: {said}"
            return await self.get()

        await until(serving, "HAProxy takes requests")

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def weights(self) -> dict[str, int]:
        """In force, as HAProxy itself says."""
        (text,) = await self._client.ask(("show servers state app",))
        return {name: server.weight for name, server in parse_servers(text, "app").items()}

    async def get(self) -> bool:
        """Send one request; whether it was answered 200."""
        try:
            reader, writer = await asyncio.open_unix_connection(self.directory / "fe")
        except OSError:
            return False
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n")
            return b" 200 " in await reader.read()
        except OSError:
            return False
        finally:
            writer.close()
