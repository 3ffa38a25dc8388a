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
(:mod:`dial_lab.topology`), with most of a core for itself.  (Beside its siblings on one core, with
0.6 of it, P90 was 100 to 550 ms with nobody started.)  Its siblings have a fifth of its CPU time,
and their loads are cheaper; each load asked for is as many of theirs as make all machines alike
when nobody disturbs.  How many those are is found from what they then serve: as reckoned from one
look at a load's time, two of them served 170 and 109 requests a second beside the victim's 143, in
all of a run; by the slowest of three looks 108 both beside its 145.

What a victim does with what it has loaded decides what can be taken of it.  One that only loads
(2304 KiB, 16 ns a load) is once round its set in 0.6 ms, in which a neighbour brings half of the
cache in, and each line is the newest again: whether the set is lost hangs by a thread, and once it
is, each load is six times as slow and it stays lost.  Such a victim lost 0.05 to 0.19 to turns of
4 ms in a quiet cache, 0.21 to 0.76 as strangers came and went, and to turns of 60 of each 100 ms
0.4 to 0.65 in one hour and 0.01 to 0.38 in another, so that rounds that were to be alike were not;
and in turns so long it is a quick server and a slow one by turns, which queues show to any policy.
A victim that works on what it loads is longer on its way round, so that a neighbour with 6 of each
10 ms has its set every time, and it never has it back in the 4 ms between; and the work is nobody's
to slow, so that what is taken is bounded, and a few strangers do little.  With steps of 2 ns in the
nearest cache after each load, a neighbour of 0.6 of a core, all machines at work together, 3 s each
(:mod:`dial_lab.one_cache`), rho_bg:

    =====  ========  =========  ===============  ===================================
    steps  set, KiB  turns, ms  loads a request  taken
    =====  ========  =========  ===============  ===================================
    0      2304      100        600,000          0.53 0.43 0.54 0.47 0.47
    0      2304      100        600,000          0.31 0.33 0.01 0.33 0.68
    32     2304      10         125,000          0.34 0.38 0.32
    32     2304      100        125,000          0.39 0.36 0.38
    16     2304      10         200,000          0.47 0.51 0.50 0.47
    16     2304      10         200,000          0.55 0.44 0.54 0.45 0.43 0.57 0.48
    16     2304      20         200,000          0.49 0.53 0.49 0.49
    16     2304      10         100,000          0.35 0.43 0.42 0.42 0.26 0.43 0.54
    12     2304      10         100,000          0.60 0.54 0.49 0.55
    8      2304      10         300,000          0.54 0.50
    8      2304      10         100,000          0.34 0.18 0.65 0.44
    8      2304      10         100,000          0.59 0.60 0.63 0.61
    16     1536      10         200,000          0.22 0.19
    8      1536      10         300,000          0.33 0.33 0.38 0.42
    16     3072      10         200,000          0.55
    =====  ========  =========  ===============  ===================================

Of 1536 KiB a core's own second level (1 MiB) holds the most.  The first row with eight steps and
100,000 loads, and most of that with sixteen, are of minutes with strangers, who take of the victim
before the neighbour does; in such an hour twelve steps had 0.56, 0.51, 0.22 and 0.36.  The first
row without steps is an hour before the others, the second between them; runs in that hour found
0.54 to 0.60, and 0.36 to 0.42.

The neighbour searches (:mod:`dial_lab.neighbours.memory`).  Half is what it takes at most: the rest
of its core is the harness' and the siblings', and where more is asked for, what is found is what
counts.

The data sets were recorded before that was known, in sets of 2.5 to 4 MiB and beside ``stress-ng
--cache`` in short turns.  Streams (triad) took less there, 24 to 56 ns a load at 3072 and 3584; a
large sort, random reads and writes of 64 MiB, a transposition, compression or ``sort`` of a file
next to nothing: told 0.55 to 0.65, a sort took 0.01, 0.02, 0.07 and 0.12 of the capacity of a
victim at a quarter of its load, triads 0.24 to 0.55, sysbench's writes 0.27 to 0.4.

A core takes from a cache what it can fill before the victim has been round its set again.  The
figures are of computers with 32 MiB of last level.  Where it is 260 MiB, a sweep takes 26 ms, and
there is nothing to be seen: sets of 2.5 to 5 MiB took 27 to 41 ns and 6 MiB 127 to 150, whether or
not the other core swept 256 MiB at 12 GB/s (six times on and off each; medians 0.97 to 1.03 of each
other).  Such a computer is refused, by the same figure as one whose cache is in use; runs that
compare policies take the victim's lines there (:mod:`dial_lab.resources.lines`).

