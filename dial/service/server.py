"""Serving inside the controller's own event loop.

One process, one loop: a snapshot is published by assignment, and no lock is needed
between the tick and a reader.  uvicorn is made a guest: it installs no signal handlers
(stopping is the controller's business), does not log in a format of its own, and gets a
socket that is bound already, because its own way of reporting a port in use is to end
the process.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from dial.errors import SettingError
from dial.settings import ApiSettings

SHUTDOWN_S = 2
"""Seconds that requests in flight are given at the end.

Every answer takes milliseconds, and those that wait for weights are given when the controller ends.
"""


class _GuestServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def serve(app: ASGIApp, api: ApiSettings) -> AsyncIterator[int]:
    """Serve ``app`` while the context is open; yields the port that is listened on.

    Raises
    ------
    SettingError
        If the address cannot be bound.
    """
    listener = _bind(api)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = _GuestServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    started = asyncio.create_task(server.listening.wait())
    try:
        await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            raise RuntimeError("the HTTP server ended while it started")
        yield listener.getsockname()[1]
    finally:
        started.cancel()
        server.should_exit = True
        await serving
        listener.close()


def _bind(api: ApiSettings) -> socket.socket:
    where = f"api.host = {api.host!r}, api.port = {api.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(
            api.host, api.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise SettingError(
            f"{where}: cannot listen there: {error.strerror}; "
            "choose another address or end what listens on it"
        ) from error
