"""A neighbour whose work is memory: STREAM's triad.

It computes a = b + s c on three arrays (McCalpin, "STREAM"), each as large as a last-level cache,
so that nothing of them is found there again.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

WORDS = 1 << 22
"""Of 8 bytes: 32 MiB an array, the last-level cache of the computers this was tried on."""


def argv(seconds: int) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", __name__, f"--seconds={seconds}"]


def main() -> None:
    """Sweep from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    end_s = time.monotonic() + parser.parse_args().seconds
    a, b, c = np.zeros(WORDS), np.ones(WORDS), np.ones(WORDS)
    while time.monotonic() < end_s:
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)


if __name__ == "__main__":
    main()
