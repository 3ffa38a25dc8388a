"""The two places a query log can come from: posts of the plugin, or a followed file.

A source is open when :func:`open_source` returns: what brokers send from then on is not lost for
want of a listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dial.errors import BalancerUnreachable
from dial.logs import FollowedFile
from dial_pinot.listening import Listening
from dial_pinot.options import Options, read_secret

PATH = "/v1/queries"
MAX_BODY_BYTES = 4 * 1024 * 1024
"""Of one post: the plugin's 2,000 lines, of 20 servers each."""

_MAX_CARRY_BYTES = 262_144
"""Of an unfinished line in a file."""


@dataclass(frozen=True, slots=True)
class Broker:
    """What a broker's plugin last said of itself."""

    sender: str
    weights_version: int | None
    """Of the weights in force there; ``None`` while they are even."""
    dropped: int
    """Lines it never delivered, since it started."""


class Sink(Protocol):
    """Who takes what came."""

    def lines(self, lines: list[str]) -> None:
        """Whole lines of the query log."""

    def broker(self, broker: Broker) -> None:
        """A plugin's word of itself."""


class Source(Protocol):
    """An open source."""

    def poll(self) -> None:
        """Take what is there already."""

    async def close(self) -> None:
        """Stop; what has not been read stays unread."""


async def open_source(options: Options, sink: Sink) -> Source:
    """Listen, or begin to follow.

    Raises
    ------
    BalancerUnreachable
        If the address cannot be listened on, naming it.
    SettingError
        If the token cannot be read.
    """
    if options.log_file is not None:
        return _Follower(options.log_file, options.poll_s, sink)
    token = read_secret(options.token_file, "token_file") if options.token_file else None
    host, port = options.listen
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        raise BalancerUnreachable(
            f"log {options.log}: cannot be listened on: {error.strerror or error}"
        ) from error
    return await _Posts.open(listener, sink, token)


class _Post(BaseModel):
    """One post of the plugin; ``docs/wire-formats.md`` has its fields."""

    format: Literal[1]
    sender: Annotated[str, Field(max_length=256)]
    started_ms: int
    dropped: Annotated[int, Field(ge=0)]
    weights_version: int | None
    lines: Annotated[list[str], Field(max_length=10_000)]


class _Posts:
    """Listens for the plugin's posts."""

    def __init__(self, listener: socket.socket, sink: Sink, token: str | None) -> None:
        self._sink = sink
        self._token = token
        app = Starlette(routes=[Route(PATH, self._take, methods=["POST"])])
        self._server = Listening(app, listener)

    @classmethod
    async def open(cls, listener: socket.socket, sink: Sink, token: str | None) -> _Posts:
        self = cls(listener, sink, token)
        await self._server.start()
        return self

    def poll(self) -> None:
        """Posts are taken as they come."""

    async def close(self) -> None:
        await self._server.stop()

    async def _take(self, request: Request) -> Response:
        if self._token is not None:
            given = request.headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
                return Response("wrong token: send 'Authorization: Bearer TOKEN'", 401)
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return Response(f"more than {MAX_BODY_BYTES} bytes", 413)
        except ClientDisconnect:
            return Response(status_code=400)
        try:
            post = _Post.model_validate_json(bytes(body))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in problem["loc"])
            return Response(f"{where or 'body'}: {problem['msg']}", 422)
        self._sink.broker(Broker(post.sender, post.weights_version, post.dropped))
        self._sink.lines(post.lines)
        return Response(status_code=204)


class _Follower:
    """Polls a followed file: inotify would need the directory, and misses network mounts."""

    def __init__(self, path: Path, poll_s: float, sink: Sink) -> None:
        self._file = FollowedFile(path)
        self._sink = sink
        self._carry = b""
        self._task = asyncio.create_task(self._follow(poll_s))

    async def _follow(self, poll_s: float) -> None:
        while True:
            self.poll()
            await asyncio.sleep(poll_s)

    def poll(self) -> None:
        """Read what was appended, a few megabytes at most, so that others get their turn."""
        for _ in range(64):
            try:
                data = self._file.read_new()
            except OSError:
                return  # unreadable for now, as between a rotation and its chown
            if not data:
                return
            *lines, self._carry = (self._carry + data).split(b"\n")
            if len(self._carry) > _MAX_CARRY_BYTES:
                self._carry = b""
            self._sink.lines([line.decode("utf-8", errors="replace") for line in lines])

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._file.close()
