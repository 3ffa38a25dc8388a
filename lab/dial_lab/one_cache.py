"""Whether two cores have a last-level cache in common, several times a second.

The problem: a hypervisor puts virtual cores where it likes, and moves them.  A server's processor
has several last-level caches, each of a few cores; while a guest's two virtual cores are placed at
different ones, nothing that one of them does reaches the other's cache.  A neighbour in the cache,
which runs on another core than its victim, is not there then, however busy it is.

The method: one core writes some lines, the other follows a chain of pointers through them, twice.
Each load has to wait for the one before.  The first time a line comes from the core that wrote it,
the second time from the follower's own; what the first time takes more is the way between the two,
whatever this interpreter and the core's clock add to both.  (The lines stand apart from each other,
or they would be fetched before they are asked for.)

Measured on two virtual cores of an EPYC (family 25, model 17), beside the round trip of one line by
a compiled program, 672 times in two minutes: 3 to 26 ns where the round trip took 47 to 85 ns, 116
to 125 where it took 255 to 294.  The cores were apart for 1 to 35 of 100 moments of a minute, for
0.2 to 10 s at a time, more when both had much to do.  A chain through 3.5 MiB took, beside
``stress-ng --memrate`` on the other core, 128 to 142 ns a load (medians of three times 28 s) in the
moments in which they were together and 17, 17 and 51 when they were apart; alone 19 to 22.

What it costs: half a millisecond of each core four times a second, and 16 KiB of cache.

Where the cores never share one, the neighbour has to be somewhere else; where they always do, as on
a computer without a hypervisor, this says so.
"""

from __future__ import annotations

import argparse
import itertools
import mmap
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

import numpy as np

from dial.errors import LabError, LabUnquiet
from dial_lab.processes import Children
from dial_lab.resources.base import Resource
from dial_lab.slowdisk import go_first
from dial_lab.topology import Machine

APART_NS = 60.0
"""A line's way at which the cores are apart: see the module."""

EVERY_S = 0.25
"""The cores were apart for 0.2 s and more."""

MOST_APART = 0.1
"""Part of a neighbour's time: what it takes is off by as much, and less than what is measured."""

_SILENT_S = 2.0
"""Longer than that nothing may be measured: the program has ended, or never got its core."""

FIRST_S = 5.0
"""Of a neighbour's time, in which a controller is to notice it: it has to be there as much."""

_LINES = 256
"""With them a way is known to a nanosecond or two, and little of the cache is used."""
_WORDS_BETWEEN = 32
"""256 bytes: further than what is fetched with a line."""
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Apart:
    """For how long two cores had no cache in common.

    Attributes
    ----------
    part
        Of the time looked at, 0 to 1.
    at_first
        Of its first :data:`FIRST_S`.
    """

    part: float
    at_first: float

    def __str__(self) -> str:
        return (
            f"for {self.part:.0%} of the neighbour's time and {self.at_first:.0%} of its first "
            f"{FIRST_S:g} s this computer's cores had no last-level cache in common, so that "
            "nobody was there"
        )

    @property
    def worst(self) -> float:
        """The larger of the two."""
        return max(self.part, self.at_first)

    @property
    def much(self) -> bool:
        """Whether what is measured meanwhile says little of a neighbour in the cache."""
        return self.worst > MOST_APART


