"""Path logic of v1, v2 and hybrid hosts, on a fake tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from dial.errors import LabError
from dial_lab.cgroups import Cgroups, find
from dial_lab.topology import place

V1_CPU = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
V1_BOTH = "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
V1_USE = "31 25 0:27 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
V2 = "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def tree(root: Path, *files: str) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return root


def test_hybrid_host_sets_quotas_in_v1_and_has_the_group_in_v2_too(tmp_path: Path) -> None:
    tree(tmp_path, "sys/fs/cgroup/cpu/cpu.shares", "sys/fs/cgroup/unified/cgroup.procs")
    found = find(V1_CPU + V1_USE + V2, tmp_path)
    mounts = tmp_path / "sys/fs/cgroup"
    assert found.roots == (mounts / "cpu", mounts / "cpuacct", mounts / "unified")
    assert not found.cpu_is_v2


def test_cpu_and_cpuacct_in_one_hierarchy_are_used_once(tmp_path: Path) -> None:
    tree(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.shares")
    found = find(V1_BOTH, tmp_path)
    assert found.roots == (tmp_path / "sys/fs/cgroup/cpu,cpuacct",)


def test_v2_host_with_the_cpu_controller_is_used(tmp_path: Path) -> None:
    tree(tmp_path, "sys/fs/cgroup/unified/cgroup.controllers")
    (tmp_path / "sys/fs/cgroup/unified/cgroup.controllers").write_text("cpuset cpu io\n")
    found = find(V2, tmp_path)
    assert found.cpu_is_v2
    assert found.roots == (tmp_path / "sys/fs/cgroup/unified",)


def test_v2_host_without_the_cpu_controller_is_refused_and_told_why(tmp_path: Path) -> None:
    tree(tmp_path, "sys/fs/cgroup/unified/cgroup.controllers")
    (tmp_path / "sys/fs/cgroup/unified/cgroup.controllers").write_text("memory\n")
    with pytest.raises(LabError, match=r"lists no cpu \(only: memory\)"):
        find(V2, tmp_path)


def test_host_without_cgroups_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no cgroup hierarchy is mounted"):
        find("22 1 0:20 / /proc rw - proc proc rw\n", tmp_path)


def test_v1_quota_and_weight_are_spelt_as_v1_spells_them(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    cgroups = Cgroups(tmp_path, False, ())
    cgroups.set_quota("g", 3000, 10_000)
    cgroups.set_weight("g", 100)
    assert (tmp_path / "g/cpu.cfs_quota_us").read_text() == "3000"
    assert (tmp_path / "g/cpu.cfs_period_us").read_text() == "10000"
    assert (tmp_path / "g/cpu.shares").read_text() == "102400"


def test_v2_quota_and_weight_are_spelt_as_v2_spells_them(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    cgroups = Cgroups(tmp_path, True, ())
    cgroups.set_quota("g", 3000, 10_000)
    cgroups.set_weight("g", 100)
    assert (tmp_path / "g/cpu.max").read_text() == "3000 10000"
    assert (tmp_path / "g/cpu.weight").read_text() == "10000"


def test_quota_below_the_kernels_least_keeps_its_fraction_in_a_longer_period(
    tmp_path: Path,
) -> None:
    (tmp_path / "g").mkdir()
    Cgroups(tmp_path, True, ()).set_quota("g", 300, 10_000)
    # 300 of 10,000 is 3 %; four periods hold the 1 ms that the kernel asks for.
    assert (tmp_path / "g/cpu.max").read_text() == "1200 40000"


def test_cpu_time_is_read_from_v1_in_ns_and_from_v2_in_us(tmp_path: Path) -> None:
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / "cpuacct.usage").write_text("2500000000\n")
    (tmp_path / "vm" / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 7\n")
    assert Cgroups(tmp_path, False, ()).usage_s("vm") == 2.5
    assert Cgroups(tmp_path, True, ()).usage_s("vm") == 1.5


def test_only_groups_with_our_prefix_are_stale(tmp_path: Path) -> None:
    for name in ("dial-lab.s1", "system.slice", "dial-labour"):
        (tmp_path / name).mkdir()
    assert Cgroups(tmp_path, True, ()).stale() == ("dial-lab.s1",)


def test_machines_have_cores_of_their_own_only_where_one_is_left() -> None:
    assert place([0, 1, 2, 3, 4], 3).machines == (2, 3, 4)
    assert place([0, 1, 2, 3, 4], 3).harness == (0, 1)
    assert place([0, 1, 2], 3).machines == (2, 2, 2)
    assert place([0, 1, 2], 3).harness == (0, 1)
