"""The CPU resource with the tenants in guests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dial_lab import app, tenant
from dial_lab.addresses import Address
from dial_lab.guests.uml import Guest, guests
from dial_lab.processes import Children
from dial_lab.resources import Resource
from dial_lab.resources.cpu import CpuResource
from dial_lab.topology import Machine
from dial_lab.vms import Vm

_APP_PORT = 8080

_START_WAIT_S = 20.0
"""Python starts there at a third of a core and by slow system calls: 2.2 s measured."""


class GuestCpu(CpuResource):
    """As under the shared kernel, with the tenants elsewhere: neighbours are outside guests."""

    # A connection is some twenty system calls, each 70 times as slow as elsewhere.
    cost = replace(CpuResource.cost, new_connections=False)

    def __init__(self, guests: Mapping[str, Guest]) -> None:
        self._guests = guests

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """Applications in the guests, all with the same measure of work."""
        passes = ("--passes-per-us", f"{app.measure_passes_per_us():.3f}")
        addresses = {}
        for machine in machines:
            guest = self._guests[machine.name]
            address = Address(guest.address, _APP_PORT)
            vm = Vm(address, guest.enter)
            tenant.start_app(children, machine, vm, passes, wait_s=_START_WAIT_S)
            addresses[machine.name] = address
        yield addresses


@contextmanager
def under(
    guest: str, resource: Resource, machines: Sequence[Machine], children: Children
) -> Iterator[tuple[Resource, Mapping[str, Guest]]]:
    """The resource as it is under the kernels asked for, and the guests if they are any.

    Parameters
    ----------
    guest : ``shared`` or ``uml``.
    resource : under the shared kernel; in guests it is the CPU, which callers see to.
    machines : where guests are booted, one each.
    children : among which they run.
    """
    if guest != "uml":
        yield resource, {}
        return
    with guests(machines, children) as booted:
        yield GuestCpu(booted), booted
