"""What the agent costs the VM it runs in.

Real agent processes, measured from outside while they sample at 1 Hz and push to a server
that takes everything.  Probe off and probe on take turns, so that what else the machine does
meets both.

``cpu_fraction``
    CPU time of all its threads by wall time, of one core, memory probe off (the default).
``probe_cpu_fraction``
    What the memory probe adds to that.
``rss_mib``
    Resident memory, memory probe on, at the end; the largest of all turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread

from benchmarks.support.harness import machine, report, versions

_INTERVAL_S = 1.0
_TURNS = 3
_START_S = 30.0
"""Longest time to the first sample, two intervals on an idle machine."""


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--seconds", type=float, default=36.0, help="measured, with and without")
    arguments = parser.parse_args()

    turn_s = arguments.seconds / _TURNS
    off, on = zip(*((cost("off", turn_s), cost("on", turn_s)) for _ in range(_TURNS)), strict=True)
    cpu_fraction = sum(fraction for fraction, _ in off) / _TURNS
    with_probe = sum(fraction for fraction, _ in on) / _TURNS
    rss_mib = {"off": max(mib for _, mib in off), "on": max(mib for _, mib in on)}
    lines = [
        f"{cpu_fraction:.3%} of a core at {1 / _INTERVAL_S:g} Hz",
        f"{with_probe - cpu_fraction:.3%} more with the memory probe",
        f"{rss_mib['on']:.1f} MiB resident, {rss_mib['off']:.1f} MiB without the probe",
    ]
    result = {
        "benchmark": "agent",
        "cpu_fraction": cpu_fraction,
        "probe_cpu_fraction": with_probe - cpu_fraction,
        "rss_mib": rss_mib["on"],
        "rss_mib_probe_off": rss_mib["off"],
        "seconds": arguments.seconds,
        "turns": _TURNS,
        "machine": machine(),
        "versions": versions("dial-lb"),
    }
    report(lines, result, as_json=arguments.json)


def cost(probe: str, seconds: float) -> tuple[float, float]:
    """Fraction of a core and MiB of one agent over ``seconds``, its start left out."""
    with Sink() as sink, agent(sink, probe) as pid:
        sink.wait_for_post()
        cpu_before_s, before_s = cpu_s(pid), time.monotonic()
        time.sleep(seconds)
        used_s, passed_s = cpu_s(pid) - cpu_before_s, time.monotonic() - before_s
        return used_s / passed_s, resident_mib(pid)


def cpu_s(pid: int) -> float:
    """CPU time of a process's threads, by the scheduler's own count in nanoseconds.

    ``/proc/PID/stat`` counts ticks of 10 ms: what the agent uses in 3 s.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def resident_mib(pid: int) -> float:
    """Resident memory of a process now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def agent(sink: Sink, probe: str) -> Iterator[int]:
    """An agent as ``dial agent`` runs it; its process id."""
    command = [
        *(sys.executable, "-m", "dial.agent", "--backend", "s1"),
        *("--controller", f"http://127.0.0.1:{sink.server_port}"),
        *("--interval-s", str(_INTERVAL_S), "--memory-probe", probe),
    ]
    process = subprocess.Popen(
        command, env=os.environ | {"DIAL_TOKEN": "benchmark"}, stderr=subprocess.DEVNULL
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


class Sink(ThreadingHTTPServer):
    """A controller that takes every post."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taken)
        self._posts = 0
        self._posted = Condition()

    def __enter__(self) -> Sink:
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def note_post(self) -> None:
        """Count one."""
        with self._posted:
            self._posts += 1
            self._posted.notify_all()

    def wait_for_post(self) -> None:
        """Wait for the first one: the agent is running."""
        with self._posted:
            if not self._posted.wait_for(lambda: self._posts, timeout=_START_S):
                raise SystemExit(f"no sample from the agent within {_START_S:g} s")


class _Taken(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Sink

    def do_POST(self) -> None:
        """Read the body and say so."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.note_post()
        self.send_response(202)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: object) -> None:
        """Nothing: a line a second is no result."""


if __name__ == "__main__":
    main()
