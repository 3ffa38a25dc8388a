"""The last-level cache: a program that sweeps through it on another core, capped there.

The problem: cores share the last cache, and a neighbour that sweeps through it makes every
load of the tenant that used to hit there a trip to memory.  The tenant gets all the CPU time
it asks for, and needs more of it for the same work.

There is one last-level cache for all the emulated machines, and contention for it cannot be
kept to one of them by place.  It is kept to one by *size*: the victim's working set lives in
the shared cache, those of its siblings (16 KiB) in their core's own first level, which they
have back in microseconds.

A set stays cached by being used: one that is left alone for some milliseconds goes to whoever
else is in the cache, outside the computer too.  With a third of a core, 7 of 10 ms at rest, a
load of 2 MiB took the victim 27 to 77 ns with nobody started.  So the victim stands apart
(:mod:`dial_lab.topology`), with most of a core for itself: 16 to 20 ns.  (Beside its siblings
on one core, with 0.6 of it, P90 was 100 to 550 ms with nobody started.)  Its siblings have a
fifth of its CPU time, and their loads are cheaper; each load asked for is as many of theirs
as make all machines alike when nobody disturbs.  How many those are is found from what they then
serve: as reckoned from one look at a load's time, two of them served 170 and 109 requests a second
beside the victim's 143, in all of a run; by the slowest of three looks 108 both beside its 145.

How long a turn the neighbour has at its core matters as much as how much of the core.  A victim at
work is once round its set in a millisecond.  Of a neighbour with 4 ms of each 10 it loses the set
only if others outside the computer are in the cache as well: in a cache that was quiet the
neighbour took 0.05 to 0.19 where half was asked for, and from nothing to 0.73 as strangers came and
went.  In a long turn the set is lost after some milliseconds and comes back as long after it, so
that what is taken follows from the turn's part of the time, and nobody's help is needed.  And the
smaller the set is, the less strangers take of it, and the faster the neighbour has to be.  With the
two cores together (:mod:`dial_lab.one_cache`), of a victim in saturation, 1.2 s each, rho_bg:

    ==========  =====  ======================  ========================  ========================
    period, ms  cores  program                 set of 4096 KiB           set of 2560 KiB
    ==========  =====  ======================  ========================  ========================
    10          0.6    ``stress-ng --memrate`` 0.53 0.68 0.67 0.68 0.69
    10          0.6    search                  0.76 0.75 0.75 0.77 0.77  0.75 0.76 0.63 0.68 0.65
    20          0.6    ``--memrate``           0.46 0.44 0.39 0.46 0.53
    50          0.55   ``--memrate``           0.48 0.45 0.48 0.49 0.47  0.31 0.30 0.31 0.39 0.45
    50          0.55   search                  0.53 0.54 0.48 0.51       0.42 0.35 0.39 0.43
    100         0.55   ``--memrate``           0.45 0.51 0.54 0.48 0.45  0.39 0.04 0.38 0.37 0.36
    100         0.55   search                  0.41 0.59 0.56 0.49 0.47  0.53 0.22 0.48 0.51 0.47
    100         0.6    search                                            0.65 0.57 0.48 0.62 0.37
    ==========  =====  ======================  ========================  ========================

A load took the victim alone 16 to 18 ns while the first set was measured, and 16 to 44 with the
second, as strangers were there; in the same minutes it took 28 to 101 ns in a set of 3072 KiB.
Short turns take much only beside strangers: of 2560 KiB, with 0.6 of a core and 16 to 20 ns alone,
10 ms took 0.21 to 0.65 in ten looks, 5 ms 0.22 to 0.71 and 100 ms 0.42 to 0.63.  A set that is lost
is gone round more slowly, by which it is easier to lose, so that few strangers are enough to keep
it lost; the more of a set is in the core's own second level (1 MiB), the less so.  In turns, in a
busy half hour, with the search:

    ========  =============================  ==========================================
    set, KiB  looks alone slower than 25 ns  taken by 0.6 of a core, 100 ms: middle half
    ========  =============================  ==========================================
    2048      7 of 42                        0.43 to 0.61, median 0.46
    2304      6 of 25                        0.43 to 0.54, median 0.49
    2560      23 of 40                       0.50 to 0.64, median 0.60
    ========  =============================  ==========================================

(Of the looks beside the neighbour those count before which the victim was quick.)  So the set has
2304 KiB, and the neighbour searches (:mod:`dial_lab.neighbours.memory`) in turns of 60 ms.  Half is
what it takes at most: the rest of its core is the harness' and the siblings', and where more is
asked for, what is found is what counts.

The data sets were recorded before that was known, in sets of 2.5 to 4 MiB and beside ``stress-ng
--cache`` in short turns.  Streams (triad) took less there, 24 to 56 ns a load at 3072 and 3584; a
large sort, random reads and writes of 64 MiB, a transposition, compression or ``sort`` of a file
next to nothing: told 0.55 to 0.65, a sort took 0.01, 0.02, 0.07 and 0.12 of the capacity of a
victim at a quarter of its load, triads 0.24 to 0.55, sysbench's writes 0.27 to 0.4.

A core takes from a cache what it can fill before the victim has been round its set again.  The
figures are of computers with 32 MiB of last level.  Where it is 260 MiB, a sweep takes 26 ms, and
there is nothing to be seen: sets of 2.5 to 5 MiB took 27 to 41 ns and 6 MiB 127 to 150, whether or
not the other core swept 256 MiB at 12 GB/s (six times on and off each; medians 0.97 to 1.03 of each
other).  Such a computer is refused, by the same figure as one whose cache is in use.

What the last cache loses is nobody's to promise, so here more than elsewhere the true rho_bg
is the one measured, not the one asked for.  The neighbour runs beside balancer and load
generator: its group runs only while they do not, up to its quota.  So that it gets all of that in
a block as in a calibration, siblings are small (:data:`dial_lab.topology.BESIDE_CORES`), requests
are few and long, and it is calibrated beside siblings at work: it had 0.59 or 0.60 of a core then,
of 0.6, five times measured, and took 0.43 to 0.54.  (With siblings of 0.2 and requests of half the
work it left a victim more the busier they were.)  (``stress-ng`` has to be
told to stay there: by default its cache stressor sets its own affinity, and half of the time
it waited on the victim's core.)
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from dial.errors import LabError, LabUnquiet
from dial_lab import tenant
from dial_lab.addresses import Address
from dial_lab.app import WorkingSet
from dial_lab.neighbours import memory
from dial_lab.patience import when_quiet
from dial_lab.processes import Children
from dial_lab.resources.base import Cost, Program, chosen, limit_s
from dial_lab.topology import APART_CORES, IDLE, RESTLESS, Machine
from dial_lab.vms import vms

VICTIM_KIB = 2304
"""Of the victim's working set: see the module."""
SIBLING_KIB = 16
"""Fits into the first level: the neighbour is on their core and takes the second."""

