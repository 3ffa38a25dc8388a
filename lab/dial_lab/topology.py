"""Emulated physical machines: one core's slice each, shared by a tenant and a neighbour.

The problem: on an overcommitted host the neighbour takes time that the VM believes to be
its own, and nothing inside the VM says so.  A machine here is a control group with a CFS
quota of 3 ms in each 10 ms (0.3 of a core) and two children: ``fg``, the tenant's VM, with
no limit of its own, and ``bg``, the neighbour.  What bg uses is gone for fg, and fg's own
throttle counter stays at zero.

To make the loss a *number*, bg is capped at ``rho_bg`` of the machine's quota and preferred
over fg whenever it wants to run, so that a busy fg is left exactly ``1 - rho_bg``.  Three
things are needed for that, each found by measuring (Linux 6.18, 250 Hz tick; fg busy, bg
capped at 2.1 of 3 ms; fg should get 0.090 of a core):

- *one core for a whole machine.*  The quota is one pool; a tenant and a neighbour that race
  for it on two cores share it about evenly (0.152), whatever bg's cap.
- *a high weight for bg* (100 times fg's).
- *bg's group created before fg's.*  At the start of a period the kernel puts the throttled
  tasks back in the order of creation, newest group first, and the one that is put back last
  keeps its lead and runs until the next tick, up to 4 ms.  With fg created first fg always
  won that tick, and got 0.153; with bg created first fg gets 0.097.  With equal weights it
  is 0.126 and without a cap 0.003, so weight and cap do their part only after this.

The tick still makes the edges soft (a neighbour told to take 0.70 takes 0.65 to 0.70), so the
true rho_bg of a run is what its calibration measured, not what was asked for.  Other programs
on the core take part in the race for ticks: told to take 0.65, the neighbour took 0.51 to 0.64
beside somebody's test runs, and 0.63 to 0.65 since the machines have a high weight of their
own against whatever else runs.

All machines share the last core where there are fewer than ``machines + 1`` of them, and
have one core each elsewhere; balancer, load generator and controller keep off these cores.
Three machines use at most 0.9 of a core, and on one core they are alike: were some of them
beside the balancer, they would differ from the others without any neighbour.

Where requests are work, as a real application's are, a core whose other thread is somebody else's
makes all of them longer.  There machines have less of a core, so that they can be *given* more of
a slow one (:mod:`dial_lab.steady`).

Where the resource is a cache, the victim stands *apart*: on the last core alone, most of which
is its own, while its siblings share the other cores with the harness.  Why is told in
:mod:`dial_lab.resources.llc`, which also makes them alike again in what they can serve.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dial.errors import LabError
from dial_lab.cgroups import PREFIX, Cgroups, find

PERIOD_US = 10_000
CAPACITY_CORES = 0.3
APART_CORES = 0.8
"""Of a victim that stands apart, on a core that nobody else is put on."""
BESIDE_CORES = 0.15
"""Of its siblings, which share a core with the harness: 0.6 of it is the neighbour's, who runs
only while nobody else does.  Beside siblings of 0.2 it had less while they were busy."""
WORK_CORES = 0.24
"""Where requests are work: with 1.35 times as much three of them still fit on a core."""
WORK_PERIOD_US = 15_000
"""Where requests are work: half of 0.24 of it, with 0.6 times as much, is over the kernel's least
quota, 1 ms."""
NEIGHBOUR_WEIGHT = 100.0
MACHINE_WEIGHT = 100.0
"""Of a machine against whatever else this computer runs, which is no part of the experiment."""

IDLE = f"{PREFIX}idle"
"""The group of what runs only while nobody else wants its core."""
RESTLESS = f"{IDLE}/restless"
"""Of what does not let a core rest beside a neighbour in that (:mod:`dial_lab.two_cores`).  It is
idle among the idle: beside another idle group it would have half of what nobody wants, and not what
is left of that."""

LOCK = Path("/run/lock/dial-lab.lock")
PRIVATE = Path("/run/dial-lab")


class LabBusy(LabError):
    """Another lab runs on this computer: try again later."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Which cores are whose."""

    machines: tuple[int, ...]
    """One core for each machine, in order."""
    capacity_cores: tuple[float, ...]
    """CPU time of each machine."""
    harness: tuple[int, ...]
    """Cores of everything that is not on a machine."""


def place(
    cores: Sequence[int], machines: int, *, apart: bool = False, of_work: bool = False
) -> Placement:
    """Divide ``cores`` between ``machines`` and the rest.

    Parameters
    ----------
    cores
        Those there are.
    machines
        How many.
    apart
        Whether the first machine gets a core for itself.
    of_work
        Whether requests are work and no CPU time, which not both of the two can be.

    Raises
    ------
    LabError
        If ``apart`` and there is only one core.

    Examples
    --------
    >>> place([0, 1], 3)
    Placement(machines=(1, 1, 1), capacity_cores=(0.3, 0.3, 0.3), harness=(0,))
    >>> place([0, 1], 3, apart=True)
    Placement(machines=(1, 0, 0), capacity_cores=(0.8, 0.15, 0.15), harness=(0,))
    >>> place([0, 1], 3, of_work=True).capacity_cores
    (0.24, 0.24, 0.24)
    >>> place([0, 1, 2, 3], 3).machines
    (1, 2, 3)
    >>> place([0], 3).harness
    (0,)
    """
    ordered = sorted(cores)
    if apart:
        *others, last = ordered
        if not others:
            raise LabError("the victim needs a core of its own; this computer has one for all")
        siblings = machines - 1
        beside = tuple(others[-siblings:]) if len(others) > siblings else (others[-1],) * siblings
        harness = tuple(others[:-siblings]) or tuple(others[:-1]) or (others[-1],)
        return Placement((last, *beside), (APART_CORES, *(BESIDE_CORES,) * siblings), harness)
    even = (WORK_CORES if of_work else CAPACITY_CORES,) * machines
    if len(ordered) > machines:
        return Placement(tuple(ordered[-machines:]), even, tuple(ordered[:-machines]))
    return Placement((ordered[-1],) * machines, even, tuple(ordered[:-1]) or (ordered[-1],))


