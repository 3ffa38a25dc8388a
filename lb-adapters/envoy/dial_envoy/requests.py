"""From Envoy's two access logs to columns of finished requests.

Both say the same: gRPC entries (:func:`of_entries`) in fields of their own, JSON lines
(:class:`JsonLines`) in those of :data:`dial_envoy.config.JSON_FORMAT`.

What is made of the fields:

- *Backend* is the server that was asked last (``upstream_remote_address``).  A request of another
  cluster, or one that reached no server, is unattributed.
- *Latency* runs from the moment Envoy has the whole request to the last byte from the server
  (``total``), for a neighbour on the network slows the answer's body, not its first byte; a slow
  client is not in it.  To the first byte where the caller says so; an answer that was broken off
  has no last byte, and no latency: its first one would make a slow network look fast.  Of a
  request that was tried again only the last try is the named server's: its time begins when it is
  sent.
- *Connect time* is known where the connection was made for this request: it began after the
  request did.
- *Failed* is a response flag that puts the blame on the server (broken off, not connected, timed
  out) or an answer 5xx; but not where the client went away, and not what Envoy refused by itself
  before it asked a server (that has no server, and so is unattributed).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from envoy.data.accesslog.v3.accesslog_pb2 import (
    AccessLogCommon,
    HTTPAccessLogEntry,
    ResponseFlags,
)

from dial.adapter import RequestBatch
from dial_envoy.endpoints import HostPort, Server, parse_address
from dial_envoy.options import LatencyEnd

MAX_LINE_BYTES: Final = 65_536
"""A line of :data:`dial_envoy.config.JSON_FORMAT` has some 250 bytes; an administrator's own
fields beside them may hold a long path."""

NAN: Final = float("nan")
_MAX_MS: Final = 1e9
"""Eleven days: past it a number is no duration."""

FLAGS_OF_THE_SERVER: Final = {
    "UT": "upstream_request_timeout",
    "LR": "local_reset",
    "UR": "upstream_remote_reset",
    "UF": "upstream_connection_failure",
    "UC": "upstream_connection_termination",
    "URX": "upstream_retry_limit_exceeded",
    "SI": "stream_idle_timeout",
    "UMSDR": "upstream_max_stream_duration_reached",
    "UPE": "upstream_protocol_error",
    "DT": "duration_timeout",
}
"""Response flags by which a server failed a request: short names as in JSON, fields as in gRPC."""

FLAGS_OF_THE_CLIENT: Final = {
    "DC": "downstream_connection_termination",
    "DR": "downstream_remote_reset",
}
CONNECT_TAG: Final = "dial_connect_us"
BEFORE_CONNECT_TAG: Final = "dial_before_connect_us"
"""Custom tags of a gRPC entry, for it has no field for connecting."""


class Row(NamedTuple):
    """One finished request of the service."""

    backend: str
    end_s: float
    latency_ms: float
    connect_ms: float
    failed: bool
    route: str


class Attribution:
    """Whose request it was.

    Parameters
    ----------
    service
        Name of the cluster.
    servers
        Gives the servers there are now, by address; those that were there before are remembered,
        for a request may end after its server has left the pool.
    """

    def __init__(self, service: str, servers: Callable[[], Mapping[HostPort, Server]]) -> None:
        self.service = service
        self._servers = servers
        self._names: dict[HostPort, str] = {}

    def name(self, cluster: str, address: HostPort | None) -> str | None:
        """The backend, or ``None`` where it is none of ours."""
        if cluster != self.service or address is None:
            return None
        server = self._servers().get(address)
        if server is not None:
            self._names[address] = server.name
            return server.name
        return self._names.get(address)


def failed(status: int, *, by_server: bool, by_client: bool) -> bool:
    """Whether the server failed the request."""
    return by_server or (status >= 500 and not by_client)


# ---------------------------------------------------------------- gRPC


def of_entries(
    entries: Iterable[HTTPAccessLogEntry], attribution: Attribution, until: LatencyEnd
) -> RequestBatch:
    """Read the entries of one message."""
    rows: list[Row] = []
    malformed = unattributed = 0
    for entry in entries:
        common = entry.common_properties
        if common.intermediate_log_entry:
            continue  # of a request that still runs; its end will be logged as well
        socket = common.upstream_remote_address.socket_address
        address = (socket.address, socket.port_value) if socket.address else None
        name = attribution.name(common.upstream_cluster, address)
        if name is None:
            unattributed += 1
            continue
        row = _of_entry(entry, name, until)
        if row is None:
            malformed += 1
        else:
            rows.append(row)
    return batch_of(rows, malformed, unattributed)


def _of_entry(entry: HTTPAccessLogEntry, name: str, until: LatencyEnd) -> Row | None:
    common = entry.common_properties
    start_s = common.start_time.seconds + common.start_time.nanos * 1e-9
    if start_s <= 0.0:
        return None
    received_ms = _ms(common, "time_to_last_rx_byte")
    begin_ms = received_ms
    if common.upstream_request_attempt_count > 1 or math.isnan(begin_ms):
        begin_ms = _ms(common, "time_to_first_upstream_tx_byte")
    first_ms = _ms(common, "time_to_first_upstream_rx_byte")
    last_ms = _ms(common, "time_to_last_upstream_rx_byte")
    answered_ms = first_ms if until == "first-byte" else last_ms
    flags = common.response_flags
    ended_ms = first_ms
    if math.isnan(ended_ms):
        ended_ms = _ms(common, "duration")
    return Row(
        name,
        start_s + (0.0 if math.isnan(ended_ms) else ended_ms * 1e-3),
        _difference(begin_ms, answered_ms),
        _connect_of(common.custom_tags),
        failed(
            entry.response.response_code.value,
            by_server=_any(flags, FLAGS_OF_THE_SERVER),
            by_client=_any(flags, FLAGS_OF_THE_CLIENT),
        ),
        common.route_name,
    )


def _ms(common: AccessLogCommon, field: str) -> float:
    if not common.HasField(field):
        return NAN
    duration = getattr(common, field)
    return float(duration.seconds * 1e3 + duration.nanos * 1e-6)


def _any(flags: ResponseFlags, names: Mapping[str, str]) -> bool:
    return any(getattr(flags, field) for field in names.values())


def _connect_of(tags: Mapping[str, str]) -> float:
    if not tags:
        return NAN
    return _connect_ms(_number(tags.get(BEFORE_CONNECT_TAG)), _number(tags.get(CONNECT_TAG)))


# ---------------------------------------------------------------- JSON


class JsonLines:
    r"""Reads a log of JSON lines, in whatever pieces it comes.

    Parameters
    ----------
    attribution
        Whose requests they are.
    until
        Where a latency ends.
    on_malformed
        Shown the first line that cannot be read; how many there are, the batches say.

    Examples
    --------
    >>> server = Server("s1", ("10.0.0.1", 80), 100, usable=True)
    >>> lines = JsonLines(Attribution("app", lambda: {server.address: server}), "total")
    >>> len(lines.feed(b'{"cluster": "app", "host": "10.0.0.1:80", "start_s": "1795293874.5", '))
    0
    >>> batch = lines.feed(b'"code": 200, "flags": "-", "first_us": 700, "last_us": 1250}\n')
    >>> batch.names, batch.latency_ms.tolist(), batch.failed.tolist()
    (('s1',), [1.25], [False])
    """

    def __init__(
        self,
        attribution: Attribution,
        until: LatencyEnd,
        on_malformed: Callable[[bytes], None] | None = None,
    ) -> None:
        self._attribution = attribution
        self._until = until
        self._on_malformed = on_malformed
        self._carry = b""
        self._in_overlong_line = False
        self._addresses: dict[str, HostPort | None] = {}

    def feed(self, data: bytes) -> RequestBatch:
        """Parse what became complete with ``data``; never raises."""
        lines = (self._carry + data).split(b"\n")
        self._carry = lines.pop()
        rows: list[Row] = []
        malformed = unattributed = 0
        for line in lines:
            if self._in_overlong_line:
                self._in_overlong_line = False
            elif line.strip():
                found = None if len(line) > MAX_LINE_BYTES else _table(line)
                row = self._row(found) if found is not None else None
                if row is None:
                    malformed += self._malformed(line)
                elif not row:
                    unattributed += 1
                else:
                    rows.append(row)
        if len(self._carry) > MAX_LINE_BYTES:
            if not self._in_overlong_line:
                malformed += self._malformed(self._carry)
            self._in_overlong_line = True
            self._carry = b""
        return batch_of(rows, malformed, unattributed)

    def _malformed(self, line: bytes) -> int:
        if self._on_malformed is not None:
            self._on_malformed(line)
            self._on_malformed = None
        return 1

    def _row(self, line: Mapping[str, object]) -> Row | tuple[()] | None:
        """The request; empty where it is none of ours, ``None`` where it cannot be read."""
        cluster, host, flags = line.get("cluster"), line.get("host"), line.get("flags")
        start_s, status = _number(line.get("start_s")), _number(line.get("code"))
        if not isinstance(flags, str) or not 0.0 < start_s < _MAX_MS * 1e3 or math.isnan(status):
            return None
        name = self._attribution.name(str(cluster), self._address(host))
        if name is None:
            return ()
        words = flags.split(",")
        tries = _number(line.get("tries"))
        suffix = "_retry_us" if tries > 1 else "_us"
        first_us, last_us = _number(line.get(f"first{suffix}")), _number(line.get(f"last{suffix}"))
        answered_us = first_us if self._until == "first-byte" else last_us
        ended_us = _number(line.get("end_us"))
        route = line.get("route")
        return Row(
            name,
            start_s + (0.0 if math.isnan(ended_us) else ended_us * 1e-6),
            _difference(0.0, answered_us * 1e-3),
            _connect_ms(_number(line.get("before_connect_us")), _number(line.get("connect_us"))),
            failed(
                int(status),
                by_server=any(word in FLAGS_OF_THE_SERVER for word in words),
                by_client=any(word in FLAGS_OF_THE_CLIENT for word in words),
            ),
            route if isinstance(route, str) and route != "-" else "",
        )

    def _address(self, host: object) -> HostPort | None:
        if not isinstance(host, str):
            return None
        if host not in self._addresses:
            if len(self._addresses) >= 4096:
                self._addresses.clear()
            try:
                self._addresses[host] = parse_address(host)
            except ValueError:
                self._addresses[host] = None
        return self._addresses[host]


def _table(line: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# ---------------------------------------------------------------- both


def _number(value: object) -> float:
    """A number, or NaN: Envoy writes numbers as such, or as text where the format does."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return NAN
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return NAN
    return number if math.isfinite(number) else NAN


