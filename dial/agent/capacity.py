"""How much CPU there is to use when nobody contends for it.

A machine has its online CPUs.  A cgroup has its own quota where it has one; a quota of a
group *above* it is the emulated or rented machine's, not its own, and does not show here
(``--cpu-capacity-cores`` tells the agent what the admin knows).
"""

from __future__ import annotations

from collections.abc import Callable

from dial.agent.counters import parse_count
from dial.agent.files import Tree, Unavailable
from dial.types import Measured

_ONLINE = "/sys/devices/system/cpu/online"


def parse_cpu_list(text: str) -> int:
    """Count the CPUs in a list such as ``0-3,8``.

    Raises
    ------
    Unavailable
        If it is no such list, or an empty one.

    Examples
    --------
    >>> parse_cpu_list("0-3,8")
    5
    """
    total = 0
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        low = parse_count(first, _ONLINE)
        high = parse_count(last, _ONLINE) if dash else low
        if high < low:
            raise Unavailable(f"{_ONLINE}: {part[:40]!r} is not a range of CPUs")
        total += high - low + 1
    return total


def quota_cores_v1(tree: Tree, directory: str) -> float | None:
    """Return the quota of a v1 group in cores, ``None`` where it has none.

    Raises
    ------
    Unavailable
        If its files cannot be read.
    """
    quota = tree.read(f"{directory}/cpu.cfs_quota_us").strip()
    if quota == "-1":
        return None
    where = f"{directory}/cpu.cfs_period_us"
    period_us = parse_count(tree.read(where).strip(), where)
    return _cores(parse_count(quota, f"{directory}/cpu.cfs_quota_us"), period_us, where)


def quota_cores_v2(tree: Tree, directory: str) -> float | None:
    """Return the quota of a v2 group in cores, ``None`` where it has none.

    Raises
    ------
    Unavailable
        If ``cpu.max`` cannot be read (the root group and one without controllers have none).
    """
    where = f"{directory}/cpu.max"
    quota, _, period = tree.read(where).strip().partition(" ")
    if quota == "max":
        return None
    return _cores(parse_count(quota, where), parse_count(period, where), where)


def _cores(quota_us: int, period_us: int, where: str) -> float:
    if period_us == 0:
        raise Unavailable(f"{where}: a period of 0")
    return quota_us / period_us


class Capacity:
    """CPU capacity, read anew each time: a VM can be resized while it runs.

    Parameters
    ----------
    tree
        Where to read.
    own_quota_cores
        Gives the group's quota; ``None`` for a whole machine.
    """

    metrics = ("cpu_capacity_cores",)

    def __init__(
        self, tree: Tree, own_quota_cores: Callable[[], float | None] | None = None
    ) -> None:
        self._tree = tree
        self._own_quota_cores = own_quota_cores

    def read(self) -> float:
        """Return the capacity in cores; raises :class:`Unavailable`."""
        online = float(parse_cpu_list(self._tree.read(_ONLINE)))
        quota = self._own_quota_cores() if self._own_quota_cores else None
        return online if quota is None else min(quota, online)

    def rates(
        self,
        before: float,  # noqa: ARG002 - the signature of every Collector
        after: float,
        interval_s: float,  # noqa: ARG002
    ) -> dict[str, Measured]:
        """Return the newer reading: a capacity is a level, not a counter."""
        return {"cpu_capacity_cores": after}


class FixedCapacity:
    """CPU capacity as the admin gave it."""

    metrics = ("cpu_capacity_cores",)

    def __init__(self, cores: float) -> None:
        self._cores = cores

    def read(self) -> float:
        """Return the capacity in cores."""
        return self._cores

    def rates(
        self,
        before: float,  # noqa: ARG002 - the signature of every Collector
        after: float,
        interval_s: float,  # noqa: ARG002
    ) -> dict[str, Measured]:
        """Return it again."""
        return {"cpu_capacity_cores": after}
