from __future__ import annotations

import pytest

from dial.agent.cgroups import Group, parse_mountinfo
from dial.limits.knobs import CfsQuota, Knob, Resource, Write, probe
from dial.types import NoData
from tests.hosts import Host


def knobs(host: Host, device: str | None = "8:0") -> dict[Resource, Knob | NoData]:
    hierarchies = parse_mountinfo(host.tree.read("/proc/self/mountinfo"))
    return probe(host.tree, Group(hierarchies, "vm/web"), device)


def knob(host: Host, resource: Resource) -> Knob:
    found = knobs(host)[resource]
    assert not isinstance(found, NoData), found
    return found


def test_v2_files_and_what_brings_them_back(host: Host) -> None:
    host.with_v2()
    group = "/sys/fs/cgroup/vm/web"
    cpu, memory = knob(host, Resource.CPU), knob(host, Resource.MEMORY)
    assert cpu.writes(0.35) == (Write(f"{group}/cpu.max", "3500 10000"),)
    assert cpu.restoring() == (Write(f"{group}/cpu.max", "max 100000"),)
    assert memory.writes(2.0**30) == (Write(f"{group}/memory.high", "1073741824"),)
    assert memory.restoring() == (Write(f"{group}/memory.high", "max"),)
    disk = knob(host, Resource.DISK)
    assert disk.writes(1e6) == (Write(f"{group}/io.max", "8:0 rbps=1000000 wbps=1000000"),)
    assert disk.restoring() == (Write(f"{group}/io.max", "8:0 rbps=max wbps=max"),)
    limit = "8:0 rbps=5000 wbps=max riops=max wiops=100"
    host.put(f"{group}/io.max", f"8:16 rbps=1 wbps=1 riops=1 wiops=1\n{limit}\n")
    assert disk.restoring() == (Write(f"{group}/io.max", limit),)


def test_v1_lifts_the_quota_before_the_period_changes(host: Host) -> None:
    host.with_v1()
    group = "/sys/fs/cgroup/cpu/vm/web"
    quota, period = f"{group}/cpu.cfs_quota_us", f"{group}/cpu.cfs_period_us"
    cpu = knob(host, Resource.CPU)
    assert isinstance(cpu, CfsQuota)
    assert cpu.restoring() == (Write(quota, "-1"), Write(period, "100000"), Write(quota, "-1"))
    assert cpu.writes(0.2) == (Write(quota, "-1"), Write(period, "10000"), Write(quota, "2000"))
    host.put(period, "10000\n")
    assert cpu.writes(0.2) == (Write(quota, "2000"),)


def test_v1_disk_limits_are_two_files_and_0_lifts_them(host: Host) -> None:
    host.with_v1()
    disk = knob(host, Resource.DISK)
    assert [write.text for write in disk.writes(1e6)] == ["8:0 1000000", "8:0 1000000"]
    assert [write.text for write in disk.restoring()] == ["8:0 0", "8:0 5000"]


@pytest.mark.parametrize(
    ("cores", "text"),
    [(0.1, "1000 10000"), (0.025, "1000 40000"), (0.001, "1000 1000000"), (0.0, "1000 1000000")],
)
def test_a_quota_under_the_kernels_least_is_one_of_a_longer_period(
    host: Host, cores: float, text: str
) -> None:
    host.with_v2()
    assert knob(host, Resource.CPU).writes(cores)[0].text == text


def test_the_probe_says_what_is_missing(host: Host) -> None:
    host.with_v2()
    (host.root / "sys/fs/cgroup/vm/web/memory.high").unlink()
    found = knobs(host, device=None)
    memory, disk, cache = (found[r] for r in (Resource.MEMORY, Resource.DISK, Resource.CACHE))
    assert isinstance(memory, NoData)
    assert "subtree_control" in memory.reason
    assert isinstance(disk, NoData)
    assert "no disk is named" in disk.reason
    assert isinstance(cache, NoData)
    assert "no resctrl" in cache.reason
