"""From bytes of HAProxy's log to columns of finished requests.

A pure class: bytes in, :class:`~dial.adapter.RequestBatch` out, no clock and no I/O.  It
takes the stream in whatever pieces the network cuts it into and carries an unfinished line
over.  Two formats (:mod:`dial_haproxy.config` has the first one's text):

``dial``
    ``app,s1,1795211945545012,1795211945546393,0,0,1,1,200,----,0,0,-``: backend, server,
    microseconds at the request and at the answer, TR, Tc, Tr, Ta in ms, status, termination
    state, connections, retries, route.  A syslog header before it is skipped.
``httplog``
    ``... [20/Nov/2026:22:14:15.978] fe app/s1 0/0/0/5/6 200 51 - - ---- 1/1/0/0/0 0/0 ...``:
    HAProxy's standard (configuration manual, 8.2.3), whole milliseconds.  The text after the
    fields that are read may be cut off, as UDP syslog does with long URLs.

What is made of the fields:

- *Latency* runs from the moment HAProxy holds the request to the last byte of the answer
  (``total``, Ta - TR), for a neighbour on the network slows the answer's body, not its first byte.
  Ta is whole milliseconds, cut off, so the microseconds to the first byte stand where they
  are more.  Up to the first byte it runs (``first-byte``: answer minus request, or
  Tw + Tc + Tr) where the caller says so, and where the client broke off, for the rest of the
  time was the client's.  Where HAProxy says that no server answered (Tr = -1) it is NaN,
  whatever time its own error page took.
- A *redispatched* request ("+" before the retries) waited for another server than the one
  that is named; its times are NaN rather than blamed on the wrong one.
- *Connect time* 0 ms is a reused connection nearly always and the log does not say: NaN,
  unless the caller knows that every connection is new.
- *Failed* is a termination state that begins with S, s (server aborted, timed out) or D
  (server found dead), or an answer 5xx; but not where the client went away first (C, c),
  for HAProxy then logs a 503 of its own while connecting.
- A *malformed* line is counted and changes nothing else.  A line longer than any real one
  is dropped as it comes in, so that an endless one costs no memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dial.adapter import RequestBatch
from dial_haproxy.columns import (
    LEAST_LINES,
    MAX_NAME_BYTES,
    PADDING,
    Buffer,
    Columns,
    Names,
    Seconds,
    compact,
    httplog,
)
from dial_haproxy.options import LatencyEnd, LogFormat

MAX_LINE_BYTES: Final = 16_384
"""HAProxy's largest log line is tune.http.logurilen plus a little: 1 to 2 kB by default."""

_FEW_BYTES: Final = 65_536
"""Of a piece of log: in a larger one lines need not be counted to know that there are many."""

_PADDING: Final = bytes(PADDING)
_A_NAME: Final = rb"[^ ,/]{1,%d}" % MAX_NAME_BYTES

NAN: Final = float("nan")

# A timer in ms: at most 10 digits (24 days fit in 31 bits), -1 for "did not get there".
_COMPACT: Final = re.compile(
    rb"(?:[^,]* )?"  # syslog header
    rb"(?P<pool>[^ ,]+),(?P<server>[^ ,]+),(?P<t0>\d{16}|-),(?P<t1>\d{16}|-),"
    rb"(?P<TR>-?\d{1,10}),(?P<Tc>-?\d{1,10}),(?P<Tr>-?\d{1,10}),\+?(?P<Ta>-?\d{1,10}),"
    rb"(?P<status>-?\d{1,3}),(?P<state>[^,]{4}),\d+,(?P<retries>\+?\d+)"
    rb"(?:,(?P<route>.*))?"
)
_HTTPLOG: Final = re.compile(
    rb"\[(?P<second>\d\d/[A-Z][a-z]{2}/20\d\d:\d\d:\d\d:\d\d)\.(?P<ms>\d{3})\] "
    rb"\S+ (?P<pool>[^ /]+)/(?P<server>\S+) "
    rb"(?P<TR>-?\d{1,10})/(?P<Tw>-?\d{1,10})/(?P<Tc>-?\d{1,10})/(?P<Tr>-?\d{1,10})/"
    rb"\+?(?P<Ta>-?\d{1,10}) (?P<status>-?\d{1,3}) \+?\d+ \S+ \S+ (?P<state>\S{4}) "
    rb"\d+/\d+/\d+/\d+/(?P<retries>\+?\d+) "
)
_SECOND: Final = re.compile(rb"\d\d/[A-Z][a-z]{2}/20\d\d:\d\d:\d\d:\d\d")
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1
    )
}
_CLIENT_BROKE_OFF: Final = b"Cc"
_SERVER_BROKE_OFF: Final = b"SsD"
_CLIENTS, _SERVERS = (
    np.isin(np.arange(256), np.frombuffer(letters, np.uint8))
    for letters in (_CLIENT_BROKE_OFF, _SERVER_BROKE_OFF)
)
_NO_SERVER: Final = (b"<NOSRV>", b"<STATS>")


