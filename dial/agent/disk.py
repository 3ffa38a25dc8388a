"""Disk time and bytes, of the machine's disks or of one cgroup.

Of a machine, whole disks that are hardware to it count (those with a ``device`` in
sysfs); partitions, loop, RAM, LVM and RAID devices would count the same bytes again.
Busy time is that of the busiest disk: a mean over disks hides the one that is full.

Of a group, bytes are counted by the block layer, v1 in
``blkio.throttle.io_service_bytes`` (whether or not a limit is set), v2 in ``io.stat``.
Buffered writes reach the disk through the kernel's own threads: v1 charges them to the
root group, v2 to the group that wrote.  Busy time is kept for disks, not for groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dial.agent.counters import fraction_of_time, growth, parse_count, per_second
from dial.agent.files import Tree, Unavailable, Vanished
from dial.types import Measured, NoData

_DISKSTATS = "/proc/diskstats"
_SECTOR_BYTES = 512
"""Of /proc/diskstats, whatever the disk's own sector is (Documentation/admin-guide/iostats)."""


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """One disk since boot."""

    moved_bytes: int
    busy_ms: int


def parse_diskstats(text: str) -> dict[str, DiskCounts]:
    """Return the counters of every block device, partitions included.

    Fields, from 0: 2 name, 5 sectors read, 9 sectors written, 12 milliseconds busy.

    Raises
    ------
    Unavailable
        If a line has fewer than fourteen fields.
    """
    disks = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 14:
            raise Unavailable(f"{_DISKSTATS}: {len(fields)} fields for a disk, not 14")
        sectors = parse_count(fields[5], _DISKSTATS) + parse_count(fields[9], _DISKSTATS)
        busy_ms = parse_count(fields[12], _DISKSTATS)
        disks[fields[2]] = DiskCounts(sectors * _SECTOR_BYTES, busy_ms)
    return disks


class MachineDisk:
    """Time and bytes of the machine's disks."""

    metrics = ("disk_busy_fraction", "disk_bytes_per_s")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self) -> dict[str, DiskCounts]:
        """Read ``/proc/diskstats``; raises :class:`Unavailable`, also without any disk."""
        disks = {
            name: counts
            for name, counts in parse_diskstats(self._tree.read(_DISKSTATS)).items()
            if self._tree.exists(f"/sys/block/{name}/device")
        }
        if not disks:
            raise Unavailable(f"{_DISKSTATS}: no disk with hardware behind it")
        return disks

    def rates(
        self, before: Mapping[str, DiskCounts], after: Mapping[str, DiskCounts], interval_s: float
    ) -> dict[str, Measured]:
        """Return the busiest disk's share of time, and bytes a second of all."""
        busy: list[float] = []
        moved_bytes = 0
        for name in sorted(before.keys() & after.keys()):
            old, new = before[name], after[name]
            share = fraction_of_time(old.busy_ms, new.busy_ms, interval_s, per_second_counts=1e3)
            added = growth(old.moved_bytes, new.moved_bytes)
            if isinstance(share, NoData) or isinstance(added, NoData):
                worst = share if isinstance(share, NoData) else added
                return dict.fromkeys(self.metrics, worst)
            busy.append(share)
            moved_bytes += added
        if not busy:
            return dict.fromkeys(self.metrics, NoData("other disks than before"))
        return {
            "disk_busy_fraction": max(busy),
            "disk_bytes_per_s": per_second(0, moved_bytes, interval_s),
        }


def parse_service_bytes(text: str, where: str) -> dict[str, int]:
    r"""Return bytes by device from v1's ``io_service_bytes``: reads and writes alone.

    Raises
    ------
    Unavailable
        If a line's number is none.

    Examples
    --------
    >>> parse_service_bytes("8:0 Read 5\n8:0 Write 2\n8:0 Discard 9\nTotal 16", "f")
    {'8:0': 7}
    """
    moved: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in ("Read", "Write"):
            moved[fields[0]] = moved.get(fields[0], 0) + parse_count(fields[2], where)
    return moved


def parse_io_stat(text: str, where: str) -> dict[str, int]:
    """Return bytes by device from v2's ``io.stat``: ``rbytes`` and ``wbytes`` alone.

    Raises
    ------
    Unavailable
        If one of the two is no number.

    Examples
    --------
    >>> parse_io_stat("8:0 rbytes=5 wbytes=2 rios=1 wios=1 dbytes=9 dios=1", "f")
    {'8:0': 7}
    """
    moved: dict[str, int] = {}
    for line in text.splitlines():
        device, _, rest = line.partition(" ")
        for field in rest.split():
            key, _, value = field.partition("=")
            if key in ("rbytes", "wbytes"):
                moved[device] = moved.get(device, 0) + parse_count(value, where)
    return moved


def group_bytes_per_s(
    before: Mapping[str, int], after: Mapping[str, int], interval_s: float
) -> Measured:
    """Return bytes a second over all devices.

    A device appears in a group's file with its first byte, so a new one counts from 0.
    """
    moved = 0
    for device, counter in after.items():
        added = growth(before.get(device, 0), counter)
        if isinstance(added, NoData):
            return NoData(f"{device}: {added.reason}")
        moved += added
    return per_second(0, moved, interval_s)


class GroupDiskV1:
    """Bytes of a cgroup v1 group, descendants included where the kernel sums them.

    Parameters
    ----------
    tree
        Where to read.
    directory
        The group's directory in the blkio hierarchy.
    """

    metrics = ("disk_bytes_per_s",)

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._path = f"{directory}/blkio.throttle.io_service_bytes"

    def read(self) -> dict[str, int]:
        """Read bytes by device; raises :class:`Unavailable`."""
        try:
            return parse_service_bytes(self._tree.read(f"{self._path}_recursive"), self._path)
        except Vanished:  # kernels before 4.14
            return parse_service_bytes(self._tree.read(self._path), self._path)

    def rates(
        self, before: Mapping[str, int], after: Mapping[str, int], interval_s: float
    ) -> dict[str, Measured]:
        """Return bytes a second."""
        return {"disk_bytes_per_s": group_bytes_per_s(before, after, interval_s)}


class GroupDiskV2:
    """Bytes of a cgroup v2 group, descendants included.

    Parameters
    ----------
    tree
        Where to read.
    directory
        The group's directory; the io controller must be enabled for it.
    """

    metrics = ("disk_bytes_per_s",)

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._path = f"{directory}/io.stat"

    def read(self) -> dict[str, int]:
        """Read bytes by device; raises :class:`Unavailable`."""
        try:
            return parse_io_stat(self._tree.read(self._path), self._path)
        except Vanished as error:
            raise Unavailable(f"{error} (the io controller is not enabled here)") from error

    def rates(
        self, before: Mapping[str, int], after: Mapping[str, int], interval_s: float
    ) -> dict[str, Measured]:
        """Return bytes a second."""
        return {"disk_bytes_per_s": group_bytes_per_s(before, after, interval_s)}
