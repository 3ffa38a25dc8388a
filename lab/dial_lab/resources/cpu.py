"""CPU time: a program in a machine's ``bg`` group, capped there.

How an emulated machine's CPU is shared is the subject of :mod:`dial_lab.topology`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dial_lab import tenant
from dial_lab.addresses import Address
from dial_lab.neighbours import compiler
from dial_lab.processes import Children
from dial_lab.resources.base import Cost, Program, chosen, limit_s
from dial_lab.topology import Machine
from dial_lab.vms import vms


def _stress_ng(_: Path, seconds: int) -> list[str]:
    return ["stress-ng", "--quiet", "--cpu", "1", "--timeout", f"{seconds}s"]


def _sysbench(_: Path, seconds: int) -> list[str]:
    """Prime numbers, one thread."""
    return ["sysbench", "cpu", "--threads=1", f"--time={seconds}", "run"]


class CpuResource:
    """See :class:`dial_lab.resources.base.Resource`."""

    name = "cpu"
    victim_apart = False
    calibrated_together = False
    in_common = None
    cost = Cost("cpu_us", 2000.0)
    programs: Mapping[str, Program[Path]] = {
        "stress-ng-cpu": Program("training", _stress_ng),
        "sysbench": Program("unseen", _sysbench),
        "compiler": Program("unseen", compiler.argv),
    }
    """Their place is a directory for files."""

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """One application in each VM."""
        with vms(machines) as places:
            for machine in machines:
                tenant.start_app(children, machine, places[machine.name])
            yield {name: vm.address for name, vm in places.items()}

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
    ) -> subprocess.Popen[bytes]:
        """One program that wants all the CPU time it can get."""
        argv = chosen(self.programs, program).argv(children.log_dir, limit_s(at_most_s))
        machine.cap_neighbour(rho_bg)
        return children.start(
            f"neighbour-{machine.name}",
            argv,
            cores=[machine.core],
            join=machine.neighbour_files(),
        )


CPU = CpuResource()