SLOWEST_QUIET_NS = 25.0
"""Of a load by the victim alone: 18 to 24 ns measured.  Slower, and somebody is there already."""

CORES_PER_RHO_BG = 1.2
"""CPU time of a neighbour over the rho_bg it is to take: 0.6 of a core took half."""

MOST_CORES = 0.6
"""For the neighbour: the rest of its core is the harness' and the siblings'."""

PERIOD_US = 100_000
"""Of its quota, and so of its turns: see the module.  It is the kernel's own default."""

STEADY = "search"
"""The program that takes the cache all the time: see the module."""

_NEIGHBOUR = f"{IDLE}/neighbour"

_LAST_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")

_TRIES = 20
_TRY_S = 1.5
_IN_A_ROW = 3
"""After one quick measure a calibration at once found loads of three times as long."""
_CORRECTIONS = 2
"""Of what a sibling is asked: a request is not all loads, so that one leaves some per cent."""
_PAUSE_S = 8.0
"""So five minutes in all: who else uses the cache comes and goes."""


def neighbour_cores(rho_bg: float) -> float:
    """CPU time that makes a neighbour take about ``rho_bg``, as cores.

    Examples
    --------
    >>> neighbour_cores(0.3)
    0.36
    >>> neighbour_cores(0.8)  # 0.96, and there is no more than
    0.6
    """
    return min(round(CORES_PER_RHO_BG * rho_bg, 4), MOST_CORES)


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


def quiet_touch_ns(touch_ns: Callable[[], float]) -> float:
    """CPU time of one of the victim's loads in a cache that nobody else is using, ns.

    Parameters
    ----------
    touch_ns
        Measures it.  It has to be quick :data:`_IN_A_ROW` times, and their median is returned.

    Raises
    ------
    LabUnquiet
        If somebody else is using the last-level cache.
    """
    measured = []
    for _ in range(_IN_A_ROW):
        measured_ns = touch_ns()
        measured.append(measured_ns)
        if measured_ns > SLOWEST_QUIET_NS:
            raise LabUnquiet(
                f"last-level cache: a load takes {measured_ns:.0f} ns in {VICTIM_KIB} KiB with no "
                f"neighbour started, {SLOWEST_QUIET_NS:g} at most is quiet: somebody else uses "
                f"this computer's cache{_size()}, or it is too large for one core to take (32 MiB "
                "are not); try again later, end other programs, or take another computer"
            )
    return median(measured)


def scales_that_serve(
    asked_rps: float,
    scales: Mapping[str, float],
    served_rps: Callable[[Mapping[str, float]], Mapping[str, float]],
) -> dict[str, float]:
    """How many of its loads a machine makes of one that is asked for, so that it serves so much.

    Parameters
    ----------
    asked_rps
        In saturation, requests per second.
    scales
        A first guess, by machine.
    served_rps
        Measures what machines with such scales serve.
    """
    for _ in range(_CORRECTIONS):
        served = served_rps(scales)
        scales = {name: scale * served[name] / asked_rps for name, scale in scales.items()}
    return dict(scales)