class _Row(NamedTuple):
    server: bytes
    end_s: float
    latency_ms: float
    connect_ms: float
    failed: bool
    route: str


class LogParser:
    r"""Reads one stream of log lines; a stream of its own needs a parser of its own.

    Parameters
    ----------
    service
        Backend whose requests are wanted; others are counted as unattributed.
    log_format
        ``dial`` or ``httplog``.
    new_connections
        Whether a connect time of 0 ms is a measurement (every connection is new).
    zone
        Time zone of an httplog's dates, ``None`` for this computer's own.  In the hour that
        is repeated when summer time ends they are ambiguous; the first is assumed.
    until
        Where a latency ends.
    compiled
        Whether :mod:`dial_haproxy.compiled` reads what is ordinary.
    on_malformed
        Shown the first malformed line of the stream; how many there are, the batches say.

    Examples
    --------
    >>> parser = LogParser("app", "dial")
    >>> len(parser.feed(b"app,s1,1795211945545012,1795211945546"))
    0
    >>> batch = parser.feed(b"393,0,0,1,1,200,----,0,0,-\n")
    >>> batch.names, batch.latency_ms.tolist(), batch.end_s.tolist()
    (('s1',), [1.381], [1795211945.546393])
    """

    def __init__(
        self,
        service: str,
        log_format: LogFormat,
        *,
        new_connections: bool = False,
        until: LatencyEnd = "total",
        compiled: bool = False,
        zone: tzinfo | None = None,
        on_malformed: Callable[[bytes], None] | None = None,
    ) -> None:
        self._pool = service.encode()
        self._is_compact = log_format == "dial"
        self._match = _COMPACT.fullmatch if self._is_compact else _HTTPLOG.search
        self._row = self._compact if self._is_compact else self._httplog
        self._servers, self._routes = Names(), Names()
        self._dates = Seconds(
            lambda text: self._second_s(text) if _SECOND.fullmatch(text) else None
        )
        # A name that no line can hold would be found in lines that hold something else.
        self._has_columns = re.fullmatch(_A_NAME, self._pool) is not None
        self._new_connections = new_connections
        self._until = until
        self._zone = zone
        self._compiled = _compiled() if compiled else None
        self._on_malformed = on_malformed
        self._carry = b""
        self._in_overlong_line = False
        self._seconds: dict[bytes, float] = {}

    def feed(self, data: bytes) -> RequestBatch:
        """Parse what became complete with ``data``; never raises."""
        data = b"".join((self._carry, data, _PADDING))
        whole = data.rfind(b"\n") + 1
        self._carry = data[whole:-PADDING]
        parts = _Parts()
        if self._in_overlong_line and whole:
            self._in_overlong_line = False
            begin = data.index(b"\n") + 1
        else:
            begin = 0
        if whole > begin:
            self._read(memoryview(data)[begin:], whole - begin, parts)
        if len(self._carry) > MAX_LINE_BYTES:
            if not self._in_overlong_line:
                parts.malformed += self._malformed(self._carry)
            self._in_overlong_line = True
            self._carry = b""
        return parts.batch(self._servers)

    def _read(self, data: memoryview, size: int, parts: _Parts) -> None:
        """Read whole lines: those that are ordinary in columns, the others one at a time."""
        if size < _FEW_BYTES or not self._has_columns:
            text = bytes(data[:size])
            if not self._has_columns or text.count(b"\n") < LEAST_LINES:
                self._read_lines(enumerate(text[:-1].split(b"\n")), parts)
                return
        columns, others = self._ordinary(data, size)
        parts.columns, parts.column_lines = self._judged_columns(columns), columns.line
        numbered = zip(*others.tolist(), strict=True)
        self._read_lines(((number, bytes(data[a:b])) for number, a, b in numbered), parts)

    def _ordinary(self, data: memoryview, size: int) -> tuple[Columns, NDArray[np.int64]]:
        """The ordinary lines, and (3, k) number, start and end of each of the others."""
        if self._compiled is not None:
            found: tuple[Columns, NDArray[np.int64]] | None = (
                self._compiled.compact(data, size, self._pool, self._servers, self._routes)
                if self._is_compact
                else self._compiled.httplog(data, size, self._pool, self._servers, self._dates)
            )
            if found is not None:
                return found
        buffer = Buffer(data, size)
        columns = (
            compact(buffer, self._pool, self._servers, self._routes)
            if self._is_compact
            else httplog(buffer, self._pool, self._servers, self._dates)
        )
        others = np.ones(buffer.ends.size, np.bool_)
        others[columns.line] = False
        numbers = np.flatnonzero(others)
        return columns, np.array([numbers, buffer.starts[numbers], buffer.ends[numbers]])

    def _read_lines(self, lines: Iterable[tuple[int, bytes]], parts: _Parts) -> None:
        for number, line in lines:
            # Measured with its "\r", as it is while it comes in: where it is cut must not matter.
            is_overlong = len(line) > MAX_LINE_BYTES
            line = line.removesuffix(b"\r")  # noqa: PLW2901 - the same line, its ending cut off
            if not line:
                continue
            found = None if is_overlong else self._match(line)
            if found is None:
                parts.malformed += self._malformed(line)
            elif found["pool"] != self._pool or found["server"] in _NO_SERVER:
                parts.unattributed += 1
            else:
                row = self._row(found)
                if row is None:
                    parts.malformed += self._malformed(line)
                else:
                    self._servers.place(row.server)
                    if self._is_compact:
                        self._routes.place(found["route"] or b"")
                    parts.lines.append(number)
                    parts.rows.append(row)

    def _judged_columns(self, columns: Columns) -> RequestBatch:
        """What :meth:`_judged` and its like say of a row, of all ordinary lines."""
        client_broke_off = _CLIENTS[columns.state]
        latency_ms = columns.first_byte_ms
        if self._until == "total":
            to_last_byte_ms = columns.total_ms - columns.received_ms
            longer = ~client_broke_off & (to_last_byte_ms > latency_ms)
            latency_ms = np.where(longer, to_last_byte_ms, latency_ms)
        connect_ms = columns.connect_ms
        if not self._new_connections:
            connect_ms = np.where(connect_ms == 0.0, NAN, connect_ms)
        failed = _SERVERS[columns.state] | ((columns.status >= 500) & ~client_broke_off)
        seen = np.flatnonzero(np.bincount(columns.route + 1)[1:]).tolist()
        texts = {route: _text(self._routes.names[route]) for route in seen}
        return RequestBatch(
            names=(),
            backend=columns.server.astype(np.int32),
            end_s=columns.end_s,
            latency_ms=latency_ms,
            connect_ms=connect_ms,
            failed=failed,
            route=tuple(texts[i] for i in columns.route.tolist()) if any(texts.values()) else None,
        )

    def finish(self) -> RequestBatch:
        """End of the stream: an unfinished line is malformed, whatever it looks like.

        A line cut off inside its last field would read well, and wrong.  One that was too
        long has been counted.
        """
        is_new = self._carry and not self._in_overlong_line
        malformed = self._malformed(self._carry) if is_new else 0
        self._carry = b""
        self._in_overlong_line = False
        return _Parts(malformed=malformed).batch(self._servers)

    def _malformed(self, line: bytes) -> int:
        """One more; the first one is shown."""
        if self._on_malformed is not None:
            self._on_malformed(line)
            self._on_malformed = None
        return 1

    def _compact(self, found: re.Match[bytes]) -> _Row | None:
        t0, t1 = found["t0"], found["t1"]
        if t1 != b"-":
            end_s = int(t1) / 1e6
        elif t0 != b"-":
            end_s = int(t0) / 1e6 + max(0, int(found["Ta"])) / 1e3
        else:
            return None
        latency_ms = NAN
        if t0 != b"-" and t1 != b"-" and int(t1) >= int(t0):
            latency_ms = self._latency_ms(found, (int(t1) - int(t0)) / 1e3)
        return self._judged(found, end_s, latency_ms, found["route"] or b"")

    def _httplog(self, found: re.Match[bytes]) -> _Row | None:
        second_s = self._second_s(found["second"])
        if second_s is None:
            return None
        begin_s = second_s + int(found["ms"]) / 1e3
        received, waited, connected, answered = (int(found[t]) for t in ("TR", "Tw", "Tc", "Tr"))
        if min(received, waited, connected, answered) < 0:
            end_s, latency_ms = begin_s + max(0, int(found["Ta"])) / 1e3, NAN
        else:
            first_byte_ms = float(waited + connected + answered)
            latency_ms = self._latency_ms(found, first_byte_ms)
            end_s = begin_s + (received + first_byte_ms) / 1e3
        return self._judged(found, end_s, latency_ms, b"")

    def _latency_ms(self, found: re.Match[bytes], first_byte_ms: float) -> float:
        if self._until == "first-byte" or found["state"][:1] in _CLIENT_BROKE_OFF:
            return first_byte_ms
        # Ta begins with the request's first byte: how fast the client sends it is its own affair.
        return max(first_byte_ms, float(found["Ta"]) - max(0, int(found["TR"])))

    def _judged(
        self, found: re.Match[bytes], end_s: float, latency_ms: float, route: bytes
    ) -> _Row:
        """The part that both formats share."""
        connect_ms = float(found["Tc"])
        if connect_ms < 0 or (connect_ms == 0 and not self._new_connections):
            connect_ms = NAN
        if found["retries"].startswith(b"+"):
            connect_ms = latency_ms = NAN
        if int(found["Tr"]) < 0:
            latency_ms = NAN
        broken_by = found["state"][:1]
        failed = broken_by in _SERVER_BROKE_OFF or (
            int(found["status"]) >= 500 and broken_by not in _CLIENT_BROKE_OFF
        )
        return _Row(found["server"], end_s, latency_ms, connect_ms, failed, _text(route))

    def _second_s(self, text: bytes) -> float | None:
        """Seconds since the epoch of ``20/Nov/2026:22:14:15``; many lines share one."""
        if text not in self._seconds:
            month = _MONTHS.get(text[3:6])
            if month is None:
                return None
            day, year, hour, minute, second = (
                int(text[a:b]) for a, b in ((0, 2), (7, 11), (12, 14), (15, 17), (18, 20))
            )
            try:
                date = datetime(year, month, day, hour, minute, second, tzinfo=self._zone)
                seconds = date.timestamp()
            except (ValueError, OverflowError, OSError):
                return None
            if len(self._seconds) >= 1024:
                self._seconds.clear()
            self._seconds[text] = seconds
        return self._seconds[text]


