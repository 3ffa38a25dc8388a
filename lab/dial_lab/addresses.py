"""Where programs of the lab listen."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from dial.errors import LabError
from dial.ports import free_port
from dial_lab.processes import Children

START_WAIT_S = 5.0


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
    """Loopback ports, none of which this process was given a short while ago.

    See Also
    --------
    dial.ports.free_port
    """
    return [free_port() for _ in range(count)]
