"""The four places a log can come from; each feeds parsers and hands batches on.

A source is open when :func:`open_source` returns: what HAProxy sends from then on is not
lost for want of a listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dial.errors import BalancerUnreachable
from dial.logs import FollowedFile, Follower, Sink, Source
from dial_haproxy.options import Address, Options
from dial_haproxy.parser import LogParser

NewParser = Callable[[], LogParser]

CHUNK_BYTES = 65_536
STREAM_BYTES = 1024 * 1024
"""Taken of a stream at once: many lines are read far faster together."""

FEW_BYTES = 65_536
GATHER_S = 0.2
"""After a piece of so few bytes, wait so long for more, unless somebody asks: at 5,000 requests a
second HAProxy sends a line at a time, and a turn of the event loop for each would cost more than
reading them.  Of the hundred lines of 20 ms most of the cost is still that of numpy's calls; at 200
requests a second that of each turn, about 0.4 ms.  Who looks at the windows asks (``take``)."""

MAX_CONNECTIONS = 64
"""One for each HAProxy process that lives: a few during reloads."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_S = 1.0
"""Without a descriptor for a connection, when to accept it (asyncio's own servers do the same)."""

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
                return _Stream(address, new_parser, sink)
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

    Old and new process both send during a reload, so more than one is usual.  Not asyncio's
    streams: those wake up a task for each piece that comes, and the lines of :data:`GATHER_S` are
    better read in one turn of the event loop.
    """

    def __init__(self, address: Address, new_parser: NewParser, sink: Sink) -> None:
        self._new_parser = new_parser
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._connections: set[_Connection] = set()
        self._listeners = _listeners(address)
        self._later: deque[asyncio.TimerHandle] = deque(maxlen=len(self._listeners))
        for listener in self._listeners:
            self._listen(listener)

    def _listen(self, listener: socket.socket) -> None:
        self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                # It is still there, and the event loop would ask again at once.
                self._loop.remove_reader(listener)
                self._later.append(self._loop.call_later(_RETRY_S, self._listen, listener))
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            accepted.close()
            return
        accepted.setblocking(False)
        parser = self._new_parser()
        self._connections.add(_Connection(accepted, parser, self._sink, self._connections.discard))

    def take(self) -> None:
        """Read what has come and would wait for more."""
        for connection in tuple(self._connections):
            connection.read()

    async def close(self) -> None:
        for waiting in self._later:
            waiting.cancel()
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for connection in tuple(self._connections):
            connection.close()


class _Connection:
    """One stream of lines: read when something comes, and then once every :data:`GATHER_S`."""

    def __init__(
        self,
        connected: socket.socket,
        parser: LogParser,
        sink: Sink,
        closed: Callable[[_Connection], None],
    ) -> None:
        self._socket = connected
        self._parser = parser
        self._sink = sink
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._wait_for_more()

    def read(self) -> None:
        """Read what there is, and see to it that the rest is read as well."""
        try:
            data = self._socket.recv(STREAM_BYTES)
        except BlockingIOError:
            self._wait_for_more()
            return
        except OSError:
            data = b""  # A process that was killed resets its connection; the next connects anew.
        if not data:
            self.close()
            return
        self._rest()
        self._again = self._loop.call_later(GATHER_S * (len(data) < FEW_BYTES), self.read)
        self._sink(self._parser.feed(data))

    def close(self) -> None:
        self._rest()
        self._socket.close()
        self._closed(self)
        self._sink(self._parser.finish())

    def _wait_for_more(self) -> None:
        self._rest()
        self._loop.add_reader(self._socket, self.read)

    def _rest(self) -> None:
        self._loop.remove_reader(self._socket)
        if self._again is not None:
            self._again.cancel()


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


def _listeners(address: Address) -> list[socket.socket]:
    """One for each address of the name, as of ``localhost``, which has two."""
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    try:
        for family, where in dict.fromkeys((family, where) for family, _, _, _, where in found):
            try:
                listener = socket.create_server(where[:2], family=family, backlog=100)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    continue  # A host without IPv6 may have a name for it none the less.
                raise
            listener.setblocking(False)
            listeners.append(listener)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    if not listeners:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return listeners


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
