"""A neighbour whose work is memory: it looks for a byte in a large text, and does not find it.

That is C's ``memchr``, which reads as fast as a core can: 27 GB/s from memory and 40 where most of
the text is cached, on the computers this was tried on (``memory_sweep`` has a third).
"""

from __future__ import annotations

import argparse
import sys
import time

BYTES = 28 << 20
"""Most of a last-level cache of 32 MiB.  What is found there is the newest once more, so that all
else in it gets older; of 64 MiB a set lost no more, and later."""


def argv(seconds: int) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", __name__, f"--seconds={seconds}"]


def main() -> None:
    """Search from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    end_s = time.monotonic() + parser.parse_args().seconds
    # Written, so that it has memory of its own: pages that are only read are all the same one.
    text = bytearray(b"a" * BYTES)
    while time.monotonic() < end_s:
        text.find(b"b")


if __name__ == "__main__":
    main()
