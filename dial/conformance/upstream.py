"""Servers for a real balancer to balance, in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Upstream:
    """An HTTP server: 200 to /, other statuses by path (/503), a broken connection to /drop.

    Parameters
    ----------
    delay_s
        How long each answer takes.
    on_request
        Called when a request has come.
    """

    def __init__(self, delay_s: float = 0.0, on_request: Callable[[], None] = lambda: None) -> None:
        self.delay_s = delay_s
        self._on_request = on_request
        self.port = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen on a port of 127.0.0.1; returns it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler runs in a task
        self._tasks.add(task)
        self._serving.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                self._on_request()
                path = head.split()[1].decode()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if path == "/drop":
                    break
                status = path[1:] if path[1:].isdecimal() else "200"
                writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nok".encode())
                await writer.drain()
        self._serving.discard(writer)
        self._tasks.discard(task)
        writer.close()

    async def close(self) -> None:
        """Stop listening, and break what is open."""
        if self._server is None:
            return
        self._server.close()
        for writer in self._serving:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)
        await self._server.wait_closed()
        self._server = None