def _compiled() -> ModuleType:
    """The compiled code, compiled by now."""
    from dial_haproxy import compiled  # noqa: PLC0415 - numba is wanted here only

    data = memoryview(b"\n" + _PADDING)
    compiled.compact(data, 1, b"-", Names(), Names())
    compiled.httplog(data, 1, b"-", Names(), Seconds(lambda _: None))
    return compiled


def _text(route: bytes) -> str:
    return "" if route == b"-" else route.decode("utf-8", errors="replace")


@dataclass(slots=True)
class _Parts:
    """What was read of a piece of log: in columns, and a line at a time."""

    malformed: int = 0
    unattributed: int = 0
    lines: list[int] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)
    columns: RequestBatch | None = None
    column_lines: NDArray[np.int64] | None = None

    def batch(self, servers: Names) -> RequestBatch:
        """All of it, in the order of the lines."""
        ours = _of_rows(self.rows)
        if self.columns is not None and len(self.columns):
            ours = self._joined(self.columns, ours, servers)
        return replace(ours, malformed=self.malformed, unattributed=self.unattributed)

    def _joined(self, ordinary: RequestBatch, others: RequestBatch, servers: Names) -> RequestBatch:
        """Both, named by the servers that are there."""
        seen = np.flatnonzero(np.bincount(ordinary.backend))
        names = [servers.names[i].decode("utf-8", errors="replace") for i in seen.tolist()]
        place = np.zeros(len(servers.names), np.int32)
        place[seen] = np.arange(seen.size)
        ordinary = replace(ordinary, names=tuple(names), backend=place[ordinary.backend])
        if not len(others):
            return ordinary
        index = {name: i for i, name in enumerate(names)}
        theirs = [index.setdefault(name, len(index)) for name in others.names]
        backend = np.array(theirs, np.int32)[others.backend]
        assert self.column_lines is not None  # noqa: S101 - set with the columns
        order = np.argsort(np.concatenate([self.column_lines, self.lines]), kind="stable")

        def both(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
            joined: NDArray[Any] = np.concatenate([one, two])[order]
            return joined

        route = None
        if ordinary.route is not None or others.route is not None:
            routes = [
                *(ordinary.route or ("",) * len(ordinary)),
                *(others.route or ("",) * len(others)),
            ]
            route = tuple(routes[i] for i in order.tolist())
        return RequestBatch(
            names=tuple(index),
            backend=both(ordinary.backend, backend),
            end_s=both(ordinary.end_s, others.end_s),
            latency_ms=both(ordinary.latency_ms, others.latency_ms),
            connect_ms=both(ordinary.connect_ms, others.connect_ms),
            failed=both(ordinary.failed, others.failed),
            route=route,
        )


def _of_rows(rows: list[_Row]) -> RequestBatch:
    index: dict[bytes, int] = {}
    backend = [index.setdefault(row.server, len(index)) for row in rows]
    return RequestBatch(
        names=tuple(name.decode("utf-8", errors="replace") for name in index),
        backend=np.array(backend, dtype=np.int32),
        end_s=np.array([row.end_s for row in rows], dtype=np.float64),
        latency_ms=np.array([row.latency_ms for row in rows], dtype=np.float64),
        connect_ms=np.array([row.connect_ms for row in rows], dtype=np.float64),
        failed=np.array([row.failed for row in rows], dtype=np.bool_),
        route=tuple(row.route for row in rows) if any(row.route for row in rows) else None,
    )
