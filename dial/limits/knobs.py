"""Which file sets how much of a resource a cgroup may use: v2, v1 and hybrid hosts.

A knob knows how to write an amount, and how to write back what is there now.  Both are lists
of writes and neither is done here, so that a dry run is the same code as a real one.

=============  =======================  ======================================================
resource       v2                       v1
=============  =======================  ======================================================
cpu (cores)    ``cpu.max``              ``cpu.cfs_period_us``, ``cpu.cfs_quota_us``
memory (byte)  ``memory.high``          ``memory.limit_in_bytes``: v1 has no limit that only
                                        slows down
disk (byte/s)  ``io.max``, rbps, wbps   ``blkio.throttle.{read,write}_bps_device``; buffered
                                        writes are not counted to the group there
cache          resctrl, not driven      the same
frequency      cpufreq, not driven      the same
=============  =======================  ======================================================

Cache ways and frequencies belong to cores, and services here share cores by time; guests that
show either are rare.  The probe says whether this one does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from dial.agent.cgroups import Group
from dial.agent.files import Tree, Unavailable
from dial.types import NoData

PERIOD_US = 10_000
"""Of CPU quotas.  Who has used its quota up waits for the rest of the period: with the kernel's
default of 100 ms that wait alone would miss a target of 50 ms."""

_LEAST_QUOTA_US = 1_000
"""The kernel refuses less (sched-bwc.rst)."""
_LONGEST_PERIOD_US = 1_000_000
"""And longer periods."""


class Resource(StrEnum):
    """The five tradeable resources of PARTIES (4.2.3); egress bandwidth is not traded."""

    CPU = "cpu"
    CACHE = "cache"
    FREQUENCY = "frequency"
    MEMORY = "memory"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Write:
    """One text for one file of a cgroup."""

    path: str
    text: str


class Knob(Protocol):
    """One resource of one group."""

    def writes(self, amount: float) -> tuple[Write, ...]:
        """What limits the group to ``amount``; pure."""

    def restoring(self) -> tuple[Write, ...]:
        """What would bring back the limit that is in force now.

        Raises
        ------
        Unavailable
            If the file is not there: the controller is not enabled for this group.
        """


class CpuMax:
    """``cpu.max`` of v2: quota and period in one write."""

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._file = f"{directory}/cpu.max"

    def writes(self, amount: float) -> tuple[Write, ...]:
        """Limit to ``amount`` cores."""
        quota_us, period_us = _quota(amount)
        return (Write(self._file, f"{quota_us} {period_us}"),)

    def restoring(self) -> tuple[Write, ...]:
        """See :meth:`Knob.restoring`."""
        return (Write(self._file, self._tree.read(self._file).strip()),)


class CfsQuota:
    """The two files of v1.

    The kernel checks each write by itself against the parent's ratio, so the quota is lifted
    before the period changes: an old quota in a new period could be more than the parent's.
    """

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._quota = f"{directory}/cpu.cfs_quota_us"
        self._period = f"{directory}/cpu.cfs_period_us"

    def writes(self, amount: float) -> tuple[Write, ...]:
        """Limit to ``amount`` cores."""
        quota_us, period_us = _quota(amount)
        quota = Write(self._quota, str(quota_us))
        if self._now(self._period) == str(period_us):
            return (quota,)
        return (Write(self._quota, "-1"), Write(self._period, str(period_us)), quota)

    def restoring(self) -> tuple[Write, ...]:
        """See :meth:`Knob.restoring`."""
        quota, period = self._tree.read(self._quota), self._tree.read(self._period)
        return (
            Write(self._quota, "-1"),
            Write(self._period, period.strip()),
            Write(self._quota, quota.strip()),
        )

    def _now(self, path: str) -> str | None:
        try:
            return self._tree.read(path).strip()
        except Unavailable:
            return None


class MemoryLimit:
    """``memory.high`` of v2, or ``memory.limit_in_bytes`` of v1."""

    def __init__(self, tree: Tree, file: str) -> None:
        self._tree = tree
        self._file = file

    def writes(self, amount: float) -> tuple[Write, ...]:
        """Limit to ``amount`` bytes."""
        return (Write(self._file, str(round(amount))),)

    def restoring(self) -> tuple[Write, ...]:
        """See :meth:`Knob.restoring`."""
        return (Write(self._file, self._tree.read(self._file).strip()),)


class IoMax:
    """``io.max`` of v2, of one device."""

    def __init__(self, tree: Tree, directory: str, device: str) -> None:
        self._tree = tree
        self._file = f"{directory}/io.max"
        self._device = device

    def writes(self, amount: float) -> tuple[Write, ...]:
        """Limit reads and writes to ``amount`` bytes a second each."""
        return (Write(self._file, f"{self._device} rbps={amount:.0f} wbps={amount:.0f}"),)

    def restoring(self) -> tuple[Write, ...]:
        """See :meth:`Knob.restoring`; a device without a line has no limit."""
        for line in self._tree.read(self._file).splitlines():
            if line.split(" ")[0] == self._device:
                return (Write(self._file, line),)
        return (Write(self._file, f"{self._device} rbps=max wbps=max"),)


class BlkioThrottle:
    """The two files of v1, of one device; 0 lifts a limit."""

    def __init__(self, tree: Tree, directory: str, device: str) -> None:
        self._tree = tree
        self._files = [
            f"{directory}/blkio.throttle.{kind}_bps_device" for kind in ("read", "write")
        ]
        self._device = device

    def writes(self, amount: float) -> tuple[Write, ...]:
        """Limit reads and writes to ``amount`` bytes a second each."""
        return tuple(Write(file, f"{self._device} {amount:.0f}") for file in self._files)

    def restoring(self) -> tuple[Write, ...]:
        """See :meth:`Knob.restoring`."""
        return tuple(Write(file, f"{self._device} {self._now(file)}") for file in self._files)

    def _now(self, file: str) -> str:
        for line in self._tree.read(file).splitlines():
            device, _, limit = line.partition(" ")
            if device == self._device:
                return limit.strip()
        return "0"


def probe(tree: Tree, group: Group, device: str | None) -> dict[Resource, Knob | NoData]:
    """Return the knob of each resource, or why there is none.

    Parameters
    ----------
    tree
        Where to read.
    group
        The service's.
    device
        ``MAJOR:MINOR`` of the disk to divide, if one is.
    """
    found: dict[Resource, Knob | NoData] = {}
    for resource, knob in (
        (Resource.CPU, _cpu(tree, group)),
        (Resource.MEMORY, _memory(tree, group)),
        (Resource.DISK, _disk(tree, group, device)),
    ):
        found[resource] = knob if isinstance(knob, NoData) else _tried(knob)
    found[Resource.CACHE] = _not_driven(tree, "/sys/fs/resctrl/schemata", "resctrl")
    found[Resource.FREQUENCY] = _not_driven(
        tree, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "cpufreq"
    )
    return found


def _cpu(tree: Tree, group: Group) -> Knob | NoData:
    if v1 := group.v1("cpu"):
        return CfsQuota(tree, v1)
    if v2 := group.v2():
        return CpuMax(tree, v2)
    return NoData("no cgroup hierarchy with the cpu controller is mounted")


def _memory(tree: Tree, group: Group) -> Knob | NoData:
    if v1 := group.v1("memory"):
        return MemoryLimit(tree, f"{v1}/memory.limit_in_bytes")
    if v2 := group.v2():
        return MemoryLimit(tree, f"{v2}/memory.high")
    return NoData("no cgroup hierarchy with the memory controller is mounted")


def _disk(tree: Tree, group: Group, device: str | None) -> Knob | NoData:
    if device is None:
        return NoData('no disk is named in the file: [disk] device = "MAJOR:MINOR"')
    if v1 := group.v1("blkio"):
        return BlkioThrottle(tree, v1, device)
    if v2 := group.v2():
        return IoMax(tree, v2, device)
    return NoData("no cgroup hierarchy with the io controller is mounted")


def _tried(knob: Knob) -> Knob | NoData:
    try:
        knob.restoring()
    except Unavailable as error:
        return NoData(f"{error}; is its controller in the parent's cgroup.subtree_control?")
    return knob


def _not_driven(tree: Tree, path: str, what: str) -> NoData:
    if tree.exists(path):
        return NoData(f"this guest shows {what}, but services that share cores cannot divide it")
    return NoData(f"this guest shows no {what} ({path})")


def _quota(cores: float) -> tuple[int, int]:
    """Quota and period; what is too little for one period is written for a longer one."""
    quota_us = round(cores * PERIOD_US)
    if quota_us >= _LEAST_QUOTA_US:
        return quota_us, PERIOD_US
    period_us = math.ceil(_LEAST_QUOTA_US / max(cores, 1e-3))
    return _LEAST_QUOTA_US, min(period_us, _LONGEST_PERIOD_US)
