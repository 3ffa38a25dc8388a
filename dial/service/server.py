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
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp

from dial.errors import SettingError
from dial.service.token import require_owner_only
from dial.settings import ApiSettings

SHUTDOWN_S = 2
"""Seconds that requests in flight are given at the end.

Every answer takes milliseconds, and those that wait for weights are given when the controller ends.
"""

_EACH_SECOND = 0
"""The tick at which uvicorn writes the date anew that answers are sent with."""


class _GuestServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        """Wait for the end, with a look at the date once a second.

        uvicorn's own looks ten times a second for what a signal handler may have set.
        """
        while not await self.on_tick(_EACH_SECOND):
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._stopping.wait()

    def stop(self) -> None:
        """End, once the answers that are under way are given."""
        self.should_exit = True
        self._stopping.set()


@asynccontextmanager
async def serve(app: ASGIApp, api: ApiSettings) -> AsyncIterator[int]:
    """Serve ``app`` while the context is open; yields the port that is listened on.

    Raises
    ------
    SettingError
        If the address cannot be bound, or the certificates cannot be used.
    """
    context = tls_context(api)
    listener = _bind(api)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_context_factory=(lambda *_: context) if context else None,
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
        server.stop()
        await serving
        listener.close()


def tls_context(api: ApiSettings) -> ssl.SSLContext | None:
    """TLS 1.2 or newer as configured, or ``None`` for none.

    Raises
    ------
    SettingError
        If a file cannot be read or used, or if others than its owner can read the key.
    """
    if api.tls_cert is None or api.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = f"api.tls_key = {str(api.tls_key)!r}"
    try:
        require_owner_only(api.tls_key.stat().st_mode, api.tls_key, where)
        where = f"api.tls_cert = {str(api.tls_cert)!r}, {where}"
        # Without a password given here OpenSSL would ask for it at the terminal.
        context.load_cert_chain(api.tls_cert, api.tls_key, password=lambda: "")
        if api.tls_client_ca is not None:
            where = f"api.tls_client_ca = {str(api.tls_client_ca)!r}"
            context.load_verify_locations(api.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise SettingError(
            f"{where}: {error.strerror or error}; want PEM files, the key without a password"
        ) from error
    return context


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