What the last cache loses is nobody's to promise, so here more than elsewhere the true rho_bg
is the one measured, not the one asked for.  The neighbour runs beside balancer and load
generator: its group runs only while they do not, up to its quota.  So that it gets all of that in
a block as in a calibration siblings are small (:data:`dial_lab.topology.BESIDE_CORES`), and it is
calibrated beside siblings at work: it had 0.59 to 0.62 of a core then, of 0.6.  (Beside siblings
of 0.2 it left a victim more the busier they were.)  (``stress-ng`` has to be
told to stay there: by default its cache stressor sets its own affinity, and half of the time
it waited on the victim's core.)
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from dial.errors import LabError, LabUnquiet
from dial_lab import tenant
from dial_lab.addresses import Address
from dial_lab.app import WorkingSet
from dial_lab.neighbours import memory
from dial_lab.patience import when_quiet
from dial_lab.processes import Children
from dial_lab.resources.base import (
    Cost,
    InCommon,
    Program,
    chosen,
    limit_s,
    require_another_core,
)
from dial_lab.topology import APART_CORES, IDLE, RESTLESS, Machine
from dial_lab.vms import vms

VICTIM_KIB = 2304
"""Of the victim's working set: see the module."""
SIBLING_KIB = 16
"""Fits into the first level: the neighbour is on their core and takes the second."""

STEPS = 12
"""In the nearest cache after each of the victim's loads: see the module."""

SLOWEST_QUIET_NS = 68.0
"""Of a load by the victim alone, with its steps and a request's other work: 46 to 52 ns measured.
Slower, and somebody is there already, who takes more than a quarter of it."""

CORES_PER_RHO_BG = 1.2
"""CPU time of a neighbour over the rho_bg it is to take: 0.6 of a core took half."""

MOST_CORES = 0.6
"""For the neighbour: the rest of its core is the harness' and the siblings'."""

MOST_RHO_BG = MOST_CORES / CORES_PER_RHO_BG
"""Half: what a neighbour takes that has all of that."""

PERIOD_US = 10_000
"""Of its quota, and so of its turns: see the module."""

STEADY = "search"
"""The program that takes the cache all the time: see the module."""

_NEIGHBOUR = f"{IDLE}/neighbour"

_LAST_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")

MOST_LAST_LEVEL_MIB = 54.0
"""What one core brings in at 27 GB/s (:mod:`dial_lab.neighbours.memory`) while the victim is once
round its set, in 2.1 ms.  32 MiB were taken, 260 were not."""

_TRIES = 20
_TRY_S = 1.5
_IN_A_ROW = 3
"""After one quick measure a calibration at once found loads three times as long."""
_LOOKS = 6
"""At what siblings serve, with a correction of what they are asked between two of them: a request
is not all loads, so that one leaves some per cent."""
_ALIKE_IN_A_ROW = 2
_ALIKE = 0.05
"""Of what machines are to serve, by which one may miss it."""
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

    It has to serve that twice in a row: measured while somebody slowed their core, two machines
    served 229 requests a second later on beside the victim's 155.

    Parameters
    ----------
    asked_rps
        In saturation, requests per second.
    scales
        A first guess, by machine.
    served_rps
        Measures what machines with such scales serve.

    Raises
    ------
    LabUnquiet
        If corrections do not make them serve that.
    """
    in_a_row = 0
    for _ in range(_LOOKS):
        served = served_rps(scales)
        if all(abs(rps / asked_rps - 1.0) <= _ALIKE for rps in served.values()):
            in_a_row += 1
            if in_a_row == _ALIKE_IN_A_ROW:
                return dict(scales)
        else:
            in_a_row = 0
            scales = {name: scale * served[name] / asked_rps for name, scale in scales.items()}
    some = ", ".join(f"{name} {rps:.0f}" for name, rps in served.items())
    raise LabUnquiet(
        f"llc: machines that are to serve {asked_rps:.0f} requests a second serve {some} at the "
        f"last of {_LOOKS} looks, {_ALIKE:.0%} off is let pass: somebody outside the lab slows "
        "their core; try again later"
    )


def _last_level_mib() -> float | None:
    """How large the last level is, where the kernel knows."""
    try:
        return int(_LAST_LEVEL.read_text(encoding="ascii").removesuffix("K\n")) / 1024
    except (OSError, ValueError):
        return None


def can_be_taken() -> bool:
    """Whether this computer's last level is known to be small enough for one core to take it."""
    mib = _last_level_mib()
    return mib is not None and mib <= MOST_LAST_LEVEL_MIB


def _size() -> str:
    mib = _last_level_mib()
    return "" if mib is None else f" of {mib:g} MiB"


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
    calibrated_together = True
    in_common = InCommon(SLOWEST_QUIET_NS, MOST_RHO_BG)
    cost = Cost("touches", 100_000.0, step=WorkingSet.DEPTH)
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
        require_another_core(victim)
        with vms(machines) as places:
            addresses = {name: vm.address for name, vm in places.items()}

            def start(machine: Machine, kib: int, *options: str) -> subprocess.Popen[bytes]:
                options = ("--working-set-kib", str(kib), *options)
                return tenant.start_app(children, machine, places[machine.name], options)

            def start_victim() -> subprocess.Popen[bytes]:
                return start(victim, VICTIM_KIB, "--steps-per-touch", str(STEPS))

            def start_sibling(machine: Machine, scale: float) -> subprocess.Popen[bytes]:
                return start(machine, SIBLING_KIB, "--touch-scale", f"{scale:.3f}")

            def touch_ns() -> float:
                return self._touch_ns(children, victim, start_victim(), addresses)

            patiently = partial(when_quiet, tries=_TRIES, pause_s=_PAUSE_S)
            victim_ns = patiently(lambda: quiet_touch_ns(touch_ns))
            start_victim()
            own_ns = sibling_touch_ns()
            guess = {
                machine.name: machine.capacity_cores / victim.capacity_cores * victim_ns / own_ns
                for machine in siblings
            }

            def served_rps(scales: Mapping[str, float]) -> Mapping[str, float]:
                apps = [start_sibling(each, scales[each.name]) for each in siblings]
                where = {each.name: addresses[each.name] for each in siblings}
                return self._served_rps(children, apps, where)

            asked_rps = 1e9 * victim.capacity_cores / (victim_ns * self.cost.mean)
            scales = patiently(lambda: scales_that_serve(asked_rps, guess, served_rps))
            for machine in siblings:
                start_sibling(machine, scales[machine.name])
            victim.cgroups.create_idle(IDLE)
            victim.cgroups.create(_NEIGHBOUR)
            victim.cgroups.create_idle(RESTLESS)
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
