"""CPU time of the whole machine or of one cgroup.

Three sources, in three units:

``/proc/stat``
    Clock ticks since boot, of all CPUs.  ``guest`` time is within ``user`` already.
    Interrupts count as system time; softirqs are kept apart, because network load that
    is not the application's own shows there.
    A CPU that does nothing is idle, so the counters of a whole machine add up to the time
    that passed.  Where they fall short, somebody ran while this kernel did not: hypervisors
    that report no steal leave that gap (measured in user-mode Linux: 0.03 of the time in quiet,
    0.31 and 0.57 busy beside a neighbour that took 0.5 and 0.7).
cgroup v2 ``cpu.stat``
    Microseconds; the kernel has already scaled the split to the exact total.
cgroup v1 ``cpuacct.usage`` and ``cpuacct.stat``
    The total in nanoseconds, the split in ticks of 10 ms.

The v1 split needs care at 1 Hz.  In one second a group that uses 3 % of a core gets three
ticks, so the ticks themselves would read 0.02, 0.04, 0.03; and below one tick a second
they read 0 most of the time.  So, as the kernel does for processes (``cputime_adjust`` in
kernel/sched/cputime.c), ticks are used for the *ratio* only and the exact total is divided
by it: user + system is right to the nanosecond, and the split of n ticks errs by at most
half of sqrt(n) ticks (binomial), 0.016 core at n = 10 and less below.  With no tick at
all in the interval the ratio since the group's beginning is taken, and without any ever,
all is user time: that too is the kernel's rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from dial.agent.counters import Counter, parse_count, parse_keyed, per_second
from dial.agent.files import Tree, Unavailable
from dial.types import Measured, NoData

_STAT = "/proc/stat"


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """CPU time of all CPUs since boot, in ticks."""

    user: int
    system: int
    softirq: int
    iowait: int
    steal: Counter
    accounted: int
    """Of all kinds, idle included."""
    cpus: int


def parse_stat(text: str) -> MachineTimes:
    """Read the first line of ``/proc/stat``.

    Raises
    ------
    Unavailable
        If it is not the line of all CPUs with at least seven counters.
    """
    fields = text.partition("\n")[0].split()
    if len(fields) < 8 or fields[0] != "cpu":
        raise Unavailable(f"{_STAT}: no line of all CPUs with seven counters")
    counts = [parse_count(field, _STAT) for field in fields[1:9]]
    user, nice, system, _idle, iowait, irq, softirq = counts[:7]
    steal = counts[7] if len(counts) > 7 else NoData(f"{_STAT}: this kernel counts no steal")
    cpus = sum(line.startswith("cpu") for line in text.splitlines()) - 1
    return MachineTimes(user + nice, system + irq, softirq, iowait, steal, sum(counts), cpus)


class MachineCpu:
    """CPU time of the whole machine.

    Parameters
    ----------
    tree
        Where to read.
    ticks_per_s
        The kernel's USER_HZ, ``sysconf(_SC_CLK_TCK)``.
    """

    metrics = (
        "cpu_usr_cores",
        "cpu_sys_cores",
        "cpu_softirq_cores",
        "cpu_iowait_cores",
        "cpu_steal_cores",
        "cpu_unaccounted_cores",
    )

    def __init__(self, tree: Tree, ticks_per_s: int) -> None:
        self._tree = tree
        self._ticks_per_s = ticks_per_s

    def read(self) -> MachineTimes:
        """Read ``/proc/stat``; raises :class:`Unavailable`."""
        return parse_stat(self._tree.read(_STAT))

    def rates(
        self, before: MachineTimes, after: MachineTimes, interval_s: float
    ) -> dict[str, Measured]:
        """Return CPU seconds a second by kind."""

        def cores(old: Counter, new: Counter) -> Measured:
            return per_second(old, new, interval_s, per_unit=self._ticks_per_s)

        return {
            "cpu_usr_cores": cores(before.user, after.user),
            "cpu_sys_cores": cores(before.system, after.system),
            "cpu_softirq_cores": cores(before.softirq, after.softirq),
            "cpu_iowait_cores": cores(before.iowait, after.iowait),
            "cpu_steal_cores": cores(before.steal, after.steal),
            "cpu_unaccounted_cores": self._unaccounted(before, after, interval_s),
        }

    def _unaccounted(
        self, before: MachineTimes, after: MachineTimes, interval_s: float
    ) -> Measured:
        if before.cpus != after.cpus or not after.cpus:
            return NoData(f"{_STAT}: {before.cpus} CPUs, then {after.cpus}")
        accounted = (after.accounted - before.accounted) / self._ticks_per_s / interval_s
        # Ticks that fall to one side or the other of a reading can make it a little too much.
        return max(0.0, after.cpus - accounted)


@dataclass(frozen=True, slots=True)
class GroupTimesV1:
    """CPU time of a v1 group: the exact total, and the split in ticks."""

    usage_ns: int
    user_ticks: int
    system_ticks: int


def user_share(before: GroupTimesV1, after: GroupTimesV1) -> float:
    """Return the fraction of the interval's CPU time that was user time, by ticks.

    Examples
    --------
    Three user ticks and one system tick in the interval:

    >>> user_share(GroupTimesV1(0, 10, 10), GroupTimesV1(1, 13, 11))
    0.75

    None in it, but twenty before:

    >>> user_share(GroupTimesV1(0, 5, 15), GroupTimesV1(1, 5, 15))
    0.25
    """
    user = after.user_ticks - before.user_ticks
    system = after.system_ticks - before.system_ticks
    if user < 0 or system < 0 or user + system == 0:
        user, system = after.user_ticks, after.system_ticks
    return user / (user + system) if user + system else 1.0


class GroupCpuV1:
    """CPU time of a cgroup v1 group, its descendants included.

    Parameters
    ----------
    tree
        Where to read.
    directory
        The group's directory in the cpuacct hierarchy.
    """

    metrics = ("cpu_usr_cores", "cpu_sys_cores")

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._usage = f"{directory}/cpuacct.usage"
        self._stat = f"{directory}/cpuacct.stat"

    def read(self) -> GroupTimesV1:
        """Read ``cpuacct.usage`` and ``cpuacct.stat``; raises :class:`Unavailable`."""
        usage_ns = parse_count(self._tree.read(self._usage).strip(), self._usage)
        ticks = parse_keyed(self._tree.read(self._stat), self._stat)
        if "user" not in ticks or "system" not in ticks:
            raise Unavailable(f"{self._stat}: no user and system lines")
        return GroupTimesV1(usage_ns, ticks["user"], ticks["system"])

    def rates(
        self, before: GroupTimesV1, after: GroupTimesV1, interval_s: float
    ) -> dict[str, Measured]:
        """Return CPU seconds a second, split by the ratio of ticks."""
        cores = per_second(before.usage_ns, after.usage_ns, interval_s, per_unit=1e9)
        if isinstance(cores, NoData):
            return dict.fromkeys(self.metrics, cores)
        user = cores * user_share(before, after)
        return {"cpu_usr_cores": user, "cpu_sys_cores": cores - user}


@dataclass(frozen=True, slots=True)
class GroupTimesV2:
    """CPU time of a v2 group, in microseconds."""

    user_us: int
    system_us: int


class GroupCpuV2:
    """CPU time of a cgroup v2 group, its descendants included.

    Parameters
    ----------
    tree
        Where to read.
    directory
        The group's directory; no controller need be enabled for these three counters.
    """

    metrics = ("cpu_usr_cores", "cpu_sys_cores")

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._stat = f"{directory}/cpu.stat"

    def read(self) -> GroupTimesV2:
        """Read ``cpu.stat``; raises :class:`Unavailable`."""
        counts = parse_keyed(self._tree.read(self._stat), self._stat)
        if "user_usec" not in counts or "system_usec" not in counts:
            raise Unavailable(f"{self._stat}: no user_usec and system_usec lines")
        return GroupTimesV2(counts["user_usec"], counts["system_usec"])

    def rates(
        self, before: GroupTimesV2, after: GroupTimesV2, interval_s: float
    ) -> dict[str, Measured]:
        """Return CPU seconds a second."""
        return {
            "cpu_usr_cores": per_second(before.user_us, after.user_us, interval_s, per_unit=1e6),
            "cpu_sys_cores": per_second(
                before.system_us, after.system_us, interval_s, per_unit=1e6
            ),
        }
