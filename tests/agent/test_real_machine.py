"""The collectors on the machine at hand, against psutil and against a real cgroup."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dial.agent.cgroups import MOUNTINFO, Group, parse_mountinfo
from dial.agent.cpu import MachineCpu
from dial.agent.disk import parse_diskstats
from dial.agent.files import Tree
from dial.agent.network import parse_interfaces
from dial.agent.run_queue import TaskRunQueue
from dial.agent.sampler import Sampler
from dial.agent.scope import group_scope
from dial.types import NoData

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def test_cpu_times_lie_between_two_readings_of_psutil() -> None:
    # Bracketed, so that it holds however long the machine pauses in between.
    before = psutil.cpu_times()
    ours = MachineCpu(Tree(), TICKS_PER_S).read()
    after = psutil.cpu_times()
    tick_s = 1.5 / TICKS_PER_S  # psutil rounds to a tick
    assert isinstance(ours.steal, int)
    for low, counter, high in [
        (before.user + before.nice, ours.user, after.user + after.nice),
        (before.system + before.irq, ours.system, after.system + after.irq),
        (before.softirq, ours.softirq, after.softirq),
        (before.steal, ours.steal, after.steal),
    ]:
        assert low - tick_s <= counter / TICKS_PER_S <= high + tick_s


def test_disk_and_network_bytes_lie_between_two_readings_of_psutil() -> None:
    disks_before = psutil.disk_io_counters(perdisk=True)
    links_before = psutil.net_io_counters(pernic=True, nowrap=False)
    disks = parse_diskstats(Tree().read("/proc/diskstats"))
    links = parse_interfaces(Tree().read("/proc/net/dev"), "dev")
    disks_after = psutil.disk_io_counters(perdisk=True)
    links_after = psutil.net_io_counters(pernic=True, nowrap=False)
    for name in disks_before.keys() & disks.keys() & disks_after.keys():
        low, high = disks_before[name], disks_after[name]
        moved = disks[name].moved_bytes
        assert low.read_bytes + low.write_bytes <= moved <= high.read_bytes + high.write_bytes
    common = links_before.keys() & links.keys() & links_after.keys()
    assert "lo" in common
    for name in common:
        low, high = links_before[name], links_after[name]
        assert low.bytes_recv <= links[name][0] <= high.bytes_recv
        assert low.bytes_sent <= links[name][1] <= high.bytes_sent


def test_own_threads_have_run_queue_delays() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel keeps no /proc/PID/schedstat (CONFIG_SCHED_INFO)")
    queue = TaskRunQueue(Tree(), lambda: [os.getpid()])
    before = queue.read()
    wait = queue.rates(before, queue.read(), 1.0)["run_queue_wait_cores"]
    assert not isinstance(wait, NoData)
    assert wait >= 0.0


@pytest.fixture
def group() -> Iterator[Group]:
    """Make a cgroup of a name of its own in every hierarchy it is measured in."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make a cgroup")
    hierarchies = parse_mountinfo(Tree().read(MOUNTINFO))
    made = Group(hierarchies, f"dial-agent-test-{os.getpid()}")
    places = [made.v1(name) for name in ("cpu", "cpuacct", "blkio")] + [made.v2()]
    directories = [Path(place) for place in dict.fromkeys(places) if place]
    if not directories:
        pytest.skip(f"no cgroup hierarchy is mounted ({MOUNTINFO})")
    try:
        for directory in directories:
            try:
                directory.mkdir()
            except OSError as error:
                pytest.skip(f"no cgroup can be made here: {error}")
        yield made
    finally:
        for directory in directories:
            with suppress(FileNotFoundError):
                directory.rmdir()


BUSY = """
import sys, time
sys.stdin.readline()
end_s = time.process_time() + 0.3
while time.process_time() < end_s: pass
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.root
def test_a_group_is_charged_for_its_childs_cpu_time(group: Group) -> None:
    scope = group_scope(Tree(), group.name, None)
    sampler = Sampler(scope.collectors, scope.absent, time.time, time.monotonic)
    child = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        for place in {group.v1("cpu"), group.v1("cpuacct"), group.v1("blkio"), group.v2()}:
            if place:
                (Path(place) / "cgroup.procs").write_text(str(child.pid))
        sampler.take()
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        sample = sampler.take()
    finally:
        child.kill()
        child.communicate()
    assert sample is not None
    assert not isinstance(sample.cpu_usr_cores, NoData)
    assert not isinstance(sample.cpu_sys_cores, NoData)
    used_s = (sample.cpu_usr_cores + sample.cpu_sys_cores) * sample.interval_s
    # By the child's own clock 0.3 s from "go" to "done", plus what of its start fell into the
    # interval (tens of milliseconds, more on a busy machine); nothing else is in the group.
    assert 0.29 < used_s < 1.0
    assert sample.cpu_steal_cores == scope.absent["cpu_steal_cores"]
    assert sample.tcp_segments_out_per_s == NoData("network namespace is shared with the host")
    if Path("/proc/self/schedstat").exists():
        assert not isinstance(sample.run_queue_wait_cores, NoData)
