"""A neighbour that takes cache lines: it writes to them, and whoever had them has to fetch them.

A line that one core writes to is gone from all other cores' caches.  So the set of a program on
another core, in a file that both have mapped, is lost as it is to a sweep through a cache that they
share; which lines, and how often, is ours to say, and the computer's caches may be of any size.

It writes to the second word of each line, of a part of them, again and again: the first one is its
owner's.  It runs while nobody else wants its core.  (A pass takes 12 us where nobody has taken
lines back; to sleep between two of them, for a fifth of a millisecond, takes 55 us of CPU time.)
"""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np

from dial_lab.app import Lines


def take(words: memoryview, part: float, until_s: float) -> int:
    """Write to a part of the lines again and again; returns how many passes were made.

    Parameters
    ----------
    words
        The lines, as words of 8 bytes.
    part
        Of the lines, 0 to 1; the first ones, which come anywhere in their owner's order.
    until_s
        Of :func:`time.monotonic`.
    """
    count = round(part * len(words) / Lines.WORDS)
    second = np.frombuffer(words, np.uint64)[1 :: Lines.WORDS][:count]
    passes = 0
    while time.monotonic() < until_s:
        second += np.uint64(1)
        passes += 1
    return passes


def argv(path: Path, part: float, seconds: int) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", __name__, str(path), f"--part={part:.3f}", f"--seconds={seconds}"]


def main() -> None:
    """Take lines from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--part", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    with options.file.open("r+b") as file:
        words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    take(words, options.part, time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
