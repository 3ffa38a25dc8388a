"""The NIC: a program on the machine's host, sending out through the NIC that the VM shares.

How the NIC is shared, and why its neighbour's share is a number, is the subject of
:mod:`dial_lab.links`.  Here: what is sent.

- Answers of 16 kB, and little CPU time: at 40 Mbit/s the NIC saturates at 300 answers a
  second, for which the application needs half of its CPU time (637 a second by the
  utilisation law).
- The neighbour is real TCP, as greedy as its class lets it be: a bulk transfer, or answers of
  a memcached.  It runs on the harness' cores: CPU time is not what it is about.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dial_lab import tenant
from dial_lab.addresses import Address, wait_for_port
from dial_lab.links import Link, inside
from dial_lab.neighbours import memcached
from dial_lab.processes import Children
from dial_lab.resources.base import Cost, Program, chosen, limit_s
from dial_lab.topology import Machine
from dial_lab.vms import link_of, vms

ANSWER_BYTES = 16_000
COST = Cost("bytes", float(ANSWER_BYTES), fixed="cpu_us=100")
FLOWS = 4
"""Of the neighbour; more than one, so that a loss does not leave the NIC to the tenant."""

VALUE_BYTES = 400_000
"""Of memcached's answers; it has no more than a megabyte."""

_SINK_PORT = 5201
_MEMCACHED_PORT = 11211


def _iperf3(link: Link, seconds: int) -> list[str]:
    """A bulk transfer."""
    argv = ["iperf3", "--client", link.balancer_address, "--port", str(_SINK_PORT)]
    return [*inside(link.host), *argv, "--parallel", str(FLOWS), "--time", str(seconds)]


def _memcached(link: Link, seconds: int) -> list[str]:
    """Clients on the balancer's side, and what they start on the host."""
    options = {
        "host": link.host_address,
        "port": _MEMCACHED_PORT,
        "connections": FLOWS,
        "value-bytes": VALUE_BYTES,
        "seconds": seconds,
    }
    server = ["memcached", "-u", "root", "-l", link.host_address, "-p", str(_MEMCACHED_PORT)]
    return [
        *(sys.executable, "-I", "-S", str(Path(memcached.__file__))),
        *(f"--{name}={value}" for name, value in options.items()),
        *("--", *inside(link.host), *server),
    ]


@dataclass(frozen=True, slots=True)
class NetResource:
    """See :class:`dial_lab.resources.base.Resource`.

    Attributes
    ----------
    cost
        What requests cost; see the module's text.
    """

    cost: Cost = COST

    @property
    def name(self) -> str:
        """As in a verdict."""
        return "net"

    @property
    def programs(self) -> Mapping[str, Program[Link]]:
        """Their place is the machine's network."""
        return _PROGRAMS

    @property
    def victim_apart(self) -> bool:
        """Each machine has a NIC of its own."""
        return False

    @property
    def calibrated_together(self) -> bool:
        """Each machine has all of its own."""
        return False

    @property
    def in_common(self) -> None:
        """Nobody outside can be on it."""

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """One application in each VM, and a sink for each neighbour's traffic."""
        with vms(machines) as places:
            for machine in machines:
                tenant.start_app(children, machine, places[machine.name])
                sink = Address(link_of(machine).balancer_address, _SINK_PORT)
                children.start(
                    f"sink-{machine.name}",
                    ["iperf3", "--server", "--bind", sink.host, "--port", str(sink.port)],
                )
                wait_for_port(sink, children)
            yield {name: vm.address for name, vm in places.items()}

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
    ) -> subprocess.Popen[bytes]:
        """A program that sends all it can."""
        link = link_of(machine)
        argv = chosen(self.programs, program).argv(link, limit_s(at_most_s))
        link.cap_neighbour(rho_bg)
        return children.start(f"neighbour-{machine.name}", argv)


_PROGRAMS = {
    "iperf3": Program("training", _iperf3),
    "memcached": Program("unseen", _memcached),
}


NET = NetResource()
