"""CPU time: ``stress-ng`` in a machine's ``bg`` group, capped there.

How an emulated machine's CPU is shared is the subject of :mod:`dial_lab.topology`.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from dial_lab import tenant
from dial_lab.addresses import Address, free_ports
from dial_lab.processes import Children
from dial_lab.resources.base import Cost
from dial_lab.topology import Machine

_MARGIN_S = 30.0
"""By how much stress-ng's own time limit exceeds what is asked: a limit, not a clock."""


class CpuResource:
    """See :class:`dial_lab.resources.base.Resource`."""

    name = "cpu"
    cost = Cost("cpu_us", 2000.0)

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """Applications on loopback."""
        ports = free_ports(len(machines))
        addresses = {
            machine.name: Address("127.0.0.1", port)
            for machine, port in zip(machines, ports, strict=True)
        }
        for machine in machines:
            tenant.start_app(children, machine, addresses[machine.name])
        yield addresses

    def start_neighbour(
        self, children: Children, machine: Machine, rho_bg: float, at_most_s: float
    ) -> subprocess.Popen[bytes]:
        """One CPU-bound process."""
        machine.cap_neighbour(rho_bg)
        timeout_s = math.ceil(at_most_s + _MARGIN_S)
        return children.start(
            f"neighbour-{machine.name}",
            ["stress-ng", "--quiet", "--cpu", "1", "--timeout", f"{timeout_s}s"],
            cores=[machine.core],
            join=machine.neighbour_files(),
        )


CPU = CpuResource()
