"""Cache lines, one by one: what a neighbour in the last-level cache does, on any computer.

The problem: a cache is lost to a neighbour who fills it before the victim has been round its set
again.  One core can do that where the last level has some tens of MiB (:mod:`dial_lab.resources.
llc`).  Where it has 260, or a part of it is set aside for each guest, nothing that one core does
reaches the other's set, and there was no such neighbour to measure policies beside.

The method: the neighbour takes the victim's lines themselves.  It is on another core, has the
victim's working set mapped as well, and writes to its lines (:mod:`dial_lab.neighbours.lines`):
each of them then has to be fetched from there, as it has to be fetched from memory after a sweep.
The tenant sees what it sees beside a sweep: it has all the CPU time it asks for, waits for none of
it, and needs more of it for the same work.  What is emulated is who takes the line, as a slow disk
here is a file whose reads are delayed; that the line is gone is the hardware's doing, and so is
the way to it.

Lines belong to one machine, so that all of them are alike, on one core, as for the CPU: nobody
stands apart, any of them can be visited, and strangers in the last level change nothing, as the
sets of all three fit into the second level of one core.

Which part p of the lines is taken says what the victim loses.  With h the time of a load that hits
and l what one takes longer that does not,

    rho_bg = p l / (h + p l),    so    p = (h / l) rho_bg / (1 - rho_bg).

Measured on two virtual cores of a Xeon (2 MiB of second level; 260 MiB of last level), sets of 512
KiB, passes 0.5 and 0.2 ms apart, 16 times 0.25 s each, in turn:

    =====  ===========  ===========
    p      0.5 ms       0.2 ms
    =====  ===========  ===========
    0      38.0 ns      37.2 ns
    0.25   0.17 taken   0.31 taken
    0.5    0.34         0.40
    0.75   0.43         0.51
    1      0.54         0.59
    =====  ===========  ===========

That is l / h of 1.1 and 1.4: a line is the victim's again once it has loaded it, until the next
pass.  Half is about the most that can be taken, as it is in :mod:`dial_lab.resources.llc`; what a
calibration finds is what counts.

Who has the second thread of a physical core slows both, by half for a moment: 37 ns a load or 72, a
quarter of the time, for some tenths of a second each.  All machines are on that core, so that none
of them is the slower one for it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dial.errors import LabError
from dial_lab import tenant
from dial_lab.addresses import Address
from dial_lab.neighbours import lines
from dial_lab.processes import Children
from dial_lab.resources.base import Cost, Program, chosen, limit_s
from dial_lab.topology import Machine
from dial_lab.vms import vms

KIB = 512
"""Of each machine's working set: three of them fit into a second level of 2 MiB."""

LOST_OVER_HIT = 1.2
"""l / h with passes every 0.4 ms: see the module."""

TAKER = "taker"


def part_of_lines(rho_bg: float) -> float:
    """Which part of the lines is to be taken for a loss of ``rho_bg``.

    Examples
    --------
    >>> round(part_of_lines(0.25), 3)
    0.278
    >>> part_of_lines(0.8)  # more than all of them
    1.0
    """
    if rho_bg >= 1.0:
        return 1.0
    return min(1.0, rho_bg / (1.0 - rho_bg) / LOST_OVER_HIT)


def file_of(machine: Machine) -> Path:
    """Where a machine's working set is."""
    return Path(f"/dev/shm/dial-lab-{machine.name}.lines")  # noqa: S108 - shared memory, for two


def _take(place: tuple[Path, float], seconds: int) -> list[str]:
    path, part = place
    return lines.argv(path, part, seconds)


class LinesResource:
    """See :class:`dial_lab.resources.base.Resource`."""

    name = "llc"
    victim_apart = False
    in_common = None
    cost = Cost("touches", 50_000.0)
    programs: Mapping[str, Program[tuple[Path, float]]] = {TAKER: Program(None, _take)}
    """Their place is the victim's working set, and the part of it to take."""

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """One application in each VM, its working set in a file.

        Raises
        ------
        LabError
            If there is no core for a neighbour.
        """
        if not machines[0].other_cores:
            raise LabError("llc: the neighbour needs a core beside the machines'; there is one")
        with vms(machines) as places:
            try:
                for machine in machines:
                    path = file_of(machine)
                    options = ("--working-set-kib", str(KIB), "--working-set-file", str(path))
                    tenant.start_app(children, machine, places[machine.name], options)
                yield {name: vm.address for name, vm in places.items()}
            finally:
                for machine in machines:
                    file_of(machine).unlink(missing_ok=True)

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
    ) -> subprocess.Popen[bytes]:
        """One process on a core that is not the machines'."""
        place = file_of(machine), part_of_lines(rho_bg)
        argv = chosen(self.programs, program).argv(place, limit_s(at_most_s))
        return children.start(f"neighbour-{machine.name}", argv, cores=machine.other_cores[-1:])


LINES = LinesResource()
