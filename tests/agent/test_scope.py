"""Whole scopes on fixture trees: which hierarchy each signal comes from, and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from dial.agent.cgroups import Group, parse_mountinfo
from dial.agent.files import Tree
from dial.agent.sampler import Sampler
from dial.agent.scope import Scope, group_scope, machine_scope
from dial.errors import SettingError
from dial.types import METRIC_NAMES, AgentSample, NoData

Plant = Callable[[Mapping[str, str]], Tree]

V1 = """31 23 0:28 / /cg rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /cg/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
38 31 0:35 / /cg/blkio rw - cgroup cgroup rw,blkio
40 31 0:37 / /cg/systemd rw - cgroup cgroup rw,name=systemd
"""
V2_ALONE = "41 31 0:38 / /cg2 rw - cgroup2 cgroup2 rw,nsdelegate\n"

V1_FILES = {
    "/cg/cpu,cpuacct/m/fg/cpuacct.usage": "{0}00000000\n",
    "/cg/cpu,cpuacct/m/fg/cpuacct.stat": "user 3{0}\nsystem 1{0}\n",
    "/cg/cpu,cpuacct/m/fg/cpu.stat": "nr_periods {0}0\nnr_throttled {0}\nthrottled_time 9\n",
    "/cg/cpu,cpuacct/m/fg/cpu.cfs_quota_us": "3000\n",
    "/cg/cpu,cpuacct/m/fg/cpu.cfs_period_us": "10000\n",
    "/cg/cpu,cpuacct/m/fg/cgroup.procs": "7\n",
    "/cg/blkio/m/fg/blkio.throttle.io_service_bytes": "7:0 Read {0}000\nTotal {0}000\n",
}
V2_PRESSURE = {
    f"/cg2/m/fg/{kind}.pressure": "some avg10=0.00 total={0}00000\nfull avg10=0.00 total=0\n"
    for kind in ("cpu", "io", "memory")
}
V2_FILES = V2_PRESSURE | {
    "/cg2/m/fg/cpu.stat": "usage_usec 1\nuser_usec {0}00000\nsystem_usec {0}0000\n"
    "nr_periods {0}0\nnr_throttled {0}\n",
    "/cg2/m/fg/cpu.max": "50000 100000\n",
    "/cg2/m/fg/io.stat": "7:0 rbytes={0}000 wbytes=0\n",
    "/cg2/m/fg/cgroup.procs": "0\n",
    "/cg2/m/fg/below/cgroup.procs": "7\n",
}
PROCESS = {
    "/proc/7/task/7/schedstat": "1 {0}00000000 1\n",
    "/proc/7/ns/net": "-> net:[77]",
    "/proc/1/ns/net": "-> net:[11]",
    "/proc/7/net/snmp": "Tcp: OutSegs RetransSegs\nTcp: {0}00 {0}\n",
    "/proc/7/net/dev": "a\nb\n eth0: {0}00 0 0 0 0 0 0 0 {0}000 0 0 0 0 0 0 0\n",
    "/sys/devices/system/cpu/online": "0-1\n",
}


def at(reading: int, files: Mapping[str, str]) -> dict[str, str]:
    return {path: text.replace("{0}", str(reading)) for path, text in files.items()}


def sample(plant: Plant, files: Mapping[str, str], scope: Callable[[Tree], Scope]) -> AgentSample:
    """Take a sample of readings 1 and 2, two seconds apart."""
    now_s = 100.0
    made = scope(plant(at(1, files)))
    sampler = Sampler(made.collectors, made.absent, lambda: 5_000.0 + now_s, lambda: now_s)
    assert sampler.take() is None
    plant(at(2, files))
    now_s = 102.0
    taken = sampler.take()
    assert taken is not None
    assert (taken.at_s, taken.interval_s) == (5_102.0, 2.0)
    return taken


def fg(tree: Tree) -> Scope:
    return group_scope(tree, "/m/fg/", None)


def test_v1_gives_all_but_pressure(plant: Plant) -> None:
    taken = sample(plant, V1_FILES | PROCESS | {"/proc/self/mountinfo": V1}, fg)
    # 0.1 s more in 2 s; ticks 31 -> 32 and 11 -> 12: even
    assert (taken.cpu_usr_cores, taken.cpu_sys_cores) == (0.025, 0.025)
    assert taken.cpu_capacity_cores == 0.3
    assert taken.throttled_fraction == 0.1  # 1 of 10 periods
    assert taken.disk_bytes_per_s == 500.0
    assert taken.run_queue_wait_cores == 0.05
    assert (taken.tcp_segments_out_per_s, taken.tcp_retransmits_per_s) == (50.0, 0.5)
    assert (taken.net_rx_bytes_per_s, taken.net_tx_bytes_per_s) == (50.0, 500.0)
    assert isinstance(taken.psi_cpu_some_fraction, NoData)
    assert "v2 hierarchy" in taken.psi_cpu_some_fraction.reason


def test_v2_gives_all_and_walks_the_groups_below(plant: Plant) -> None:
    taken = sample(plant, V2_FILES | PROCESS | {"/proc/self/mountinfo": V2_ALONE}, fg)
    assert (taken.cpu_usr_cores, taken.cpu_sys_cores) == (0.05, 0.005)
    assert taken.cpu_capacity_cores == 0.5
    assert taken.throttled_fraction == 0.1
    assert taken.disk_bytes_per_s == 500.0
    assert taken.psi_cpu_some_fraction == 0.05
    assert taken.psi_io_full_fraction == 0.0
    assert taken.run_queue_wait_cores == 0.05


def test_hybrid_takes_controllers_from_v1_and_pressure_from_v2(plant: Plant) -> None:
    files = V1_FILES | V2_PRESSURE | PROCESS | {"/proc/self/mountinfo": V1 + V2_ALONE}
    taken = sample(plant, files, fg)
    assert taken.cpu_usr_cores == 0.025
    assert taken.psi_cpu_some_fraction == 0.05
    assert taken.cpu_capacity_cores == 0.3


def test_what_belongs_to_the_whole_machine_is_no_data_in_a_group(plant: Plant) -> None:
    taken = sample(plant, V1_FILES | PROCESS | {"/proc/self/mountinfo": V1}, fg)
    for value in (taken.cpu_steal_cores, taken.cpu_iowait_cores, taken.cpu_softirq_cores):
        assert isinstance(value, NoData)
        assert "whole machine" in value.reason


def test_a_missing_group_has_no_data_everywhere_and_names_the_file(plant: Plant) -> None:
    taken = sample(plant, {"/proc/self/mountinfo": V1 + V2_ALONE}, fg)
    assert taken.cpu_usr_cores == NoData("/cg/cpu,cpuacct/m/fg/cpuacct.usage: not there")
    measured = [name for name in METRIC_NAMES if not isinstance(getattr(taken, name), NoData)]
    assert measured == ["agent_cpu_cores"]


def test_no_hierarchy_at_all_is_a_setting_error(plant: Plant) -> None:
    with pytest.raises(SettingError, match="no cgroup hierarchy is mounted"):
        group_scope(plant({"/proc/self/mountinfo": "1 2 3\n"}), "m", None)


def test_a_machine_without_most_files_still_gives_the_rest(plant: Plant) -> None:
    files = {"/proc/stat": "cpu {0}00 0 0 0 0 0 0 0\n", "/sys/devices/system/cpu/online": "0\n"}
    taken = sample(plant, files, lambda tree: machine_scope(tree, None, 0.3))
    assert taken.cpu_capacity_cores == 0.3
    assert taken.cpu_usr_cores == 0.5  # 100 ticks of 10 ms in 2 s
    assert taken.disk_bytes_per_s == NoData("/proc/diskstats: not there")


def test_mount_points_may_hold_blanks_and_the_first_mount_counts() -> None:
    text = (
        "1 2 0:3 / /my\\040groups rw - cgroup2 none rw\n"
        "1 2 0:3 / /again rw - cgroup2 none rw\n"
        "torn line - cgroup\n"
    )
    assert parse_mountinfo(text).v2 == "/my groups"
    assert Group(parse_mountinfo(text), "m").v2() == "/my groups/m"
