"""The application's own lock: as slow as beside a neighbour, and all hardware idle.

The tenant's application is one whose requests need a lock (:mod:`dial_lab.locked_app`), and what
visits a machine is a job of the tenant's own that holds that lock for a part of the time.  So
the machine serves less, as it would beside a neighbour, and nobody takes anything of it: the
true rho_bg is 0.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dial_lab import locked_app, tenant
from dial_lab.addresses import START_WAIT_S, Address, wait_for_port
from dial_lab.neighbours import reports
from dial_lab.processes import Children
from dial_lab.resources.base import Program, chosen, limit_s
from dial_lab.resources.cpu import CPU
from dial_lab.topology import Machine
from dial_lab.vms import Vm, address_of, vms


@dataclass(frozen=True, slots=True)
class Held:
    """An application, and the part of the time in which its lock is held."""

    address: Address
    part: float


def _reports(held: Held, seconds: int) -> list[str]:
    options = {
        "host": held.address.host,
        "port": held.address.port,
        "held": held.part,
        "seconds": seconds,
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", reports.__name__, *given]


def _start(children: Children, machine: Machine, vm: Vm) -> None:
    # What a killed lab left would be refused by agents, and by the library.
    tenant.page_of(machine).unlink(missing_ok=True)
    children.start(
        f"app-{machine.name}",
        [
            *(*vm.enter, sys.executable, "-m", locked_app.__name__),
            *("--host", vm.address.host, "--port", str(vm.address.port)),
            *("--page", str(tenant.page_of(machine))),
        ],
        cores=[machine.core],
        join=machine.tenant_files(),
    )
    wait_for_port(vm.address, children, 3.0 * START_WAIT_S)


class IntraAppResource:
    """See :class:`dial_lab.resources.base.Resource`; its ``neighbour`` is a job of the tenant's."""

    name = "intra-app"
    victim_apart = False
    calibrated_together = False
    in_common = None
    cost = CPU.cost
    programs: Mapping[str, Program[Held]] = {"reports": Program("training", _reports)}

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """One application with a lock in each VM."""
        try:
            with vms(machines) as places:
                for machine in machines:
                    _start(children, machine, places[machine.name])
                yield {name: vm.address for name, vm in places.items()}
        finally:
            # With its network an application is killed, and leaves its page behind.
            for machine in machines:
                tenant.page_of(machine).unlink(missing_ok=True)

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
    ) -> subprocess.Popen[bytes]:
        """A job of the tenant's that holds the lock for ``rho_bg`` of the time."""
        held = Held(address_of(machine), rho_bg)
        argv = chosen(self.programs, program).argv(held, limit_s(at_most_s))
        return children.start(f"job-{machine.name}", argv, join=machine.tenant_files())


INTRA_APP = IntraAppResource()
