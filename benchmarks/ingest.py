"""How many log lines a second the controller takes, on one core, from socket to percentiles.

``compact_lines_per_s``, ``httplog_lines_per_s``
    Lines of HAProxy's log through a stream socket into the adapter's parser and the controller's
    windows, closed once for every million lines: requests, errors, P90 and mean of each of ten
    servers.  Median over the rounds; what fills the socket is not counted, because it is another
    program's work, on another core.  The parser is compiled (``compiled = true``, which needs
    numba).
``arrow_compact_lines_per_s``
    What the same core does that day: Arrow's CSV reader over the same lines in memory, two of their
    fields (server and Ta), and numpy's P90 of each server.  No socket, no look at the others, no
    windows.
``compact_over_arrow``
    Median ratio of the two, round by round.
``steady_compact_lines_per_s``, ``steady_httplog_lines_per_s``
    The first without the socket, in pieces of 256 KiB: what the reading itself takes.
``arrays_compact_lines_per_s``, ``arrays_httplog_lines_per_s``
    As the first, with the parser that is there without numba, and the default.
``rss_growth_mib``
    Of memory, from the second round to the last, Arrow's left out; the larger of both formats.
``malformed``
    Lines that were garbage on purpose, one in 10,000: counted, and nothing else.

All of them take turns in each round, so that a slow minute slows them all.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from statistics import median

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.support.harness import machine, report, versions
from benchmarks.support.memory import rss_mib
from dial.telemetry import RequestWindows
from dial_haproxy.options import LogFormat
from dial_haproxy.parser import LogParser

_SEED = 1
_LINES = 1_000_000
_SERVERS = 10
_NAMES = tuple(f"s{i}" for i in range(_SERVERS))
_PERCENTILE = 90.0
_GARBAGE_EVERY = 10_000
_MALFORMED = _LINES // _GARBAGE_EVERY
_PIECE_BYTES = 1024 * 1024
_STEADY_BYTES = 256 * 1024
_BUFFER_BYTES = 4 * 1024 * 1024
_FIELDS = ["pool", "server", "begin", "answered", "TR", "Tc", "Tr", "Ta"]
_FIELDS += ["status", "state", "connections", "retries", "route"]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--rounds", type=int, default=5, help="of a million lines each")
    arguments = parser.parse_args()

    own, *others = sorted(os.sched_getaffinity(0), reverse=True)
    os.sched_setaffinity(0, {own})
    took_s: dict[str, list[float]] = {}
    growth_mib = []
    logs: tuple[tuple[str, LogFormat, bytes], ...] = (
        ("compact", "dial", compact_log()),
        ("httplog", "httplog", http_log()),
    )
    for name, log_format, log in logs:
        compiled = LogParser("app", log_format, compiled=True)
        arrays = LogParser("app", log_format)
        with endless(log, set(others) or {own}) as stream:
            ways: dict[str, Callable[[], None]] = {
                name: through_socket(stream, compiled, len(log)),
                f"arrays_{name}": through_socket(stream, arrays, len(log)),
                f"steady_{name}": in_pieces(compiled, log),
            }
            if log_format == "dial":
                ways[f"arrow_{name}"] = partial(bare_read, log)
            took, grown_mib = in_turns(ways, arguments.rounds)
        took_s |= took
        growth_mib.append(sum(mib for way, mib in grown_mib.items() if not way.startswith("arrow")))

    result: dict[str, object] = {"benchmark": "ingest"}
    result |= {f"{way}_lines_per_s": _LINES / median(took) for way, took in took_s.items()}
    over_arrow = median(
        arrow_s / own_s
        for own_s, arrow_s in zip(took_s["compact"], took_s["arrow_compact"], strict=True)
    )
    lines = [f"{way}: {_LINES / median(took):,.0f} lines/s" for way, took in took_s.items()]
    lines.append(f"compact over Arrow: {over_arrow:.2f}")
    result |= {
        "compact_over_arrow": over_arrow,
        **{f"{name}_bytes_per_line": len(log) / _LINES for name, _, log in logs},
        "malformed": _MALFORMED,
        "rss_growth_mib": max(growth_mib),
        "rounds": arguments.rounds,
        "servers": _SERVERS,
        "machine": machine(),
        "versions": versions("dial-lb", "dial-lb-haproxy", "numba", "numpy", "pyarrow"),
    }
    report(lines, result, as_json=arguments.json)


def in_turns(
    ways: dict[str, Callable[[], None]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of this process's own time that each way took in each round, and MiB it grew by."""
    took_s: dict[str, list[float]] = {way: [] for way in ways}
    grown_mib = dict.fromkeys(ways, 0.0)
    for number in range(rounds + 1):  # the first warms up
        for way, call in ways.items():
            before_mib, begin_s = rss_mib(), _own_time_s()
            call()
            if number:
                took_s[way].append(_own_time_s() - begin_s)
            if number > 1:
                grown_mib[way] += rss_mib() - before_mib
    return took_s, grown_mib