def _size() -> str:
    """How large the last level is, in words, where the kernel knows."""
    try:
        kib = int(_LAST_LEVEL.read_text(encoding="ascii").removesuffix("K\n"))
    except (OSError, ValueError):
        return ""
    return f" of {kib / 1024:g} MiB"


def _stress_ng(_: None, seconds: int) -> list[str]:
    argv = ["stress-ng", "--quiet", "--cache", "1", "--cache-no-affinity"]
    return [*argv, "--timeout", f"{seconds}s"]


def _search(_: None, seconds: int) -> list[str]:
    return memory.argv("search", seconds)


def _triad(_: None, seconds: int) -> list[str]:
    return memory.argv("triad", seconds)


def _sysbench(_: None, seconds: int) -> list[str]:
    """Writes a block as large as a last-level cache from end to end, one thread."""
    block = ("--memory-block-size=32M", "--memory-total-size=1024T", "--memory-oper=write")
    return ["sysbench", "memory", "--threads=1", *block, f"--time={seconds}", "run"]


class LlcResource:
    """See :class:`dial_lab.resources.base.Resource`."""

    name = "llc"
    victim_apart = True
    slowest_quiet_ns = SLOWEST_QUIET_NS
    cost = Cost("touches", 600_000.0, step=WorkingSet.DEPTH)
    programs: Mapping[str, Program[None]] = {
        "stress-ng-cache": Program("training", _stress_ng),
        STEADY: Program(None, _search),
        "triad": Program("unseen", _triad),
        "sysbench-memory": Program("unseen", _sysbench),
    }
    """They need to know nothing of their place."""

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
        victim, *siblings = machines
        if not victim.other_cores:
            raise LabError("llc: the neighbour needs a core beside the machines'; there is one")
        with vms(machines) as places:
            addresses = {name: vm.address for name, vm in places.items()}

            def start(machine: Machine, kib: int, scale: float) -> subprocess.Popen[bytes]:
                options = ("--working-set-kib", str(kib), "--touch-scale", f"{scale:.3f}")
                return tenant.start_app(children, machine, places[machine.name], options)

            def touch_ns() -> float:
                return self._touch_ns(children, victim, start(victim, VICTIM_KIB, 1.0), addresses)

            victim_ns = when_quiet(lambda: quiet_touch_ns(touch_ns), tries=_TRIES, pause_s=_PAUSE_S)
            start(victim, VICTIM_KIB, 1.0)
            own_ns = sibling_touch_ns()
            scales = {
                machine.name: machine.capacity_cores / victim.capacity_cores * victim_ns / own_ns
                for machine in siblings
            }

            def served_rps(scales: Mapping[str, float]) -> Mapping[str, float]:
                apps = [start(each, SIBLING_KIB, scales[each.name]) for each in siblings]
                where = {each.name: addresses[each.name] for each in siblings}
                return self._served_rps(children, apps, where)

            asked_rps = 1e9 * victim.capacity_cores / (victim_ns * self.cost.mean)
            scales = scales_that_serve(asked_rps, scales, served_rps)
            for machine in siblings:
                start(machine, SIBLING_KIB, scales[machine.name])
            victim.cgroups.create(IDLE)
            victim.cgroups.set_idle(IDLE)
            victim.cgroups.create(_NEIGHBOUR)
            victim.cgroups.create(RESTLESS)
            victim.cgroups.set_idle(RESTLESS)
            try:
                yield addresses
            finally:
                victim.cgroups.remove(IDLE)

    def _touch_ns(
        self,
        children: Children,
        victim: Machine,
        app: subprocess.Popen[bytes],
        addresses: Mapping[str, Address],
    ) -> float:
        """CPU time of one of the victim's touches, with all that comes with a request."""
        alone = {victim.name: addresses[victim.name]}
        rps = self._served_rps(children, [app], alone)[victim.name]
        return self.cost.unit_ns(rps, victim.capacity_cores)

    def _served_rps(
        self,
        children: Children,
        apps: Sequence[subprocess.Popen[bytes]],
        addresses: Mapping[str, Address],
    ) -> dict[str, float]:
        """What applications that end with it serve, all at the same time."""
        from dial_lab.calibration import (  # noqa: PLC0415 - it imports this package
            saturation_rps_together,
        )

        try:
            return saturation_rps_together(addresses, self.cost, _TRY_S)
        finally:
            for app in apps:
                children.stop(app)

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
    ) -> subprocess.Popen[bytes]:
        """One sweeping process, on a core that is not the victim's.

        Raises
        ------
        LabError
            If it is to visit another machine than the first.
        """
        if machine.capacity_cores < APART_CORES:
            raise LabError(f"llc: {machine.name} has a small working set; only the first can lose")
        argv = chosen(self.programs, program).argv(None, limit_s(at_most_s))
        machine.cgroups.set_quota(_NEIGHBOUR, neighbour_cores(rho_bg) * PERIOD_US, PERIOD_US)
        return children.start(
            f"neighbour-{machine.name}",
            argv,
            cores=machine.other_cores[-1:],
            join=machine.cgroups.procs_files(_NEIGHBOUR),
        )


LLC = LlcResource()
