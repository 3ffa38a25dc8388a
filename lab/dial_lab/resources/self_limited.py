"""The VM's own CPU quota: as slow as beside a neighbour, and no neighbour there.

A provider's allowance, a burst credit that ran out, a container's limit: the ``fg`` group
gets a quota of its own, ``1 - rho_bg`` of the machine, and what it may not use nobody uses.
A neighbour leaves the VM just as much; the difference is that here the VM's own throttle
counter grows.

The two sets differ in the quota's period: 20 ms for training, and for the unseen test the
100 ms of Docker, Kubernetes and systemd, in which a VM works for a while and then stands still
for the rest of a tenth of a second.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dial_lab.addresses import Address
from dial_lab.neighbours import own_quota
from dial_lab.processes import Children
from dial_lab.resources.base import Program, chosen, limit_s
from dial_lab.resources.cpu import CPU
from dial_lab.topology import Machine


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU time that a group may use."""

    group: str
    cores: float


def _every_20_ms(quota: Quota, seconds: int) -> list[str]:
    return _argv(quota, 20_000, seconds)


def _every_100_ms(quota: Quota, seconds: int) -> list[str]:
    return _argv(quota, 100_000, seconds)


def _argv(quota: Quota, period_us: int, seconds: int) -> list[str]:
    options = {
        "group": quota.group,
        "quota-us": round(quota.cores * period_us),
        "period-us": period_us,
        "seconds": seconds,
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", own_quota.__name__, *given]


class SelfLimitedResource:
    """See :class:`dial_lab.resources.base.Resource`; its ``neighbour`` is the quota."""

    name = "self-limited"
    victim_apart = False
    calibrated_together = False
    in_common = None
    cost = CPU.cost
    programs: Mapping[str, Program[Quota]] = {
        "quota-20ms": Program("training", _every_20_ms),
        "quota-100ms": Program("unseen", _every_100_ms),
    }

    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> AbstractContextManager[Mapping[str, Address]]:
        """As where the CPU is what matters."""
        return CPU.tenants(machines, children)

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
    ) -> subprocess.Popen[bytes]:
        """A program that sets the quota, and lifts it again when it ends."""
        quota = Quota(machine.fg, (1.0 - rho_bg) * machine.capacity_cores)
        argv = chosen(self.programs, program).argv(quota, limit_s(at_most_s))
        return children.start(f"quota-{machine.name}", argv)


SELF_LIMITED = SelfLimitedResource()
