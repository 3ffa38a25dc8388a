"""Run a program in a guest as if it ran here: ``enter.py ADDRESS PORT PROGRAM [ARGUMENT]...``.

What the program prints comes out here, its exit code is ours, and when we are ended, so is
it.  The other end is :mod:`.init`.  Runs as a file, with the standard library alone.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

CONNECTION_LOST = 125
"""Our own exit code when the guest has gone: as of programs that start others (env, timeout)."""


def run(address: str, port: int, argv: Sequence[str], out: BinaryIO) -> int:
    """Run ``argv`` there, with its output to ``out``; returns its exit code."""
    code = b""
    found = b""
    # A connection that breaks says no more than one that ends without a code.
    with suppress(ConnectionError), socket.create_connection((address, port)) as guest:
        guest.sendall(json.dumps(list(argv)).encode() + b"\n")
        while data := guest.recv(65_536):
            if found:
                code += data
                continue
            said, found, code = data.partition(b"\x00")
            out.write(said)
            out.flush()
    return int(code) % 256 if found else CONNECTION_LOST


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], int(sys.argv[2]), sys.argv[3:], sys.stdout.buffer))