@dataclass
class Given:
    """What a machine has of its core now."""

    times: float = 1.0
    """As much CPU time as it was built with."""
    usual_times: float = 1.0
    """The same over the last minute."""
    rho_bg: float | None = None
    """The part of it that its neighbour was last told to take."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One emulated physical machine."""

    name: str
    core: int
    cgroups: Cgroups
    capacity_cores: float = CAPACITY_CORES
    """CPU time that it is built with, cores."""
    period_us: int = PERIOD_US
    """In which it has it."""
    given: Given = field(default_factory=Given)

    @property
    def usual_cores(self) -> float:
        """CPU time that it can give, cores, over the last minute."""
        return self.capacity_cores * self.given.usual_times

    @property
    def group(self) -> str:
        """The machine's own control group."""
        return f"{PREFIX}{self.name}"

    @property
    def fg(self) -> str:
        """The control group of the tenant's VM."""
        return f"{self.group}/fg"

    @property
    def bg(self) -> str:
        """The control group of the neighbour."""
        return f"{self.group}/bg"

    @property
    def other_cores(self) -> tuple[int, ...]:
        """Those of the lab's own process without the machine's, ascending."""
        return tuple(sorted(os.sched_getaffinity(0) - {self.core}))

    def build(self) -> None:
        """Make the groups.  The order matters: see the module's text."""
        self.cgroups.create(self.group)
        self._let_have(self.group, 1.0)
        self.cgroups.set_weight(self.group, MACHINE_WEIGHT)
        self.cgroups.create(self.bg)
        self.cgroups.create(self.fg)
        self.cgroups.set_weight(self.bg, NEIGHBOUR_WEIGHT)

    def cap_neighbour(self, rho_bg: float) -> None:
        """Let the neighbour take ``rho_bg`` of the machine at most, 0 < rho_bg <= 1."""
        self.given.rho_bg = rho_bg
        self._let_have(self.bg, rho_bg)

    def give(self, times: float) -> None:
        """Give it so many times the CPU time that it was built with, and its neighbour as well.

        From another thread than :meth:`cap_neighbour` too: who gives again and again puts right
        what the other one wrote meanwhile.
        """
        self.given.times = times
        self._let_have(self.group, 1.0)
        if self.given.rho_bg is not None:
            self._let_have(self.bg, self.given.rho_bg)

    def _let_have(self, group: str, part: float) -> None:
        quota_us = part * self.given.times * self.capacity_cores * self.period_us
        self.cgroups.set_quota(group, quota_us, self.period_us)

    def tenant_files(self) -> tuple[Path, ...]:
        """What a process of the tenant writes its id to."""
        return self.cgroups.procs_files(self.fg)

    def neighbour_files(self) -> tuple[Path, ...]:
        """What a process of the neighbour writes its id to."""
        return self.cgroups.procs_files(self.bg)


def host_cgroups() -> Cgroups:
    """The control groups of this computer.

    Raises
    ------
    LabError
        Without root, or without a usable cpu controller; says which.
    """
    if os.geteuid() != 0:
        raise LabError("the lab makes control groups and needs root: run it with sudo")
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"/proc/self/mountinfo: {error.strerror}; the lab needs Linux") from error
    return find(mountinfo)


@contextmanager
def exclusive(lock: Path = LOCK) -> Iterator[None]:
    """Keep a second lab off this computer: both would measure each other.

    Raises
    ------
    LabBusy
        If another lab runs; names its process.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise LabBusy(
                f"{lock}: another lab (process {holder}) runs on this computer; "
                "only one at a time can measure"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def private_directory(path: Path = PRIVATE) -> Iterator[Path]:
    """A directory for sockets and tokens, for root only, and never left behind for long.

    Always the same one, inside :func:`exclusive`, so that what a crash left goes at the next
    start.  Sockets are not among the results because the path of one may have 107
    characters at most.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def machines(
    cgroups: Cgroups,
    names: Sequence[str],
    cores: Sequence[int],
    *,
    apart: bool = False,
    of_work: bool = False,
) -> Iterator[tuple[Machine, ...]]:
    """Build the machines, after clearing away what a crashed lab left; remove them at exit.

    Call it inside :func:`exclusive` only: it takes every group of ours for stale.
    """
    remove_all(cgroups)
    placement = place(cores, len(names), apart=apart, of_work=of_work)
    period_us = WORK_PERIOD_US if of_work else PERIOD_US
    built = tuple(
        Machine(name, core, cgroups, capacity_cores, period_us)
        for name, core, capacity_cores in zip(
            names, placement.machines, placement.capacity_cores, strict=True
        )
    )
    try:
        for machine in built:
            machine.build()
        yield built
    finally:
        remove_all(cgroups)


def remove_all(cgroups: Cgroups) -> int:
    """Remove every group of the lab and what runs in it; returns the processes ended."""
    return sum(cgroups.remove(name) for name in cgroups.stale())
