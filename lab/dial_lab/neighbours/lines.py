"""A neighbour that takes cache lines: it writes to them, and whoever had them has to fetch them.

A line that one core writes to is gone from all other cores' caches.  So the set of a program on
another core, in a file that both have mapped, is lost as it is to a sweep through a cache that they
share; which lines, and how often, is ours to say, and the computer's caches may be of any size.

It writes to the second word of each line, of a part of them: the first one is its owner's.
"""

from __future__ import annotations

import argparse
import mmap
import sys
import time
from pathlib import Path

import numpy as np

from dial_lab.app import Lines
from dial_lab.slowdisk import go_first

EVERY_S = 0.4e-3
"""From one pass to the next: a victim that has lost its lines takes longer to go once round them,
0.6 ms, so that it finds them lost each time."""


def take(words: memoryview, part: float, until_s: float, every_s: float = EVERY_S) -> int:
    """Write to a part of the lines again and again; returns how many passes were made.

    Parameters
    ----------
    words
        The lines, as words of 8 bytes.
    part
        Of the lines, 0 to 1; the first ones, which come anywhere in their owner's order.
    until_s
        Of :func:`time.monotonic`.
    every_s
        From the end of one pass to the next.
    """
    count = round(part * len(words) / Lines.WORDS)
    second = np.frombuffer(words, np.uint64)[1 :: Lines.WORDS][:count]
    passes = 0
    while time.monotonic() < until_s:
        second += np.uint64(1)
        passes += 1
        time.sleep(every_s)
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
    # It is a few hundredths of a millisecond at a time, and lines not taken in time are not taken.
    go_first()
    take(words, options.part, time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
