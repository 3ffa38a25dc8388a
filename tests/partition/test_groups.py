from __future__ import annotations

import pytest

from dial.agent.cgroups import Group, parse_mountinfo
from dial.agent.files import Unavailable
from dial.partition.groups import GroupUse, available_bytes, subtree_cores
from tests.hosts import Host


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_memory_in_use_is_what_cannot_be_dropped_and_reads_are_counted(
    host: Host, version: str
) -> None:
    host = host.with_v1() if version == "v1" else host.with_v2()
    hierarchies = parse_mountinfo(host.tree.read("/proc/self/mountinfo"))
    use = GroupUse(host.tree, Group(hierarchies, "vm/web"))
    assert use.memory_bytes() == 2**30
    assert use.disk_read_bytes() == 4096


def test_a_subtree_may_use_what_every_quota_above_it_leaves(host: Host) -> None:
    host.with_v1()
    hierarchies = parse_mountinfo(host.tree.read("/proc/self/mountinfo"))
    assert subtree_cores(host.tree, hierarchies, "vm") == 0.5
    assert subtree_cores(host.tree, hierarchies, "other") == 2.0


def test_available_memory_is_in_bytes(host: Host) -> None:
    assert available_bytes(host.tree) == 12 * 2**30
    host.put("/proc/meminfo", "MemTotal: 1 kB\n")
    with pytest.raises(Unavailable, match="MemAvailable"):
        available_bytes(host.tree)
