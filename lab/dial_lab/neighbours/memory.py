"""A neighbour whose work is memory: a search through a text, or STREAM's triad.

``search`` looks for a byte in a large text and does not find it.  That is C's ``memchr``, which
reads as fast as a core can: 27 GB/s from memory and 40 where most of the text is cached, on the
computers this was tried on; the triad had a third.

``triad`` computes a = b + s c on three arrays (McCalpin, "STREAM"), each as large as a last-level
cache, so that nothing of them is found there again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

TEXT_BYTES = 28 << 20
"""Most of a last-level cache of 32 MiB.  What is found there is the newest once more, so that all
else in it gets older; of 64 MiB a set lost no more, and later."""

WORDS = 1 << 22
"""Of 8 bytes: 32 MiB an array, the last-level cache of the computers this was tried on."""


def search() -> Callable[[], object]:
    """Goes once through the text."""
    # Written, so that it has memory of its own: pages that are only read are all the same one.
    text = bytearray(b"a" * TEXT_BYTES)
    return lambda: text.find(b"b")


def triad() -> Callable[[], object]:
    """Computes all of a once."""
    a, b, c = np.zeros(WORDS), np.ones(WORDS), np.ones(WORDS)

    def once() -> None:
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)

    return once


PATTERNS = {"search": search, "triad": triad}
"""By name: each makes what it works on, and returns one pass over it."""


def argv(pattern: str, seconds: int) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", __name__, pattern, f"--seconds={seconds}"]


def main() -> None:
    """Work from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", choices=PATTERNS)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    once = PATTERNS[options.pattern]()
    while time.monotonic() < end_s:
        once()


if __name__ == "__main__":
    main()
