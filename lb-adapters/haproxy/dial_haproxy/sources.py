"""The four places a log can come from; each feeds parsers and hands batches on.

A source is open when :func:`open_source` returns: what HAProxy sends from then on is not
lost for want of a listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import cast

from dial.errors import BalancerUnreachable
from dial.logs import FollowedFile, Follower, Sink, Source
from dial_haproxy.options import Address, Options
from dial_haproxy.parser import LogParser

NewParser = Callable[[], LogParser]

CHUNK_BYTES = 65_536
STREAM_BYTES = 1024 * 1024
"""Taken of a stream at once: many lines are read far faster together."""

FEW_BYTES = 65_536
GATHER_S = 0.1
"""After a piece of so few bytes, wait so long for more: at 5,000 requests a second HAProxy sends a
line at a time, and a turn of the event loop for each would cost more than reading them.  Of the
hundred lines of 20 ms most of the cost is still that of numpy's calls."""

MAX_CONNECTIONS = 64
"""One for each HAProxy process that lives: a few during reloads."""

RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
"""Asked of the kernel for datagrams, which are lost when it is full (it may grant less)."""

DATAGRAMS_PER_TURN = 512
"""Then others get their turn on the event loop: about 2 ms of parsing."""


async def open_source(options: Options, new_parser: NewParser, sink: Sink) -> Source:
    """Listen, or begin to follow.

    Raises
    ------
    BalancerUnreachable
        If the address cannot be listened on, naming it.
    """
    address = options.log
    try:
        match address.scheme:
            case "tcp":
                return await _Stream.open(address, new_parser, sink)
            case "file":
                return _follow(address, options.poll_s, new_parser(), sink)
            case _:
                return _Datagrams(address, new_parser(), sink)
    except OSError as error:
        raise BalancerUnreachable(
            f"log {address}: cannot be opened: {error.strerror or error}"
        ) from error


def _follow(address: Address, poll_s: float, parser: LogParser, sink: Sink) -> Follower:
    file = FollowedFile(Path(address.path))
    return Follower(file, poll_s, lambda data: sink(parser.feed(data)))


class _Stream:
    """TCP listener; each connection is a stream of lines of its own.

    Old and new process both send during a reload, so more than one is usual.
    """

    def __init__(self, new_parser: NewParser, sink: Sink) -> None:
        self._new_parser = new_parser
        self._sink = sink
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None

    @classmethod
    async def open(cls, address: Address, new_parser: NewParser, sink: Sink) -> _Stream:
        self = cls(new_parser, sink)
        self._server = await asyncio.start_server(
            self._serve, address.host, address.port, limit=STREAM_BYTES
        )
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._serving[writer] = asyncio.current_task()
        parser = self._new_parser()
        transport = cast("asyncio.Transport", writer.transport)
        try:
            while data := await reader.read(STREAM_BYTES):
                self._sink(parser.feed(data))
                if len(data) < FEW_BYTES:
                    # Else the event loop would take each line as it comes, whoever reads.
                    transport.pause_reading()
                    await asyncio.sleep(GATHER_S)
                    transport.resume_reading()
        except OSError:
            pass  # A process that was killed resets its connection; the next one connects anew.
        finally:
            self._sink(parser.finish())
            self._serving.pop(writer, None)
            writer.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            tasks = [task for task in self._serving.values() if task is not None]
            for writer in self._serving:
                writer.transport.abort()
            await asyncio.gather(*tasks)
            await self._server.wait_closed()


class _Datagrams:
    """UDP or unix datagram socket; one line each.

    Not an asyncio transport: that hands over one datagram a turn, and so one row a batch.
    """

    def __init__(self, address: Address, parser: LogParser, sink: Sink) -> None:
        self._parser = parser
        self._sink = sink
        self._path = Path(address.path) if address.path else None
        self._socket = _datagram_socket(address)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._readable)

    def _readable(self) -> None:
        lines: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(lines) < DATAGRAMS_PER_TURN:
                lines.append(self._socket.recv(CHUNK_BYTES))
        lines.append(b"")
        self._sink(self._parser.feed(b"\n".join(lines)))

    async def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _datagram_socket(address: Address) -> socket.socket:
    if address.path:
        _remove_stale_socket(Path(address.path))
        family, where = socket.AF_UNIX, address.path
    else:
        family, _, _, _, where = socket.getaddrinfo(  # type: ignore[assignment]
            address.host, address.port, type=socket.SOCK_DGRAM
        )[0]
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        made.bind(where)
        if address.path:
            # HAProxy writes as its own user: by the group, never by everybody.
            Path(address.path).chmod(0o660)
    except OSError:
        made.close()
        raise
    return made


def _remove_stale_socket(path: Path) -> None:
    """Remove what a crash left behind, but neither another's file nor a socket in use."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, "another program listens on it")
