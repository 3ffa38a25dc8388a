"""Bounds on what one request may make the controller hold in memory, and on how many may come.

``Content-Length`` is what a client says, and a chunked body says nothing, so the bytes
are counted as they are read.  They are read when the endpoint asks for them, that is,
after the token was checked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dial.clock import Clock
from dial.errors import IntakeError
from dial.service.errors import answer

BURST_S = 5.0
"""Seconds' worth of requests that may come at once."""

MAX_ADDRESSES = 10_000
"""A million bytes or so of buckets."""


class BodyLimit:
    """ASGI middleware: refuse a body of more than ``limit_bytes`` while it is read.

    Raises :class:`IntakeError` (``too_large``) out of ``receive``, into the endpoint
    that reads.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application with a counted ``receive``."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit_bytes:
                raise IntakeError(
                    "too_large", f"body: more than {self._limit_bytes} bytes are not read", "body"
                )
            return message

        await self._app(scope, counted, send)


class RateLimit:
    """ASGI middleware: so many requests a second from one address, and no more.

    A token bucket an address: it fills at the rate and holds some seconds' worth, so that a page
    that opens is not refused, and one that asks in a loop is.  Addresses beyond the first ten
    thousand push out those that have been quiet the longest, which are full anyway.

    Parameters
    ----------
    app : the application.
    per_s : requests per second; 0 for no limit.
    clock : the time.
    refused : called for each request that is.
    """

    def __init__(
        self, app: ASGIApp, per_s: float, clock: Clock, refused: Callable[[], None]
    ) -> None:
        self._app = app
        self._per_s = per_s
        self._most = max(1.0, per_s * BURST_S)
        self._clock = clock
        self._refused = refused
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, or say 429."""
        client = scope.get("client")
        if scope["type"] != "http" or not self._per_s or client is None or self._take(client[0]):
            await self._app(scope, receive, send)
            return
        self._refused()
        refusal = answer(
            429,
            "too_many_requests",
            f"more than {self._per_s:g} requests a second from {client[0]} (api.rate_per_s)",
            scope["path"],
            {"Retry-After": "1"},
        )
        await refusal(scope, receive, send)

    def _take(self, address: str) -> bool:
        now_s = self._clock.monotonic_s()
        left, then_s = self._buckets.pop(address, (self._most, now_s))
        left = min(self._most, left + (now_s - then_s) * self._per_s)
        allowed = left >= 1.0
        self._buckets[address] = (left - 1.0 if allowed else left, now_s)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return allowed
