"""How many log lines a second the controller takes, on one core, from socket to percentiles.

``compact_lines_per_s``, ``httplog_lines_per_s``
    Lines of HAProxy's log through a stream socket into the adapter's parser and the controller's
    windows, closed once for every million lines: requests, errors, P90 and mean of each of ten
    servers.  Median over the rounds; what fills the socket is not counted, because it is another
    program's work.  The parser is compiled (``compiled = true``, which needs numba).
``steady_compact_lines_per_s``, ``steady_httplog_lines_per_s``
    The same without the socket, in pieces of 256 KiB: what the reading itself takes.
``arrays_compact_lines_per_s``, ``arrays_httplog_lines_per_s``
    As the first, with the parser that is there without numba, and the default.
``rss_growth_mib``
    Of memory, from the second round to the last.
``malformed``
    Lines that were garbage on purpose, one in 10,000: counted, and nothing else.
"""

from __future__ import annotations

import argparse
import resource
import socket
import time
from multiprocessing import get_context
from statistics import median

import numpy as np

from benchmarks.support.harness import machine, report, versions
from benchmarks.support.memory import rss_mib
from dial.telemetry import RequestWindows
from dial_haproxy.options import LogFormat
from dial_haproxy.parser import LogParser

_SEED = 1
_LINES = 1_000_000
_SERVERS = 10
_GARBAGE_EVERY = 10_000
_PIECE_BYTES = 1024 * 1024
_STEADY_BYTES = 256 * 1024
_BUFFER_BYTES = 4 * 1024 * 1024


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--rounds", type=int, default=5, help="of a million lines each")
    arguments = parser.parse_args()

    result: dict[str, object] = {"benchmark": "ingest"}
    lines = []
    growth_mib = 0.0
    formats: tuple[tuple[str, LogFormat], ...] = (("compact", "dial"), ("httplog", "httplog"))
    for name, log_format in formats:
        log = compact_log() if log_format == "dial" else http_log()
        arrays_per_s, grown_mib, _ = through_socket(
            LogParser("app", log_format), log, arguments.rounds
        )
        growth_mib = max(growth_mib, grown_mib)
        compiled = LogParser("app", log_format, compiled=True)
        per_s, grown_mib, malformed = through_socket(compiled, log, arguments.rounds)
        growth_mib = max(growth_mib, grown_mib)
        steady_per_s = in_pieces(compiled, log, arguments.rounds)
        result |= {
            f"{name}_lines_per_s": per_s,
            f"steady_{name}_lines_per_s": steady_per_s,
            f"arrays_{name}_lines_per_s": arrays_per_s,
            f"{name}_bytes_per_line": len(log) / _LINES,
            "malformed": malformed,
        }
        lines.append(
            f"{name}: {per_s:,.0f} lines/s from the socket, {steady_per_s:,.0f} in memory; "
            f"{arrays_per_s:,.0f} without compiled code"
        )
    result |= {
        "rss_growth_mib": growth_mib,
        "rounds": arguments.rounds,
        "servers": _SERVERS,
        "machine": machine(),
        "versions": versions("dial-lb", "dial-lb-haproxy", "numba", "numpy"),
    }
    report(lines, result, as_json=arguments.json)


def through_socket(parser: LogParser, log: bytes, rounds: int) -> tuple[float, float, int]:
    """Lines a second of this process's own time, growth of memory, malformed lines of a round."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sender = get_context("fork").Process(target=_send, args=(theirs, ours, log, rounds + 1))
    sender.start()
    theirs.close()
    windows = RequestWindows(90.0, 20)
    took_s, before_mib, malformed = [], 0.0, 0
    with ours:
        for number in range(rounds + 1):  # the first warms up
            left, malformed, begin_s = len(log), 0, _own_time_s()
            while left:
                data = ours.recv(min(left, _PIECE_BYTES))
                left -= len(data)
                batch = parser.feed(data)
                malformed += batch.malformed
                windows.add(batch)
            closed = windows.close(tuple(f"s{i}" for i in range(_SERVERS)))
            took_s.append(_own_time_s() - begin_s)
            answered = sum(window.requests for window in closed.values())
            if answered + malformed != _LINES:
                raise SystemExit(f"{answered} requests and {malformed} malformed of {_LINES} lines")
            if number == 1:
                before_mib = rss_mib()
    sender.join()
    return _LINES / median(took_s[1:]), rss_mib() - before_mib, malformed


def in_pieces(parser: LogParser, log: bytes, rounds: int) -> float:
    """Lines a second without a socket."""
    windows = RequestWindows(90.0, 20)
    names = tuple(f"s{i}" for i in range(_SERVERS))
    took_s = []
    for _ in range(rounds + 1):
        begin_s = _own_time_s()
        for start in range(0, len(log), _STEADY_BYTES):
            windows.add(parser.feed(log[start : start + _STEADY_BYTES]))
        windows.close(names)
        took_s.append(_own_time_s() - begin_s)
    return _LINES / median(took_s[1:])


def _own_time_s() -> float:
    """What a core has done for this process: user and system time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return max(used.ru_utime + used.ru_stime, time.process_time())


def _send(out: socket.socket, other: socket.socket, log: bytes, rounds: int) -> None:
    other.close()
    with out:
        for _ in range(rounds):
            out.sendall(log)


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
