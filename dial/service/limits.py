"""A bound on what one request may make the controller hold in memory.

``Content-Length`` is what a client says, and a chunked body says nothing, so the bytes
are counted as they are read.  They are read when the endpoint asks for them, that is,
after the token was checked.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dial.errors import IntakeError


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
