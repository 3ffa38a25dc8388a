"""From lines of the broker's query log to columns of finished requests.

A pure class: text in, :class:`~dial.adapter.RequestBatch` out, no clock and no I/O.  One line is
one query (Pinot's ``QueryLogger``)::

    1795211945545 requestId=91,table=events_OFFLINE,queryHash=..,timeMs=7,...,exceptions=0,
    serverStats=(Server=SubmitDelayMs,ResponseDelayMs,...);10.0.0.2_O=0,6,482,0,0;10.0.0.3_O=...

The plugin posts it up to there, with milliseconds since the epoch before it.  In a followed file
there is log4j2's own beginning instead, ``2026/11/21 20:38:07.123 INFO [QueryLogger] [thread]``,
and more after it, the text of the query included: only what directly follows that beginning is
believed, for a query may say anything.  (One with a line break in it can still begin a line.)

What is made of the fields:

- Each server that the query was sent to is a *request* of its own: a query that meets three servers
  is three rows.
- *Latency* is ``ResponseDelayMs``: from the moment the broker had the query ready until the
  server's answer was read, in whole milliseconds.
- *No answer* is -1.  Where the query waited for it until its timeout, its latency is the query's
  own time (``timeMs``): a lower bound of what the answer would have taken, and far from fast.  It
  is not counted as failed, for failed requests have no latency, and a frozen server would look
  idle.
- *A query that ended early*, because a server refused it or its connection broke, has waited for
  nobody.  Pinot counts one exception more then than for a timeout (1.5.1's
  ``SingleConnectionBrokerRequestHandler``: the error of sending, and that servers did not respond).
  If one server alone gave no answer, its request has failed; of several it cannot be told which one
  has, and they are left out.
- *An answer that is an error* (out of capacity, or a query that is wrong) takes no time to speak
  of.  Where one server alone was asked, its request has failed.
- *Servers* are named by the first label of their host's name and ``_O`` or ``_R`` for the kind of
  table; the port is left out.  A name that does not stand for exactly one server of the service is
  unattributed.
- A *malformed* line is counted and changes nothing else.  Lines of the logger that are no finished
  query (``N logs were dropped``, a query that was received) are neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

import numpy as np

from dial.adapter import RequestBatch

MAX_LINE_CHARS: Final = 262_144
"""A query that met a thousand servers: 60 characters each, and the query's text behind it."""

_POSTED: Final = re.compile(r"(?P<ms>\d{13}) ")
_LOGGED: Final = re.compile(
    r"(?P<date>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)[.,](?P<milli>\d{3}) [A-Z]+ "
    r"\[(?:[\w.]*\.)?QueryLogger\] \[[^\]]*\] "
)
_QUERY: Final = re.compile(
    r"requestId=\d+,table=(?P<table>[^,]*),(?:[^,]*,)*?timeMs=(?P<time>\d{1,10}),"
)
_UNAVAILABLE: Final = re.compile(r"/unavailable\):(?:-?\d{1,10}/)*(?P<segments>-?\d{1,10}),")
_EXCEPTIONS: Final = re.compile(r"(?:^|,)exceptions=(?P<number>\d{1,9})(?:,|$)")
_STATS: Final = re.compile(
    r",serverStats=(?P<stats>\([^)]*\)[^ ]*?)(?:,[a-z][A-Za-z]*[(=].*)?", re.DOTALL
)
_SERVER: Final = re.compile(
    r"(?P<name>[^=;,]+)=(?P<sent>-?\d{1,10}),(?P<delay>-?\d{1,10})(?:,-?\d{1,19})*"
)
_OURS: Final = "requestId="


class _Answer(NamedTuple):
    """What a query got of one server."""

    server: str
    """As the log names it, without the kind of table; empty for another table's."""
    latency_ms: float
    """NaN where it failed."""


