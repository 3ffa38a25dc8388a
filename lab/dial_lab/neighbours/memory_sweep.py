"""A neighbour whose work is memory: STREAM's triad, or one large sort after the other.

``triad`` computes a = b + s c on three arrays (McCalpin, "STREAM"), ``sort`` sorts random
numbers.  Each array is as large as a last-level cache, so nothing of it is found there again.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

WORDS = 1 << 22
"""Of 8 bytes: 32 MiB an array, the last-level cache of the computers this was tried on."""


def argv(kind: str, seconds: int) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", __name__, kind, f"--seconds={seconds}"]


def main() -> None:
    """Sweep from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("triad", "sort"))
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    if options.kind == "triad":
        a, b, c = np.zeros(WORDS), np.ones(WORDS), np.ones(WORDS)
        while time.monotonic() < end_s:
            np.multiply(c, 3.0, out=a)
            np.add(a, b, out=a)
    else:
        numbers = np.random.default_rng(0).random(WORDS)
        while time.monotonic() < end_s:
            np.sort(numbers)


if __name__ == "__main__":
    main()
