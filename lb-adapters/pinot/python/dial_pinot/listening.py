"""An HTTP server inside somebody else's event loop, on a socket that is bound already."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


class _Guest(uvicorn.Server):
    """Leaves signals to whoever runs the event loop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class Listening:
    """Serves ``app`` between :meth:`start` and :meth:`stop`."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Guest(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once requests are answered."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        await self._server.listening.wait()

    async def stop(self) -> None:
        """Answer what is in flight, and close the socket."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._listener.close()
