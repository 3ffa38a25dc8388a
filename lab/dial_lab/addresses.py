"""Where programs of the lab listen."""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress
from typing import NamedTuple

from dial.errors import LabError
from dial_lab.processes import Children

START_WAIT_S = 5.0
# Below ip_local_port_range, whose default starts at 32768.
CHOSEN_PORTS = range(20_000, 32_000)


class Address(NamedTuple):
    """A TCP address."""

    host: str
    port: int


def wait_for_port(address: Address, children: Children, wait_s: float = START_WAIT_S) -> None:
    """Wait until somebody listens there.

    Raises
    ------
    LabError
        If nobody does in time, or a program ended meanwhile.
    """
    give_up = time.monotonic() + wait_s
    while True:
        children.check()
        try:
            socket.create_connection(address, timeout=1.0).close()
        except OSError:
            if time.monotonic() > give_up:
                raise LabError(
                    f"nobody listens on {address.host}:{address.port} after {wait_s:g} s; "
                    f"logs are in {children.log_dir}"
                ) from None
            time.sleep(0.02)
        else:
            return


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now, and that the kernel gives nobody by itself.

    A port of the kernel's own range could go to a connection before the program binds it.
    """
    ports: list[int] = []
    for port in random.sample(CHOSEN_PORTS, len(CHOSEN_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise LabError(
        f"found {len(ports)} of {count} free ports in {CHOSEN_PORTS.start}..{CHOSEN_PORTS.stop - 1}"
    )