def apart(ways: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> Apart:
    """What was measured from ``begin_s`` to ``end_s``.

    Parameters
    ----------
    ways
        Moments, s, and how long a line took from core to core at each, ns; in order.
    begin_s, end_s
        Of the same clock.

    Raises
    ------
    LabError
        If nothing was measured in a part of that time.

    Examples
    --------
    >>> apart([(0.0, 15.0), (0.5, 120.0), (1.0, 120.0), (1.5, 15.0)], 0.0, 2.0)
    Apart(part=0.5, at_first=0.5)
    """
    return Apart(_part(ways, begin_s, end_s), _part(ways, begin_s, min(end_s, begin_s + FIRST_S)))


def _part(ways: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> float:
    inside = [(at_s, ns) for at_s, ns in ways if begin_s <= at_s < end_s]
    moments_s = [*(at_s for at_s, _ in inside), end_s]
    gaps_s = [later_s - at_s for at_s, later_s in itertools.pairwise(moments_s)]
    if not inside or max(inside[0][0] - begin_s, *gaps_s) > _SILENT_S:
        raise LabError(
            "llc: whether the cores have a cache in common was not measured all the time"
        )
    apart_s = sum(gap_s for (_, ns), gap_s in zip(inside, gaps_s, strict=True) if ns >= APART_NS)
    return apart_s / (end_s - inside[0][0])


class Watch:
    """What is measured of two cores while a program of its own does that.

    Parameters
    ----------
    out
        What the program writes.
    """

    def __init__(self, out: Path) -> None:
        self._out = out

    def apart(self, begin_s: float, end_s: float) -> Apart:
        """For how long the cores were apart between two moments of :func:`time.monotonic`.

        Raises
        ------
        LabError
            If the program wrote nothing of a part of that time.
        """
        # The last line may be half written.
        lines = self._out.read_text(encoding="ascii").split("\n")[:-1]
        ways = [(float(at_s), float(ns)) for at_s, ns in map(str.split, lines)]
        return apart(ways, begin_s, end_s)

    def require_together(self, begin_s: float, end_s: float) -> None:
        """See :attr:`Apart.much`.

        Raises
        ------
        LabUnquiet
            If the cores were apart too long between two moments of :func:`time.monotonic`.
        LabError
            As :meth:`apart`.
        """
        found = self.apart(begin_s, end_s)
        if found.much:
            raise LabUnquiet(f"llc: {found}; {MOST_APART:.0%} of each are let pass")


@contextmanager
def watching(children: Children, resource: Resource, machine: Machine) -> Iterator[Watch | None]:
    """Measure the machine's core and its neighbour's for the time of the ``with``.

    ``None`` where a neighbour is on the machine's own core.  What is measured is in
    ``cores-ONE-OTHER.txt`` beside the children's logs.
    """
    if not resource.victim_apart:
        yield None
        return
    one, other = machine.other_cores[-1], machine.core
    name = f"cores-{one}-{other}"
    out = children.log_dir / f"{name}.txt"
    out.write_bytes(b"")
    argv = [sys.executable, "-m", __name__, f"--cores={one},{other}", f"--out={out}"]
    program = children.start(name, argv)
    try:
        yield Watch(out)
    finally:
        children.stop(program)


def _chain() -> list[tuple[int, int]]:
    """Each line's first word, and which word comes after it: once through all, in no order."""
    words = [int(line) * _WORDS_BETWEEN for line in np.random.default_rng(1).permutation(_LINES)]
    return list(zip(words, [*words[1:], words[0]], strict=True))


def _pass_ns(memory: memoryview) -> int:
    """Follow the chain once; how long it took."""
    word = 0
    begin_ns = time.perf_counter_ns()
    for _ in range(_LINES):
        word = memory[word]
    return time.perf_counter_ns() - begin_ns


def measure(one: int, other: int) -> Iterator[float]:
    """How long a line takes from core ``other`` to core ``one``, ns; without end.

    Both come before all else on their cores, for the fraction of a millisecond that it takes: a
    core that waits for its turn would measure how long it waited.
    """
    memory = memoryview(mmap.mmap(-1, _LINES * _WORDS_BETWEEN * 8)).cast("Q")
    asked, ask = os.pipe()
    written, write = os.pipe()
    chain = _chain()
    if not os.fork():
        os.close(ask)
        os.close(written)
        os.sched_setaffinity(0, {other})
        go_first()
        # Ends with whoever asks: its end of the pipe is closed then.
        while os.read(asked, 1):
            for word, following in chain:
                memory[word] = following
            os.write(write, b"x")
        os._exit(0)
    os.close(asked)
    os.close(write)
    os.sched_setaffinity(0, {one})
    go_first()
    while True:
        ways_ns = []
        for _ in range(_TRIES):
            os.write(ask, b"x")
            if not os.read(written, 1):
                raise LabError(f"llc: who writes on core {other} has ended")
            ways_ns.append((_pass_ns(memory) - _pass_ns(memory)) / _LINES)
        # One may have been interrupted, in either pass.
        yield median_low(ways_ns)


def main() -> None:
    """Measure two cores until told to end; a line for each time, ``MONOTONIC_S NS``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    one, other = map(int, options.cores.split(","))
    with options.out.open("a", encoding="ascii", buffering=1) as out:
        for way_ns in measure(one, other):
            out.write(f"{time.monotonic():.3f} {way_ns:.1f}\n")
            time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
