"""The last-level cache: ``stress-ng --cache`` on another core, capped there.

The problem: cores share the last cache, and a neighbour that sweeps through it makes every
load of the tenant that used to hit there a trip to memory.  The tenant gets all the CPU time
it asks for, and needs more of it for the same work.

There is one last-level cache for all the emulated machines, and contention for it cannot be
kept to one of them by place.  It is kept to one by *size*: the victim's working set (2 MiB)
lives in the shared cache, those of its siblings (64 KiB) in their core's own second level,
which a neighbour on another core does not reach.  The siblings' loads are nearer, so they make
more of them for each one asked for: as many as make the machines alike when nobody disturbs.
Measured on two cores with 1 MiB of second level each and 32 MiB of last level:

- of 1.5, 2 and 3 MiB for the victim, 2 was both steady alone (saturation 137 to 149 req/s) and
  open to a neighbour.  3 MiB gave 46 to 100 req/s alone: whoever else is in the last cache,
  outside the computer too, takes of it in the 7 of 10 ms in which the machine rests.
- siblings with 512 KiB lost up to 0.29 of their capacity (the second level is not theirs while
  they rest), with 64 KiB 0.07 at most.
- the time of a touch grows in proportion to the neighbour's CPU time c (in cores), so that
  rho_bg = 1 - 1 / (1 + k c); c = 0.05, 0.1, 0.2, 0.4, 0.8 gave rho_bg = 0.20, 0.29, 0.50,
  0.75, 0.84, k = 5 to 7.

Alike they are in saturation, as calibration has them.  At half load the victim finds part of
its set gone after each pause: in a run on a busy computer its requests took 3.8 ms of CPU, its
siblings' 2.1.  A victim that is left with little load stays slow for that reason, also when
the neighbour has gone.

What the last cache loses is nobody's to promise, so here more than elsewhere the true rho_bg
is the one that the run's calibration measured, not the one asked for; 0.8 or so is the most.
The neighbour runs beside balancer and load generator: its group runs only while they do not,
up to its quota.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median

from dial.errors import LabError
from dial_lab import tenant
from dial_lab.addresses import Address, free_ports
from dial_lab.app import WorkingSet
from dial_lab.cgroups import PREFIX
from dial_lab.processes import Children
from dial_lab.resources.base import Cost
from dial_lab.topology import CAPACITY_CORES, Machine

VICTIM_KIB = 2048
SIBLING_KIB = 64

SLOWEST_QUIET_NS = 25.0
"""A touch by the victim alone: 13 to 15 ns measured.  Slower, and somebody is there already."""

SLOWING_PER_CORE = 6.0
"""The k of the module's text."""

MOST_CORES = 0.8
"""For the neighbour: the rest of its core is the balancer's and the load generator's."""

_NEIGHBOUR = f"{PREFIX}llc"
_PERIOD_US = 10_000
_MARGIN_S = 30.0
"""By how much stress-ng's own time limit exceeds what is asked: a limit, not a clock."""

_TRIES = 3
_TRY_S = 1.5
_PAUSE_S = 3.0


def neighbour_cores(rho_bg: float) -> float:
    """CPU time that makes a neighbour take about ``rho_bg``, cores.

    Examples
    --------
    >>> neighbour_cores(0.6)  # 0.6 / 0.4 / 6
    0.25
    >>> neighbour_cores(0.95)  # 3.17, and there is no more than
    0.8
    """
    if rho_bg >= 1.0:
        return MOST_CORES
    return round(min(MOST_CORES, rho_bg / (1.0 - rho_bg) / SLOWING_PER_CORE), 4)


def sibling_touch_ns() -> float:
    """CPU time of one touch in a working set that fits into the second level, ns."""
    memory = WorkingSet(SIBLING_KIB)
    count = 500_000  # some milliseconds, and hundreds of times through it
    took_ns = []
    for _ in range(5):
        begin_ns = time.thread_time_ns()
        memory.touch(count)
        took_ns.append(time.thread_time_ns() - begin_ns)
    return median(took_ns) / count


def quiet_touch_ns(measure_rps: Callable[[], float], mean: float, pause_s: float) -> float:
    """CPU time of one of the victim's touches, ns, with all that comes with a request.

    Parameters
    ----------
    measure_rps
        Gives the saturation throughput of the victim's machine.
    mean
        Touches asked for by a request.
    pause_s
        Between one try and the next.

    Raises
    ------
    LabError
        If three tries show a last-level cache that somebody else is using.
    """
    for number in range(_TRIES):
        if number:
            time.sleep(pause_s)
        touch_ns = CAPACITY_CORES * 1e9 / (measure_rps() * mean)
        if touch_ns <= SLOWEST_QUIET_NS:
            return touch_ns
    raise LabError(
        f"last-level cache: a load takes {touch_ns:.0f} ns with no neighbour started, "
        f"{SLOWEST_QUIET_NS:g} at most is quiet: somebody else uses this computer's cache; "
        "try again later, or end other programs"
    )


class LlcResource:
    """See :class:`dial_lab.resources.base.Resource`."""

    name = "llc"
    cost = Cost("touches", 150_000.0, step=WorkingSet.DEPTH)

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """Applications on loopback; the first machine's has the large working set.

        Raises
        ------
        LabError
            If there is no core for a neighbour, or the cache is in use by others.
        """
        from dial_lab.calibration import saturation_rps  # noqa: PLC0415 - it imports this package

        if not _other_cores(machines[0]):
            raise LabError(
                "llc: the neighbour needs a core beside the machines'; this computer has one"
            )
        victim, *siblings = machines
        ports = free_ports(len(machines))
        addresses = {
            machine.name: Address("127.0.0.1", port)
            for machine, port in zip(machines, ports, strict=True)
        }

        def start(machine: Machine, kib: int, scale: float) -> None:
            options = ("--working-set-kib", str(kib), "--touch-scale", f"{scale:.3f}")
            tenant.start_app(children, machine, addresses[machine.name], options)

        start(victim, VICTIM_KIB, 1.0)
        victim_ns = quiet_touch_ns(
            lambda: saturation_rps(addresses[victim.name], self.cost, _TRY_S),
            self.cost.mean,
            _PAUSE_S,
        )
        for machine in siblings:
            start(machine, SIBLING_KIB, victim_ns / sibling_touch_ns())
        victim.cgroups.create(_NEIGHBOUR)
        victim.cgroups.set_idle(_NEIGHBOUR)
        try:
            yield addresses
        finally:
            victim.cgroups.remove(_NEIGHBOUR)

    def start_neighbour(
        self, children: Children, machine: Machine, rho_bg: float, at_most_s: float
    ) -> subprocess.Popen[bytes]:
        """One sweeping process, on a core that is not the machines'."""
        machine.cgroups.set_quota(_NEIGHBOUR, neighbour_cores(rho_bg) * _PERIOD_US, _PERIOD_US)
        timeout_s = math.ceil(at_most_s + _MARGIN_S)
        return children.start(
            f"neighbour-{machine.name}",
            ["stress-ng", "--quiet", "--cache", "1", "--timeout", f"{timeout_s}s"],
            cores=_other_cores(machine)[-1:],
            join=machine.cgroups.procs_files(_NEIGHBOUR),
        )


def _other_cores(machine: Machine) -> list[int]:
    """Those of the lab's own process, without the machine's."""
    return sorted(os.sched_getaffinity(0) - {machine.core})


LLC = LlcResource()
