"""A program that lets a core not rest, takes nothing of it that anybody wants, and times itself.

The problem: a virtual core that rests is given to somebody else, and when it has work again it
waits for its turn.  The kernel counts that as stolen, and to the tenant on it each request, packet
and timer comes late by as much, most at little load.  And while it runs, the core's other thread
may be somebody else's: then all takes up to 1.8 times as long, which nobody counts.  Neither is a
neighbour that the lab started, and both come and go with what else the hypervisor runs.

The method: on each core of a run one process that runs while nothing else does (``SCHED_IDLE``).
Whatever wakes up there runs at once; a group that has its quota back is let run at a tick, or when
it yields, which it does each fiftieth of a millisecond or so.  In between it counts to a thousand,
and how much CPU time that takes tells how quick the core is.

Measured in a busy hour of the hypervisor, two cores with 2 ms to do in each 10 ms, 15 s each, in
turn, five times: of a core 0.1 to 1.4 % were stolen without it (median 0.9 %), and 0.07 to 0.13 %
with it.  In the same hour a loop took 1.1 to 1.8 times its quickest, as a mean over 18 s, and so
did compressing a page.

What it costs: the time of its core that nobody wants, and at most a third of a percent of what
somebody does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, median_low

from dial_lab.processes import Children

_LINE_S = 0.25
"""For which one line is written."""

_COUNTS_TO = 1000
"""15 us of a Xeon's quick core: so long a group that has its quota back waits at most."""


class Restless:
    """The programs of a run, and what they have found.

    Parameters
    ----------
    programs
        By core.
    out
        What each writes: ``MONOTONIC_S NS`` for each quarter of a second, the CPU time of a count.
    """

    def __init__(
        self, programs: Mapping[int, subprocess.Popen[bytes]], out: Mapping[int, Path]
    ) -> None:
        self.programs = programs
        self._out = out

    def slowdown(self, cores: Iterable[int], begin_s: float, end_s: float) -> float | None:
        """How many times its quickest a count took between two moments of :func:`time.monotonic`.

        The mean of that time, on the core where it took longest, over the quickest quarter of a
        second that any core of the run has had; ``None`` where a core had something else to do all
        the time, so that nobody knows.
        """
        counts = {core: _read(path) for core, path in self._out.items()}
        quickest_ns = min((ns for each in counts.values() for _, ns in each), default=0.0)
        then = [[ns for at_s, ns in counts[core] if begin_s <= at_s < end_s] for core in cores]
        if not then or not all(then):
            return None
        return max(fmean(each) for each in then) / quickest_ns


def in_words(slowdown: float, most: float) -> str:
    """How slow cores were, and how slow they may be."""
    return (
        f"work took {slowdown - 1.0:.0%} longer on the machines' cores than in the run's quickest "
        f"moment, {most - 1.0:.0%} are let pass"
    )


def _read(path: Path) -> list[tuple[float, float]]:
    # The last line may be half written.
    lines = path.read_text(encoding="ascii").split("\n")[:-1]
    return [(float(at_s), float(ns)) for at_s, ns in map(str.split, lines)]


def start(children: Children, cores: Iterable[int]) -> Restless:
    """Start a program on each of the cores; they end with the children."""
    programs, out = {}, {}
    for core in cores:
        out[core] = children.log_dir / f"restless-{core}.txt"
        out[core].write_bytes(b"")
        argv = [sys.executable, "-m", "dial_lab.restless", f"--out={out[core]}"]
        programs[core] = children.start(f"restless-{core}", argv, cores=[core])
    return Restless(programs, out)


def _count_ns() -> int:
    begin_ns = time.thread_time_ns()
    for _ in range(_COUNTS_TO):
        pass
    return time.thread_time_ns() - begin_ns


def main() -> None:
    """Run while nothing else does, until ended; a line for each time, ``MONOTONIC_S NS``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    path = parser.parse_args().out
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with path.open("a", encoding="ascii", buffering=1) as out:
        while True:
            until_s, counts_ns = time.monotonic() + _LINE_S, list[int]()
            while time.monotonic() < until_s or not counts_ns:
                counts_ns.append(_count_ns())
                os.sched_yield()
            # One may have been interrupted.
            out.write(f"{time.monotonic():.3f} {median_low(counts_ns)}\n")


if __name__ == "__main__":
    main()
