"""Time spent runnable without running: the neighbour's mark on the tenant's CPU.

``/proc/PID/task/TID/schedstat`` holds three numbers for one thread: nanoseconds on a CPU,
nanoseconds runnable but waiting for one, and time slices (Documentation/scheduler/
sched-stats.rst).  ``/proc/PID/schedstat`` looks like their sum and is the main thread's
alone, so every thread is read.

What is counted between two readings: the growth for threads seen in both, everything for
a thread new in a process seen before (its whole life lies in the interval), nothing for
processes first seen now (their past is not this interval's).  What a thread waited
between the last reading and its end is lost, so an application that makes a thread for
each request is under-counted.

Without named processes, reading the threads of the whole machine would cost more than
the agent may.  ``/proc/schedstat`` has the same waiting summed for each CPU; it counts
everything that runs there, the agent too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dial.agent.counters import parse_count, per_second
from dial.agent.files import Tree, Unavailable, Vanished
from dial.types import Measured, NoData

_SCHEDSTAT = "/proc/schedstat"
_CPU_RUN_DELAY_FIELD = 8
"""Of a cpu line, its name being 0; so in versions 14 to 17 (since Linux 2.6.20)."""

Delays = Mapping[int, Mapping[int, int]]
"""Nanoseconds waited, by process and thread."""


def parse_task_delay(text: str, where: str) -> int:
    """Return the nanoseconds that one thread waited.

    Raises
    ------
    Unavailable
        If there are no three numbers.
    """
    fields = text.split()
    if len(fields) != 3:
        raise Unavailable(f"{where}: not three counters")
    return parse_count(fields[1], where)


def waited_ns(before: Delays, after: Delays) -> int | None:
    """Return what was waited between two readings, ``None`` if no process is in both.

    Examples
    --------
    Thread 1 waited 5 ns more, thread 2 was born and waited 3 ns, process 9 is new:

    >>> waited_ns({7: {1: 10}}, {7: {1: 15, 2: 3}, 9: {9: 1000}})
    8
    """
    common = before.keys() & after.keys()
    if not common:
        return None
    # A thread whose counter is lower now is another one with the same number: new.
    return sum(
        delay_ns - old if (old := before[pid].get(tid, 0)) <= delay_ns else delay_ns
        for pid in common
        for tid, delay_ns in after[pid].items()
    )


class TaskRunQueue:
    """Run-queue wait of the threads of some processes.

    Parameters
    ----------
    tree
        Where to read.
    members
        Gives the process ids, anew for each reading; raises :class:`Unavailable`.
    """

    metrics = ("run_queue_wait_cores",)

    def __init__(self, tree: Tree, members: Callable[[], Sequence[int]]) -> None:
        self._tree = tree
        self._members = members

    def read(self) -> Delays:
        """Read every thread; those that end meanwhile are left out.

        Raises
        ------
        Unavailable
            If there are no processes, or none can be read.
        """
        delays = {}
        for pid in self._members():
            try:
                delays[pid] = self._threads(pid)
            except Vanished:
                continue
        if not any(delays.values()):
            raise Unavailable(
                "/proc/PID/task/TID/schedstat: none to read: the processes have just ended, "
                "or the kernel keeps none (CONFIG_SCHED_INFO)"
            )
        return delays

    def _threads(self, pid: int) -> dict[int, int]:
        threads = {}
        for tid in filter(str.isdecimal, self._tree.names(f"/proc/{pid}/task")):
            path = f"/proc/{pid}/task/{tid}/schedstat"
            try:
                threads[int(tid)] = parse_task_delay(self._tree.read(path), path)
            except Vanished:
                continue
        return threads

    def rates(self, before: Delays, after: Delays, interval_s: float) -> dict[str, Measured]:
        """Return the seconds waited a second, summed over threads."""
        waited = waited_ns(before, after)
        return {
            "run_queue_wait_cores": NoData("the processes are new: a rate needs two readings")
            if waited is None
            else per_second(0, waited, interval_s, per_unit=1e9)
        }


def parse_cpu_delays(text: str) -> dict[str, int]:
    """Return the nanoseconds waited on each CPU from ``/proc/schedstat``.

    Raises
    ------
    Unavailable
        If it holds no CPU, or one without that field.
    """
    delays = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            continue
        fields = line.split()
        if len(fields) <= _CPU_RUN_DELAY_FIELD:
            raise Unavailable(f"{_SCHEDSTAT}: {len(fields) - 1} counters for a CPU, not 9")
        delays[fields[0]] = parse_count(fields[_CPU_RUN_DELAY_FIELD], _SCHEDSTAT)
    if not delays:
        raise Unavailable(f"{_SCHEDSTAT}: no CPU in it")
    return delays


class CpuRunQueue:
    """Run-queue wait of everything on the machine, by CPU."""

    metrics = ("run_queue_wait_cores",)

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self) -> dict[str, int]:
        """Read ``/proc/schedstat``.

        Raises
        ------
        Unavailable
            If the kernel has none; the message says what to do instead.
        """
        try:
            return parse_cpu_delays(self._tree.read(_SCHEDSTAT))
        except Vanished as error:
            raise Unavailable(
                f"{error} (CONFIG_SCHEDSTATS is off); name the application's processes with "
                "--pid, --pid-file or --process-name"
            ) from error

    def rates(
        self, before: Mapping[str, int], after: Mapping[str, int], interval_s: float
    ) -> dict[str, Measured]:
        """Return the seconds waited a second, summed over the CPUs online throughout."""
        common = before.keys() & after.keys()
        if any(after[cpu] < before[cpu] for cpu in common):
            return {"run_queue_wait_cores": NoData(f"{_SCHEDSTAT}: a counter went backwards")}
        waited = sum(after[cpu] - before[cpu] for cpu in common)
        return {"run_queue_wait_cores": per_second(0, waited, interval_s, per_unit=1e9)}
