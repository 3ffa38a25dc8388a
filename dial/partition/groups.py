"""What a service's cgroup uses, and what its subtree may use: v2, v1 and hybrid hosts."""

from __future__ import annotations

from collections.abc import Iterator

from dial.agent.capacity import parse_cpu_list, quota_cores_v1, quota_cores_v2
from dial.agent.cgroups import Group, Hierarchies
from dial.agent.counters import parse_count, parse_keyed
from dial.agent.files import Tree, Unavailable, Vanished
from dial.limits import cpu_time

_ONLINE = "/sys/devices/system/cpu/online"
_MEMINFO = "/proc/meminfo"


class GroupUse:
    """Counters of one group that tell what it has and does.

    Parameters
    ----------
    tree
        Where to read.
    group
        The service's.
    """

    def __init__(self, tree: Tree, group: Group) -> None:
        self._tree = tree
        self._group = group
        self._memory_v1 = group.v1("memory")
        self._disk_v1 = group.v1("blkio")
        self._unified = group.v2()

    def cpu_ns(self) -> int:
        """CPU time; raises :class:`Unavailable`."""
        return cpu_time.used_ns(self._tree, self._group)

    def throttled_ns(self) -> int:
        """For how long its share kept it from running; raises :class:`Unavailable`."""
        return cpu_time.throttled_ns(self._tree, self._group)

    def memory_bytes(self) -> int:
        """Memory that cannot be dropped: anonymous and shared pages, not the page cache.

        Raises
        ------
        Unavailable
            If the kernel does not count it for this group.
        """
        directory = self._memory_v1 or self._unified
        if directory is None:
            raise Unavailable("no cgroup hierarchy with the memory controller is mounted")
        stat = f"{directory}/memory.stat"
        counts = parse_keyed(self._tree.read(stat), stat)
        # v1's total_ counts descendants, as v2 does throughout.
        names = ("total_rss", "total_shmem") if self._memory_v1 else ("anon", "shmem")
        if names[0] not in counts:
            raise Unavailable(f"{stat}: no {names[0]} line")
        return sum(counts.get(name, 0) for name in names)

    def disk_read_bytes(self) -> int:
        """Bytes read from disks since the group was made.

        Raises
        ------
        Unavailable
            If the kernel does not count them for this group.
        """
        if self._disk_v1 is not None:
            where = f"{self._disk_v1}/blkio.throttle.io_service_bytes"
            lines = [line.split() for line in self._tree.read(where).splitlines()]
            return sum(
                parse_count(fields[2], where)
                for fields in lines
                if len(fields) == 3 and fields[1] == "Read"
            )
        if self._unified is None:
            raise Unavailable("no cgroup hierarchy with the io controller is mounted")
        where = f"{self._unified}/io.stat"
        return sum(
            parse_count(field.partition("=")[2], where)
            for line in self._tree.read(where).splitlines()
            for field in line.split()
            if field.startswith("rbytes=")
        )


def subtree_cores(tree: Tree, hierarchies: Hierarchies, subtree: str) -> float:
    """Return the cores that a subtree may use: those online, and every quota above it.

    Raises
    ------
    Unavailable
        If the online CPUs or a quota cannot be read.
    """
    cores = float(parse_cpu_list(tree.read(_ONLINE)))
    for name in _upwards(subtree):
        group = Group(hierarchies, name)
        try:
            if directory := group.v1("cpu"):
                quota = quota_cores_v1(tree, directory)
            elif directory := group.v2():
                quota = quota_cores_v2(tree, directory)
            else:
                quota = None
        except Vanished:
            continue  # a v2 group without the cpu controller has no quota
        if quota is not None:
            cores = min(cores, quota)
    return cores


def available_bytes(tree: Tree) -> int:
    """Return the memory that could be had without swapping, ``MemAvailable``.

    Raises
    ------
    Unavailable
        If ``/proc/meminfo`` has no such line.
    """
    for line in tree.read(_MEMINFO).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return parse_count(value.split()[0] if value.split() else "", _MEMINFO) * 1024
    raise Unavailable(f"{_MEMINFO}: no MemAvailable line")


def _upwards(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition("/")[0]
