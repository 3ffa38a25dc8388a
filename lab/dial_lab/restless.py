"""A program that lets a core not rest, takes nothing of it that anybody wants, and times itself.

The problem: a virtual core that rests is given to somebody else, and when it has work again it
waits for its turn.  The kernel counts that as stolen, and to the tenant on it each request, packet
and timer comes late by as much, most at little load.  And while it runs, the core's other thread
may be somebody else's: then all takes up to 1.8 times as long, which nobody counts.  Neither is a
neighbour that the lab started, and both come and go with what else the hypervisor runs.

The method: on each core of a run one process that runs while nothing else does (``SCHED_IDLE``, in
an idle control group).  Whatever wakes up there runs at once; a group that has its quota back is
let run at a tick, or when it yields, which it does each fiftieth of a millisecond or so.  Without
the group it is idle to the lab's own session only: the kernel weighs sessions against each other
(``sched_autogroup``), whoever is idle in them.  The lab's would have used up its part of each core
with this, and its balancer would wait for a tick, 4 ms, behind a session that runs now and then
(decision 75).

In between it counts to a thousand, and how much CPU time that takes tells how quick the core is.
Where requests are work of their own (:class:`dial_lab.resources.Cost`) it does such work instead:
compresses a page, a KiB at a time.

Measured in a busy hour of the hypervisor, two cores with 2 ms to do in each 10 ms, 15 s each, in
turn, five times: of a core 0.1 to 1.4 % were stolen without it (median 0.9 %), and 0.07 to 0.13 %
with it.  In the same hour a loop took 1.1 to 1.8 times its quickest, as a mean over 18 s.  How much
longer work takes than a loop differs with what somebody does there: Apache in saturation served as
s^-0.52 in one hour and as s^-0.77 in the next where s is the slowness of a count, and as s^-1.01
where it is that of a page (4 s each, 24 times, s from 1.09 to 1.51; what is left has a deviation of
1.7 %).

What it costs: the time of its core that nobody wants, and at most a third of a percent of what
somebody does.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean, median_low

from dial_lab.cgroups import Cgroups
from dial_lab.pages import MEAN_KIB, pages
from dial_lab.processes import Children
from dial_lab.topology import IDLE

_LINE_S = 0.25
"""For which one line is written."""

_MOST_TIMES = 2.5
"""The quickest.  In 99 of 100 lines somebody on the core's other thread made it twice that at most;
a count that took longer was interrupted, and had none beside it in that quarter of a second."""

_PIECE_BYTES = 1024
"""40 us of the same."""

_MEMORY_LEVEL = 9
"""Of mod_deflate, unless it is told otherwise."""

_COUNTS_TO = 1000
"""15 us of a Xeon's quick core: so long a group that has its quota back waits at most."""


class Restless:
    """The programs of a run, and what they have found.

    Parameters
    ----------
    programs
        By core.
    out
        What each writes: ``MONOTONIC_S NS`` for each quarter of a second, the CPU time of a count,
        or of a page.
    """

    def __init__(
        self, programs: Mapping[int, subprocess.Popen[bytes]], out: Mapping[int, Path]
    ) -> None:
        self.programs = programs
        self._out = out
        self._read_to = dict.fromkeys(out, 0)
        self._counts: dict[int, list[tuple[float, float]]] = {core: [] for core in out}
        self._quickest_ns = math.inf
        self._lock = threading.Lock()

    def slowdown(self, cores: Iterable[int], begin_s: float, end_s: float) -> float | None:
        """How many times its quickest work took between two moments of :func:`time.monotonic`.

        The mean of that time, on the core where it took longest, over the quickest quarter of a
        second that any core of the run has had; ``None`` where a core had something else to do all
        the time, so that nobody knows.
        """
        then = [self.took_ns(core, begin_s, end_s) for core in cores]
        if not then or not all(then):
            return None
        return max(mean_times(each, self._quickest_ns) for each in then)

    def took_ns(self, core: int, begin_s: float, end_s: float) -> list[float]:
        """CPU time of such work on one core, ns, in each quarter of a second that had any."""
        with self._lock:
            self._read()
            return [ns for at_s, ns in self._counts[core] if begin_s <= at_s < end_s]

    def _read(self) -> None:
        """What was written since the last time."""
        for core, path in self._out.items():
            with path.open("rb") as file:
                file.seek(self._read_to[core])
                # The last line may be half written.
                lines = file.read().split(b"\n")[:-1]
            for line in lines:
                at_s, ns = map(float, line.split())
                self._read_to[core] += len(line) + 1
                self._counts[core].append((at_s, ns))
                self._quickest_ns = min(self._quickest_ns, ns)


def mean_times(took_ns: Iterable[float], quick_ns: float) -> float:
    """How many times ``quick_ns`` work took, as a mean."""
    return fmean(min(ns / quick_ns, _MOST_TIMES) for ns in took_ns)


def in_words(slowdown: float, most: float) -> str:
    """How slow cores were, and how slow they may be."""
    return (
        f"work took {slowdown - 1.0:.0%} longer than machines were given more time for it, "
        f"{most - 1.0:.0%} are let pass"
    )


def start(
    children: Children, cores: Iterable[int], cgroups: Cgroups, *, of_work: bool = False
) -> Restless:
    """Start a program on each of the cores; they end with the children.

    Their group is made for them, and goes with the machines (:mod:`dial_lab.topology`).

    Parameters
    ----------
    children
        Among which.
    cores
        Their numbers.
    cgroups
        Of this computer.
    of_work
        Whether requests are work, and the programs are to do such work and not to count.

    Raises
    ------
    LabError
        If the group cannot be made.
    """
    cgroups.create_idle(IDLE)
    programs, out = {}, {}
    for core in cores:
        out[core] = children.log_dir / f"restless-{core}.txt"
        out[core].write_bytes(b"")
        argv = [sys.executable, "-m", "dial_lab.restless", f"--out={out[core]}"]
        argv += ["--of-work"] if of_work else []
        programs[core] = children.start(
            f"restless-{core}", argv, cores=[core], join=cgroups.procs_files(IDLE)
        )
    return Restless(programs, out)


def _count_ns() -> int:
    begin_ns = time.thread_time_ns()
    for _ in range(_COUNTS_TO):
        pass
    took_ns = time.thread_time_ns() - begin_ns
    os.sched_yield()
    return took_ns


def _page_ns(page: bytes) -> int:
    """As mod_deflate compresses it, and what waits for the core does not wait for all of it."""
    compress, took_ns = zlib.compressobj(memLevel=_MEMORY_LEVEL).compress, 0
    for first in range(0, len(page), _PIECE_BYTES):
        begin_ns = time.thread_time_ns()
        compress(page[first : first + _PIECE_BYTES])
        took_ns += time.thread_time_ns() - begin_ns
        os.sched_yield()
    return took_ns


def main() -> None:
    """Run while nothing else does, until ended; a line for each time, ``MONOTONIC_S NS``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--of-work", action="store_true")
    options = parser.parse_args()
    once = _count_ns
    if options.of_work:
        once = partial(_page_ns, dict(pages())[MEAN_KIB].encode("ascii"))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with options.out.open("a", encoding="ascii", buffering=1) as out:
        while True:
            until_s, took_ns = time.monotonic() + _LINE_S, list[int]()
            while time.monotonic() < until_s or not took_ns:
                took_ns.append(once())
            # One may have been interrupted.
            out.write(f"{time.monotonic():.3f} {median_low(took_ns)}\n")


if __name__ == "__main__":
    main()
