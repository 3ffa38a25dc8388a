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

Measured with l = h on two virtual cores of a Xeon (2 MiB of second level; 260 MiB of last level),
all three machines saturated, 2 s each time:

    =====  =====  ======================  =============
    asked  p      taken                   of a sibling
    =====  =====  ======================  =============
    0.20   0.25   0.22, 0.21, 0.20, 0.22  -0.04 to 0.03
    0.33   0.5    0.34, 0.36, 0.29, 0.36  -0.03 to 0.05
    0.50   1      0.52, 0.49, 0.51, 0.47  -0.01 to 0.06
    =====  =====  ======================  =============

Half is what can be taken, as it is in :mod:`dial_lab.resources.llc`.  What a calibration finds is
what counts.

How long a load takes that hits differs, because somebody outside has the second thread of the
core: 37 ns or 72, for some tenths of a second each, a quarter of the time.  Work is as many loads
as take a given time just then with every line at hand (:class:`dial_lab.app.Lines`), and does not
differ.  With a fixed number of loads, P90 of one policy was 31 to 210 ms in three rounds at three
quarters of the load: such tenths of a second are an overload of all three machines, whatever a
policy does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dial_lab import tenant
from dial_lab.addresses import Address
from dial_lab.neighbours import lines
from dial_lab.processes import Children
from dial_lab.resources.base import Cost, Program, chosen, limit_s, require_another_core
from dial_lab.topology import Machine
from dial_lab.vms import vms

LOST_OVER_HIT = 1.0
"""l / h: see the module."""

TAKER = "taker"
"""The program that takes them."""


def part_of_lines(rho_bg: float) -> float:
    """Which part of the lines is to be taken for a loss of ``rho_bg``.

    Examples
    --------
    >>> round(part_of_lines(0.25), 3)
    0.333
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
    calibrated_together = True
    in_common = None
    cost = Cost("lines_us", 2000.0)
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
        require_another_core(machines[0])
        with vms(machines) as places:
            try:
                for machine in machines:
                    options = ("--lines-file", str(file_of(machine)))
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
        """One process on a core that is not the machines', while nobody else wants it."""
        place = file_of(machine), part_of_lines(rho_bg)
        argv = chosen(self.programs, program).argv(place, limit_s(at_most_s))
        # The first core is nobody's machine, however many there are.
        return children.start(f"neighbour-{machine.name}", argv, cores=machine.other_cores[:1])


LINES = LinesResource()