class QueryLogParser:
    r"""Reads lines of one broker's query log.

    Parameters
    ----------
    table
        With its type; the queries of others are unattributed.
    zone
        Time zone of dates in a followed file, ``None`` for this computer's own.
    posted
        Whether lines are the plugin's, which begin with their time, or those of a file.

    Examples
    --------
    >>> parser = QueryLogParser("events_OFFLINE")
    >>> parser.servers = {"10.0.0.2": "Server_10.0.0.2_8098"}
    >>> batch = parser.read([
    ...     "1795211945545 requestId=9,table=events_OFFLINE,timeMs=7,serverStats=(Server="
    ...     "SubmitDelayMs,ResponseDelayMs);10.0.0.2_O=0,6"])
    >>> batch.names, batch.latency_ms.tolist(), batch.end_s.tolist()
    (('Server_10.0.0.2_8098',), [6.0], [1795211945.545])
    """

    def __init__(self, table: str, zone: tzinfo | None = None, *, posted: bool = True) -> None:
        self.servers: Mapping[str, str] = {}
        """Server by its name in the log; those of the service alone."""
        raw, _, kind = table.rpartition("_")
        # A query over both parts of a hybrid table is logged under the name without a type.
        self._tables = (table, raw)
        self._suffix = f"_{kind[0]}"
        self._zone = zone
        self._head = _POSTED if posted else _LOGGED

    def read(self, lines: list[str]) -> RequestBatch:
        """Parse whole lines; never raises."""
        servers: list[str] = []
        end_s: list[float] = []
        latency_ms: list[float] = []
        malformed = unattributed = 0
        for line in lines:
            if not line or (_OURS not in line and len(line) <= MAX_LINE_CHARS):
                continue
            head = self._head.match(line) if len(line) <= MAX_LINE_CHARS else None
            if head is not None and not line.startswith(_OURS, head.end()):
                continue  # what else is logged, about queries too
            query = None if head is None else self._query(line, head)
            if query is None:
                malformed += 1
                continue
            at_s, answers = query
            for answer in answers:
                known = self.servers.get(answer.server)
                if known is None:
                    unattributed += 1
                else:
                    servers.append(known)
                    end_s.append(at_s)
                    latency_ms.append(answer.latency_ms)
        return _batch(servers, end_s, latency_ms, malformed, unattributed)

    def _query(self, line: str, head: re.Match[str]) -> tuple[float, list[_Answer]] | None:
        """When the query ended, and what each server answered; ``None`` if it cannot be read."""
        at_s = self._at_s(head)
        query = _QUERY.match(line, head.end())
        if at_s is None or query is None:
            return None
        stats_at = line.find(",serverStats=", query.end() - 1)
        stats = _STATS.fullmatch(line, stats_at) if stats_at >= 0 else None
        if stats is None:
            # A query that was answered without a server (from an empty table) has none to tell of.
            return (at_s, []) if line.startswith(",serverStats=UNKNOWN", stats_at) else None
        servers = [_SERVER.fullmatch(part) for part in stats["stats"].split(";")[1:]]
        known = [server for server in servers if server is not None]
        if len(known) < len(servers):
            return None
        names = [self._server(query["table"], server["name"]) for server in known]
        latencies = _latencies_ms(
            known, _exceptions(line[query.end() : stats_at]), time_ms=float(query["time"])
        )
        pairs = zip(names, latencies, strict=True)
        return at_s, [_Answer(name, latency) for name, latency in pairs if latency is not None]

    def _server(self, table: str, name: str) -> str:
        mine = table in self._tables and name.endswith(self._suffix)
        return name.removesuffix(self._suffix) if mine else ""

    def _at_s(self, found: re.Match[str]) -> float | None:
        if self._head is _POSTED:
            return int(found["ms"]) / 1e3
        try:
            date = datetime.strptime(found["date"], "%Y/%m/%d %H:%M:%S")  # noqa: DTZ007 - next line
            at_s = date.replace(tzinfo=self._zone).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
        return at_s + int(found["milli"]) / 1e3


def _exceptions(fields: str) -> int:
    """Exceptions of the query, but for the one that says that segments are nowhere."""
    number = _EXCEPTIONS.search(fields)
    unavailable = _UNAVAILABLE.search(fields)
    explained = unavailable is not None and int(unavailable["segments"]) > 0
    return max(0, int(number["number"]) - explained) if number else 0


def _latencies_ms(
    servers: list[re.Match[str]], exceptions: int, *, time_ms: float
) -> list[float | None]:
    """Latency of each server's answer: NaN where it failed, ``None`` where it is left out."""
    silent = sum(float(server["delay"]) < 0.0 for server in servers)
    ended_early = silent > 0 and exceptions > 1
    latencies: list[float | None] = []
    for server in servers:
        delay_ms = float(server["delay"])
        if delay_ms >= 0.0:
            is_error = exceptions > 0 and len(servers) == 1
            latencies.append(math.nan if is_error else delay_ms)
        elif ended_early:
            latencies.append(math.nan if silent == 1 else None)
        elif float(server["sent"]) < 0.0:
            latencies.append(math.nan)  # refused, and the query went on without it
        else:
            latencies.append(time_ms)
    return latencies


def name_in_log(host: str) -> str:
    """How the log names the server on a host: the first label of a name, an address in full.

    >>> name_in_log("pinot-server-0.pinot.svc"), name_in_log("10.0.0.2")
    ('pinot-server-0', '10.0.0.2')
    """
    # Pinot asks Guava for an InternetDomainName, which is in small letters and without a last dot.
    # An address is none, nor is a name with other characters; both are then printed as they are.
    labels = host.lower().removesuffix(".").split(".")
    is_name = all(re.fullmatch(r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?", x) for x in labels)
    return labels[0] if is_name and not labels[-1][0].isdigit() else host


def _batch(
    servers: list[str],
    end_s: list[float],
    latency_ms: list[float],
    malformed: int,
    unattributed: int,
) -> RequestBatch:
    index: dict[str, int] = {}
    latencies = np.array(latency_ms, dtype=np.float64)
    backend = [index.setdefault(server, len(index)) for server in servers]
    return RequestBatch(
        names=tuple(index),
        backend=np.array(backend, dtype=np.int32),
        end_s=np.array(end_s, dtype=np.float64),
        latency_ms=latencies,
        connect_ms=np.full(len(servers), np.nan),
        failed=np.isnan(latencies),
        malformed=malformed,
        unattributed=unattributed,
    )
