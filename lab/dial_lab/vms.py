"""The tenant's VMs: each behind the NIC of its machine, whatever the resource of a scenario.

All machines have the same parts, so that what an agent sees does not tell which experiment it
is in: a classifier that learns from recordings would learn that connect times mean the
network, were they recorded beside a shared NIC only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dial_lab import links
from dial_lab.addresses import Address
from dial_lab.links import Link, inside
from dial_lab.topology import Machine

NIC_BIT_S = 40_000_000
"""Small enough that a third of a core saturates it with answers of 16 kB."""

_APP_PORT = 8080


@dataclass(frozen=True, slots=True)
class Vm:
    """Where a tenant's application runs.

    Attributes
    ----------
    address
        Where it is to listen.
    enter
        Start of a command line that runs the rest of it there.
    """

    address: Address
    enter: tuple[str, ...]


def link_of(machine: Machine) -> Link:
    """The network of a machine."""
    return Link(machine.name, NIC_BIT_S)


def address_of(machine: Machine) -> Address:
    """Where the application of a machine's VM listens."""
    return Address(link_of(machine).vm_address, _APP_PORT)


@contextmanager
def vms(machines: Sequence[Machine]) -> Iterator[Mapping[str, Vm]]:
    """Build a VM on each machine, by the machine's name; they are removed at exit."""
    wanted = {machine.name: link_of(machine) for machine in machines}
    with links.links(wanted.values()):
        yield {
            machine.name: Vm(address_of(machine), inside(wanted[machine.name].vm))
            for machine in machines
        }