def _difference(begin_ms: float, end_ms: float) -> float:
    """NaN where either is not known, or they are no duration."""
    lasted_ms = end_ms - begin_ms
    return lasted_ms if 0.0 <= lasted_ms < _MAX_MS else NAN


def _connect_ms(before_us: float, connect_us: float) -> float:
    """NaN unless the connection was begun after the request was."""
    if math.isnan(before_us) or before_us < 0.0:
        return NAN
    return _difference(0.0, connect_us * 1e-3)


def batch_of(rows: list[Row], malformed: int, unattributed: int) -> RequestBatch:
    """Rows as columns."""
    index: dict[str, int] = {}
    backend = [index.setdefault(row.backend, len(index)) for row in rows]
    return RequestBatch(
        names=tuple(index),
        backend=np.array(backend, dtype=np.int32),
        end_s=np.array([row.end_s for row in rows], dtype=np.float64),
        latency_ms=np.array([row.latency_ms for row in rows], dtype=np.float64),
        connect_ms=np.array([row.connect_ms for row in rows], dtype=np.float64),
        failed=np.array([row.failed for row in rows], dtype=np.bool_),
        route=tuple(row.route for row in rows) if any(row.route for row in rows) else None,
        malformed=malformed,
        unattributed=unattributed,
    )
