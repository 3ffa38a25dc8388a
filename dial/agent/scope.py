"""Which collectors make up a scope, and why the rest has no data there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dial.agent.capacity import Capacity, FixedCapacity, quota_cores_v1, quota_cores_v2
from dial.agent.cgroups import MOUNTINFO, Group, parse_mountinfo
from dial.agent.counters import Collector
from dial.agent.cpu import GroupCpuV1, GroupCpuV2, MachineCpu
from dial.agent.disk import GroupDiskV1, GroupDiskV2, MachineDisk
from dial.agent.files import Tree, Unavailable
from dial.agent.network import GroupNamespace, Network, Tcp, own_namespace
from dial.agent.pressure import Pressure
from dial.agent.processes import Processes
from dial.agent.run_queue import CpuRunQueue, TaskRunQueue
from dial.agent.self_cost import SelfCost
from dial.agent.shared import Shared
from dial.agent.throttling import Throttling
from dial.errors import SettingError
from dial.types import NoData

_MACHINE_WIDE = NoData("counted for the whole machine only, not for a cgroup")


@dataclass(frozen=True, slots=True)
class Scope:
    """What is measured, and what cannot be."""

    collectors: tuple[Collector[Any], ...]
    absent: dict[str, NoData]


def machine_scope(
    tree: Tree, processes: Processes | None, capacity_cores: float | None = None
) -> Scope:
    """Return the scope ``vm``: the whole of /proc.

    Parameters
    ----------
    tree
        Where to read.
    processes
        The application's, for its run-queue wait; without them it is that of all CPUs.
    capacity_cores
        Overrides the number of online CPUs.
    """
    return Scope(
        (
            MachineCpu(tree, os.sysconf("SC_CLK_TCK")),
            _capacity(tree, None, capacity_cores),
            TaskRunQueue(tree, processes.members) if processes else CpuRunQueue(tree),
            Pressure(tree, {name: f"/proc/pressure/{name}" for name in ("cpu", "io", "memory")}),
            Tcp(tree, own_namespace),
            Network(tree, own_namespace, hardware_only=True),
            MachineDisk(tree),
            _self_cost(tree),
        ),
        {
            "throttled_fraction": NoData(
                "a VM cannot see a quota that its host sets; for one set inside, use --cgroup"
            )
        },
    )


def group_scope(
    tree: Tree, name: str, processes: Processes | None, capacity_cores: float | None = None
) -> Scope:
    """Return the scope ``cgroup``: one group, as far as the kernel counts by group.

    Each signal is taken from the v1 hierarchy of its controller where that is mounted, and
    from v2 otherwise.

    Parameters
    ----------
    tree
        Where to read.
    name
        The group's path below the root of each hierarchy.
    processes
        The application's, if not all of the group.
    capacity_cores
        Overrides the group's quota.

    Raises
    ------
    SettingError
        If no cgroup hierarchy is mounted.
    """
    try:
        hierarchies = parse_mountinfo(tree.read(MOUNTINFO))
    except Unavailable as error:
        raise SettingError(f"--cgroup {name}: {error}") from error
    if not hierarchies.v1 and hierarchies.v2 is None:
        raise SettingError(f"--cgroup {name}: no cgroup hierarchy is mounted ({MOUNTINFO})")
    group = Group(hierarchies, name.strip("/"))
    absent = dict.fromkeys(
        ("cpu_softirq_cores", "cpu_iowait_cores", "cpu_steal_cores", "cpu_unaccounted_cores"),
        _MACHINE_WIDE,
    )
    absent["disk_busy_fraction"] = NoData("busy time is kept for disks, not for cgroups")

    members = Shared(lambda: group.members(tree), time.monotonic)
    namespace = Shared(GroupNamespace(tree, members), time.monotonic)
    collectors: list[Collector[Any]] = [
        TaskRunQueue(tree, processes.members if processes else members),
        Tcp(tree, namespace),
        Network(tree, namespace, hardware_only=False),
        _self_cost(tree),
        *_group_cpu(tree, group, capacity_cores, absent),
        *_group_disk(tree, group, absent),
    ]
    if unified := group.v2():
        files = {kind: f"{unified}/{kind}.pressure" for kind in ("cpu", "io", "memory")}
        collectors.append(Pressure(tree, files))
    else:
        reason = NoData("pressure of a cgroup needs a v2 hierarchy, and none is mounted")
        absent |= dict.fromkeys(Pressure.metrics, reason)
    return Scope(tuple(collectors), absent)


def _group_cpu(
    tree: Tree, group: Group, capacity_cores: float | None, absent: dict[str, NoData]
) -> list[Collector[Any]]:
    collectors: list[Collector[Any]] = []
    unified = group.v2()
    if accounting := group.v1("cpuacct"):
        collectors.append(GroupCpuV1(tree, accounting))
    elif unified:
        collectors.append(GroupCpuV2(tree, unified))
    else:
        absent |= dict.fromkeys(GroupCpuV1.metrics, _not_mounted("cpuacct"))
    if v1 := group.v1("cpu"):
        collectors.append(Throttling(tree, v1))
        collectors.append(_capacity(tree, lambda: quota_cores_v1(tree, v1), capacity_cores))
    elif unified:
        collectors.append(Throttling(tree, unified))
        collectors.append(_capacity(tree, lambda: quota_cores_v2(tree, unified), capacity_cores))
    else:
        absent["throttled_fraction"] = _not_mounted("cpu")
        collectors.append(_capacity(tree, None, capacity_cores))
    return collectors


def _group_disk(tree: Tree, group: Group, absent: dict[str, NoData]) -> list[Collector[Any]]:
    if v1 := group.v1("blkio"):
        return [GroupDiskV1(tree, v1)]
    if unified := group.v2():
        return [GroupDiskV2(tree, unified)]
    absent["disk_bytes_per_s"] = _not_mounted("blkio")
    return []


def _not_mounted(controller: str) -> NoData:
    return NoData(f"no cgroup hierarchy with the {controller} controller is mounted")


def _capacity(
    tree: Tree, own_quota_cores: Callable[[], float | None] | None, given_cores: float | None
) -> Collector[float]:
    return Capacity(tree, own_quota_cores) if given_cores is None else FixedCapacity(given_cores)


def _self_cost(tree: Tree) -> SelfCost:
    return SelfCost(tree, os.sysconf("SC_PAGE_SIZE"), time.process_time_ns)
