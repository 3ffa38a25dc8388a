"""The NIC: ``iperf3`` on the machine's host, sending out through the NIC that the VM shares.

How the NIC is shared, and why its neighbour's share is a number, is the subject of
:mod:`dial_lab.links`.  Here: what is sent.

- Answers of 16 kB, and little CPU time: at 40 Mbit/s the NIC saturates at 300 answers a
  second, for which the application needs half of its CPU time (637 a second by the
  utilisation law).
- A new connection for each request, because the connect time is the paper's own signal of
  a busy network (T_c, section 4.3.1), and a kept connection has none.
- The neighbour is real TCP, as greedy as its class lets it be.  It runs on the harness'
  cores: CPU time is not what it is about.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from dial_lab import links, tenant
from dial_lab.addresses import Address, wait_for_port
from dial_lab.links import Link, inside
from dial_lab.processes import Children
from dial_lab.resources.base import Cost
from dial_lab.topology import Machine

NIC_BIT_S = 40_000_000
ANSWER_BYTES = 16_000
FLOWS = 4
"""Of the neighbour; more than one, so that a loss does not leave the NIC to the tenant."""

_APP_PORT = 8080
_SINK_PORT = 5201
_MARGIN_S = 30.0
"""By how much iperf3's own time limit exceeds what is asked: a limit, not a clock."""


class NetResource:
    """See :class:`dial_lab.resources.base.Resource`."""

    name = "net"
    cost = Cost("bytes", float(ANSWER_BYTES), fixed="cpu_us=100", new_connections=True)

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """Applications in a VM's namespace each, and a sink for each neighbour's traffic."""
        with links.links(_link(machine) for machine in machines):
            addresses = {}
            for machine in machines:
                link = _link(machine)
                address = Address(link.vm_address, _APP_PORT)
                tenant.start_app(children, machine, address, enter=inside(link.vm))
                sink = Address(link.balancer_address, _SINK_PORT)
                children.start(
                    f"sink-{machine.name}",
                    ["iperf3", "--server", "--bind", sink.host, "--port", str(sink.port)],
                )
                wait_for_port(sink, children)
                addresses[machine.name] = address
            yield addresses

    def start_neighbour(
        self, children: Children, machine: Machine, rho_bg: float, at_most_s: float
    ) -> subprocess.Popen[bytes]:
        """A bulk transfer."""
        link = _link(machine)
        link.cap_neighbour(rho_bg)
        argv = ["iperf3", "--client", link.balancer_address, "--port", str(_SINK_PORT)]
        argv += ["--parallel", str(FLOWS), "--time", str(math.ceil(at_most_s + _MARGIN_S))]
        return children.start(f"neighbour-{machine.name}", [*inside(link.host), *argv])


def _link(machine: Machine) -> Link:
    return Link(machine.name, NIC_BIT_S)


NET = NetResource()
