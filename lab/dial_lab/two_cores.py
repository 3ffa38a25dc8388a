"""Whether two cores have a last-level cache in common, four times a second; and keep it so.

The problem: a hypervisor puts virtual cores where it likes, and moves them.  A server's processor
has several last-level caches, each of a few cores; while a guest's two virtual cores are placed at
different ones, nothing that one of them does reaches the other's cache.

The method: one core writes some lines, the other follows a chain of pointers through them, twice.
Each load has to wait for the one before.  The first time a line comes from the core that wrote it,
the second time from the follower's own; what the first time takes more is the way between the two,
whatever this interpreter and the core's clock add to both.  (The lines stand apart from each other,
or they would be fetched before they are asked for.)

Measured on two virtual cores of an EPYC (family 25, model 17), beside the round trip of one line by
a compiled program, 672 times in two minutes: 3 to 26 ns where the round trip took 47 to 85 ns, 116
to 125 where it took 255 to 294.

What keeps them together: a core that never rests stays where it is, and one that rests is put near
the one that wakes it.  So while the two are together each has a program that runs when nothing else
does; while they are apart these rest, and the two cores wake each other 2,000 times a second.  Of a
minute in which both cores had 60 % to do, three times each, in turn:

    ==================================  ===============  =====
    programs                            apart            moves
    ==================================  ===============  =====
    none                                30, 4 and 14 %   7-12
    never rest                          38, 6 and 72 %   1-3
    never rest while together           6, 11 and 11 %   6-16
    and wake each other while apart     3, 2 and 2 %     6-10
    ==================================  ===============  =====

With the last they were apart for a quarter of a second at a time, three quarters at most; with none
for 6 s.  (Programs in C did that, told by this one's figures.)

What it costs: half a millisecond of each core four times a second, 16 KiB of cache, the time of
both that nobody wants, and while they are apart some 50 us of every half millisecond.

Where the cores never share a cache, the neighbour has to be somewhere else; where they always do,
as on a computer without a hypervisor, this says so.
"""

from __future__ import annotations

import argparse
import mmap
import os
import select
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median_low

import numpy as np

from dial.errors import LabError
from dial_lab.slowdisk import go_first

APART_NS = 60.0
"""A line's way at which the cores are apart: see the module."""

EVERY_S = 0.25
"""The cores were apart for 0.2 s and more."""

_WAKE_S = 0.5e-3
"""Between two times that cores that are apart wake each other."""

_LONGER = 1.1
"""For how much longer than :data:`EVERY_S` a core does not rest: to be told so may take a while."""

_LINES = 256
"""With them a way is known to a nanosecond or two, and little of the cache is used."""
_WORDS_BETWEEN = 32
"""256 bytes: further than what is fetched with a line."""
_TRIES = 4

_WRITE, _WAKE = b"w", b"."
"""What the other core is told: to write the lines, or to answer only."""


def _chain() -> list[tuple[int, int]]:
    """Each line's first word, and which word comes after it: once through all, in no order."""
    words = [int(line) * _WORDS_BETWEEN for line in np.random.default_rng(1).permutation(_LINES)]
    return list(zip(words, [*words[1:], words[0]], strict=True))


def _pass_ns(memory: Sequence[int] | memoryview) -> int:
    """Follow the chain once; how long it took."""
    word = 0
    begin_ns = time.perf_counter_ns()
    for _ in range(_LINES):
        word = memory[word]
    return time.perf_counter_ns() - begin_ns


def _start(run: Callable[[], None]) -> int:
    """Run something in a child, which then ends, and prints what was raised; the child's id."""
    if process := os.fork():
        return process
    status = 1
    try:
        run()
        status = 0
    except BaseException:  # noqa: BLE001 - it is printed, and the process ends
        traceback.print_exc()
    finally:
        os._exit(status)


