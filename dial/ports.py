"""Ports for what tests, benchmarks and the lab start."""

from __future__ import annotations

import itertools
import random
import socket
from contextlib import suppress

# Below the ports that the kernel hands out by itself (32768 up): none of those can be taken by a
# backend or a connection between this choice and the moment a balancer binds it.
CHOSEN_PORTS = range(20_000, 32_000)
# Each process goes round them in an order of its own.
_IN_TURN = itertools.cycle(random.sample(CHOSEN_PORTS, len(CHOSEN_PORTS)))


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A loopback port that nobody uses now, and that the kernel gives to nobody by itself.

    In turn, not drawn each time: a port that was chosen but is not bound yet looks free, and a
    balancer that needs three would get one twice in one of 4,000 starts.

    Raises
    ------
    OSError
        If none is free.
    """
    for port in itertools.islice(_IN_TURN, len(CHOSEN_PORTS)):
        with socket.socket(socket.AF_INET, kind) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of the ports {CHOSEN_PORTS.start}..{CHOSEN_PORTS.stop - 1} is free")
