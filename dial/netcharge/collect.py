"""The charge as a part of the agent's samples: what rho_fg lacks.

rho_fg of the CPU is the time that the VM's own accounts show over its capacity.  Its network
processing is its own use as well, and what accounts do not show would be taken for a
neighbour's.  So a sample tells it, and own use is the sum
(:attr:`dial.types.AgentSample.cpu_time_cores`).

In the scope of the VM all packets are the tenant's, and ``/proc/stat`` keeps softirqs apart from
user and system time: all of the network's softirq time is charged.  In the scope of a cgroup it
is the group's packets, less what its threads did for others.
"""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial import bpf
from dial.agent.cgroups import MOUNTINFO, Group, parse_mountinfo
from dial.agent.counters import Collector, per_second
from dial.agent.cpu import parse_stat
from dial.agent.files import Tree, Unavailable
from dial.agent.network import GroupNamespace, own_namespace
from dial.netcharge.estimate import Calibration, parse_packets
from dial.netcharge.softirq import Counts, Softirqs, cost_ns
from dial.types import Measured, NoData

_log = logging.getLogger(__name__)

_OWN = "own"


METRICS = ("net_softirq_cores", "net_softirq_shown_cores")


def collector(tree: Tree, cgroup: str | None) -> Collector[Any] | NoData:
    """Return what measures the charge here; which one it is goes to the log.

    Parameters
    ----------
    tree
        Where to read.
    cgroup
        The agent's ``--cgroup``; ``None`` for the whole VM.
    """
    try:
        mounts = parse_mountinfo(tree.read(MOUNTINFO))
    except Unavailable as error:
        return NoData(str(error))
    group = Group(mounts, cgroup.strip("/")) if cgroup else None
    try:
        softirqs = Softirqs(mounts.v2 or "", {_OWN: group.v2() or ""} if group else {})
    except bpf.BpfError as error:
        _log.info("network processing is charged by packets times a calibrated cost: %s", error)
        return EstimatedCharge(tree, group)
    _log.info("network processing is charged as eBPF measures it")
    return MeasuredCharge(softirqs, group=group is not None, accounted=context_is_accounted())


class MeasuredCharge:
    """By eBPF.

    Parameters
    ----------
    softirqs
        Counts.
    group
        Whether it counts for a group, by the name ``own``, and not for the whole VM.
    accounted
        See :func:`context_is_accounted`.
    """

    metrics = METRICS

    def __init__(self, softirqs: Softirqs, *, group: bool, accounted: bool) -> None:
        self._softirqs = softirqs
        self._group = group
        self._accounted = accounted

    def read(self) -> Counts:
        """Read the counters; raises :class:`Unavailable`."""
        try:
            return self._softirqs.read()
        except bpf.BpfError as error:
            raise Unavailable(str(error)) from error

    def rates(self, before: Counts, after: Counts, interval_s: float) -> dict[str, Measured]:
        """Return CPU seconds a second."""
        shown_ns = 0.0
        if self._group:
            spent_ns = cost_ns(before, after, _OWN)
            if self._accounted:
                shown_ns = float(after.context_ns[_OWN] - before.context_ns[_OWN])
        else:
            spent_ns = float(
                after.receiving_ns - before.receiving_ns + after.sending_ns - before.sending_ns
            )
        per_s = max(interval_s, 1e-3) * 1e9
        return {"net_softirq_cores": spent_ns / per_s, "net_softirq_shown_cores": shown_ns / per_s}


@dataclass(frozen=True, slots=True)
class Reading:
    """Softirq time and packets of the machine, and the packets of whom it is about."""

    softirq_ticks: int
    machine_packets: int
    own_packets: int
    namespace: str


class EstimatedCharge:
    """By packets times a calibrated cost.

    Parameters
    ----------
    tree
        Where to read.
    group
        Of whom, if it has a network namespace of its own; ``None`` for the whole VM.
    """

    metrics = METRICS

    def __init__(self, tree: Tree, group: Group | None) -> None:
        self._tree = tree
        self._locate: Callable[[], Any] = own_namespace
        if group is not None:
            self._locate = GroupNamespace(tree, lambda: group.members(tree))
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._calibration = Calibration()

    def read(self) -> Reading:
        """Read the counters; raises :class:`Unavailable`."""
        namespace = self._locate()
        return Reading(
            parse_stat(self._tree.read("/proc/stat")).softirq,
            self._packets("/proc/net"),
            self._packets(namespace.directory),
            namespace.identity,
        )

    def rates(self, before: Reading, after: Reading, interval_s: float) -> dict[str, Measured]:
        """Return CPU seconds a second, and learn what a packet costs."""
        if before.namespace != after.namespace:
            return dict.fromkeys(METRICS, NoData("another network namespace than before"))
        softirqs = after.softirq_ticks - before.softirq_ticks
        packets = after.machine_packets - before.machine_packets
        if softirqs >= 0 and packets >= 0:
            self._calibration = self._calibration.learn(
                softirq_s=softirqs / self._ticks_per_s, packets=packets, interval_s=interval_s
            )
        per_s = per_second(before.own_packets, after.own_packets, interval_s)
        spent = per_s if isinstance(per_s, NoData) else per_s * self._calibration.cost_s
        shown = NoData("whom softirqs interrupt is known with eBPF only")
        return {"net_softirq_cores": spent, "net_softirq_shown_cores": shown}

    def _packets(self, directory: str) -> int:
        where = f"{directory}/dev"
        try:
            return parse_packets(self._tree.read(where))
        except ValueError as error:
            raise Unavailable(f"{where}: {error}") from error


def context_is_accounted() -> bool:
    """Whether this kernel books softirqs to the thread that they interrupt.

    It does unless built with IRQ_TIME_ACCOUNTING.  A kernel that does not show how it was built
    is taken for one that does: then nobody is charged twice.
    """
    option = b"CONFIG_IRQ_TIME_ACCOUNTING=y"
    try:
        built = gzip.decompress(Path("/proc/config.gz").read_bytes())
    except (OSError, EOFError):
        try:
            built = Path(f"/boot/config-{os.uname().release}").read_bytes()
        except OSError:
            return True
    return option not in built