@contextmanager
def endless(log: bytes, cores: set[int]) -> Iterator[socket.socket]:
    """A stream socket that another process on other cores fills with the log, over and over."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sender = get_context("fork").Process(target=_send, args=(theirs, ours, log, cores))
    sender.start()
    theirs.close()
    with ours:
        yield ours
    sender.join()


def _send(out: socket.socket, other: socket.socket, log: bytes, cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)
    other.close()
    with out:
        while True:
            try:
                out.sendall(log)
            except (BrokenPipeError, ConnectionResetError):
                return


def through_socket(stream: socket.socket, parser: LogParser, size: int) -> Callable[[], None]:
    """Takes the log from the socket to closed windows."""
    windows = RequestWindows(_PERCENTILE, 20)

    def read() -> None:
        left, malformed = size, 0
        while left:
            data = stream.recv(min(left, _PIECE_BYTES))
            if not data:
                raise SystemExit("the sender of the log has ended")
            left -= len(data)
            batch = parser.feed(data)
            malformed += batch.malformed
            windows.add(batch)
        _check(windows, malformed)

    return read


def in_pieces(parser: LogParser, log: bytes) -> Callable[[], None]:
    """Takes the log without a socket."""
    windows = RequestWindows(_PERCENTILE, 20)

    def read() -> None:
        malformed = 0
        for start in range(0, len(log), _STEADY_BYTES):
            batch = parser.feed(log[start : start + _STEADY_BYTES])
            malformed += batch.malformed
            windows.add(batch)
        _check(windows, malformed)

    return read


def _check(windows: RequestWindows, malformed: int) -> None:
    """Close the windows; every line has to be in them."""
    answered = sum(window.requests for window in windows.close(_NAMES).values())
    if malformed != _MALFORMED or answered + malformed != _LINES:
        raise SystemExit(f"{answered} requests and {malformed} malformed of {_LINES} lines")


def bare_read(log: bytes) -> None:
    """The least that a percentile needs of the log, by Arrow, and that of each server by numpy."""
    types = {"server": pa.dictionary(pa.int32(), pa.string()), "Ta": pa.int64()}
    table = csv.read_csv(
        pa.BufferReader(log),
        read_options=csv.ReadOptions(use_threads=False, column_names=_FIELDS),
        parse_options=csv.ParseOptions(invalid_row_handler=lambda _: "skip"),
        convert_options=csv.ConvertOptions(include_columns=list(types), column_types=types),
    ).unify_dictionaries()
    server = np.concatenate([chunk.indices.to_numpy() for chunk in table["server"].chunks])
    total_ms = table["Ta"].to_numpy()
    found = [np.percentile(total_ms[server == i], _PERCENTILE) for i in range(_SERVERS)]
    if total_ms.size != _LINES - _MALFORMED or not np.isfinite(found).all():
        raise SystemExit(f"Arrow reads {total_ms.size} of {_LINES} lines")


def _own_time_s() -> float:
    """What a core has done for this process: user and system time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return max(used.ru_utime + used.ru_stime, time.process_time())


def compact_log() -> bytes:
    """A million lines of format ``dial`` as HAProxy writes them."""
    random = np.random.default_rng(_SEED)
    servers = random.integers(0, _SERVERS, _LINES).tolist()
    took_us = (1e3 * random.exponential(10.0, _LINES)).astype(int).tolist()
    begin_us = (1_795_211_945_000_000 + np.cumsum(random.integers(1, 400, _LINES))).tolist()
    lines = [
        f"app,s{server},{begin},{begin + took},0,0,{took // 1000},{took // 1000},200,----,0,0,-\n"
        for server, begin, took in zip(servers, begin_us, took_us, strict=True)
    ]
    lines[::_GARBAGE_EVERY] = ["not a line of ours\n"] * len(lines[::_GARBAGE_EVERY])
    return "".join(lines).encode()


def http_log() -> bytes:
    """A million lines of the standard httplog, behind a syslog header."""
    random = np.random.default_rng(_SEED)
    servers = random.integers(0, _SERVERS, _LINES).tolist()
    took_ms = random.exponential(10.0, _LINES).astype(int).tolist()
    lines = [
        f"<134>Nov 20 22:{at // 60_000 % 60:02d}:{at // 1000 % 60:02d} haproxy[4711]: "
        f"10.0.0.{at % 250}:{40_000 + at % 20_000} [20/Nov/2026:22:{at // 60_000 % 60:02d}:"
        f"{at // 1000 % 60:02d}.{at % 1000:03d}] fe app/s{server} 0/0/0/{took}/{took} 200 "
        f'{100 + took} - - ---- 12/12/3/1/0 0/0 "GET /path/{at % 1000} HTTP/1.1"\n'
        for at, (server, took) in enumerate(zip(servers, took_ms, strict=True))
    ]
    lines[::_GARBAGE_EVERY] = ["not a line of ours\n"] * len(lines[::_GARBAGE_EVERY])
    return "".join(lines).encode()


if __name__ == "__main__":
    main()