class Pair:
    """Two cores, between which a line's way is measured, and which wake each other.

    Both processes come before all else on their cores, for the fraction of a millisecond that it
    takes: one that waits for its turn would measure how long it waited.

    Parameters
    ----------
    one, other
        The cores; this process is on the first from now on.
    """

    def __init__(self, one: int, other: int) -> None:
        self._other = other
        self._memory = memoryview(mmap.mmap(-1, _LINES * _WORDS_BETWEEN * 8)).cast("Q")
        asked, self._ask = os.pipe()
        self._done, done = os.pipe()

        def answer() -> None:
            os.close(self._ask)
            os.close(self._done)
            os.sched_setaffinity(0, {other})
            go_first()
            _answer(asked, done, self._memory)

        _start(answer)
        os.close(asked)
        os.close(done)
        os.sched_setaffinity(0, {one})
        go_first()

    def way_ns(self) -> float:
        """How long a line takes from the other core to the first, ns."""
        ways_ns = []
        for _ in range(_TRIES):
            self._tell(_WRITE)
            ways_ns.append((_pass_ns(self._memory) - _pass_ns(self._memory)) / _LINES)
        # One may have been interrupted, in either pass.
        return median_low(ways_ns)

    def wake_each_other(self, seconds: float) -> None:
        """For so long, every half millisecond."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(_WAKE_S)
            self._tell(_WAKE)

    def _tell(self, what: bytes) -> None:
        try:
            os.write(self._ask, what)
            answered = os.read(self._done, 1)
        except BrokenPipeError:
            answered = b""
        if not answered:
            raise LabError(f"llc: who answers on core {self._other} has ended")


def _answer(asked: int, done: int, memory: memoryview) -> None:
    """Write the lines when told to; ends with whoever asks, for its end of the pipe is closed."""
    chain = _chain()
    while what := os.read(asked, 1):
        if what == _WRITE:
            for word, following in chain:
                memory[word] = following
        with suppress(BrokenPipeError):  # who asked has ended, and the next read says so
            os.write(done, what)


def keep_busy(core: int, groups: Sequence[Path]) -> int:
    """Start a process that lets a core not rest for :data:`EVERY_S`, each time that it is told so.

    It runs while nothing else does there, and ends with whoever tells it: with who was forked
    later first, for those have inherited its end of the pipe.

    Parameters
    ----------
    core
        Its core.
    groups
        Files into which its id is written, so that it joins a control group.

    Returns
    -------
    int
        What to write a byte into.
    """
    told, tell = os.pipe()

    def run() -> None:
        os.close(tell)
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        # Who was not let run for a while has been told so more than once.
        while os.read(told, select.PIPE_BUF):
            until_s = time.monotonic() + _LONGER * EVERY_S
            while time.monotonic() < until_s:
                # A group that has its quota back is let run at a tick, or at this.
                os.sched_yield()

    process = _start(run)
    os.close(told)
    for path in groups:
        path.write_text(str(process), encoding="ascii")
    return tell


def keep_together(pair: Pair, busy: Sequence[int], way_ns: float) -> None:
    """For :data:`EVERY_S`: let neither core rest, or wake each other where they are apart.

    Parameters
    ----------
    pair
        The cores.
    busy
        What :func:`keep_busy` returned, for each of them.
    way_ns
        How long a line just took.

    Raises
    ------
    LabError
        If one of the programs has ended, which shows while the cores are together, or who
        answers, while they are apart.
    """
    if way_ns >= APART_NS:
        pair.wake_each_other(EVERY_S)
        return
    for tell in busy:
        try:
            os.write(tell, b"x")
        except BrokenPipeError:
            raise LabError("llc: what keeps a core from resting has ended") from None
    time.sleep(EVERY_S)


def main() -> None:
    """Measure two cores until told to end; a line for each time, ``MONOTONIC_S NS``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--restless", type=Path, action="append", default=[])
    options = parser.parse_args()
    one, other = map(int, options.cores.split(","))
    busy = [keep_busy(core, options.restless) for core in (one, other)]
    pair = Pair(one, other)
    with options.out.open("a", encoding="ascii", buffering=1) as out:
        while True:
            way_ns = pair.way_ns()
            out.write(f"{time.monotonic():.3f} {way_ns:.1f}\n")
            keep_together(pair, busy, way_ns)


if __name__ == "__main__":
    main()
