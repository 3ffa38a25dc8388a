"""CPU time of one group, and for how long its quota kept it from running: v2, v1 and hybrid."""

from __future__ import annotations

from dial.agent.cgroups import Group
from dial.agent.counters import parse_count, parse_keyed
from dial.agent.files import Tree, Unavailable


def used_ns(tree: Tree, group: Group) -> int:
    """Return a group's CPU time so far, by its own accounts.

    Raises
    ------
    Unavailable
        If the kernel does not count it.
    """
    if directory := group.v1("cpuacct"):
        where = f"{directory}/cpuacct.usage"
        return parse_count(tree.read(where).strip(), where)
    return _count(tree, f"{group.v2() or ''}/cpu.stat", "usage_usec") * 1_000


def throttled_ns(tree: Tree, group: Group) -> int:
    """Return for how long its own quota has kept a group from running, summed over CPUs.

    Raises
    ------
    Unavailable
        If the cpu controller is not enabled for it.
    """
    if directory := group.v1("cpu"):
        return _count(tree, f"{directory}/cpu.stat", "throttled_time")
    return _count(tree, f"{group.v2() or ''}/cpu.stat", "throttled_usec") * 1_000


def _count(tree: Tree, where: str, name: str) -> int:
    counts = parse_keyed(tree.read(where), where)
    if name not in counts:
        raise Unavailable(f"{where}: no {name} line")
    return counts[name]
