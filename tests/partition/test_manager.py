from __future__ import annotations

import tomllib

import pytest

from dial.errors import LimitError, SettingError
from dial.partition.bandwidth import UNITS, adjust
from dial.partition.build import manager
from dial.partition.egress import parse_classes
from dial.partition.manager import Manager
from dial.partition.settings import PartitionSettings, parse_settings
from dial.types import NoData
from tests.hosts import Host

FILE = """
subtree = "vm"
journal = "/journal"
memory_slack_mib = 512.0
[services.web]
target_ms = 20.0
log = { path = "LOG", field = 1 }
[services.db]
target_ms = 5.0
percentile = 99
stateless = true
metrics = { url = "http://127.0.0.1:1/metrics", histogram = "q" }
[services.batch]
"""


def settings(host: Host) -> PartitionSettings:
    log = host.root / "web.log"
    log.write_text("")
    return parse_settings(tomllib.loads(FILE.replace("LOG", str(log))))


def made(host: Host, *, dry_run: bool = False) -> Manager:
    return manager(settings(host), host.tree, dry_run=dry_run, root=str(host.root))


def test_a_start_divides_evenly_and_an_end_puts_everything_back(host: Host) -> None:
    host.with_v2()
    managed = made(host)
    managed.once()
    # 20 units of 0.1 core: 7, 7 and 6; 32 units of (12 + 3)/32 GiB: 11, 11 and 10.
    assert host.text("/sys/fs/cgroup/vm/web/cpu.max") == "7000 10000"
    assert host.text("/sys/fs/cgroup/vm/batch/cpu.max") == "6000 10000"
    assert host.text("/sys/fs/cgroup/vm/db/memory.high") == str(round(15 * 2**30 / 32 * 11))
    managed.put_back()
    assert host.text("/sys/fs/cgroup/vm/web/cpu.max").startswith("max 100000")
    assert host.text("/sys/fs/cgroup/vm/db/memory.high").startswith("max")
    assert host.text("/journal") == ""


def test_v1_hosts_too(host: Host) -> None:
    host.with_v1()
    managed = made(host)
    managed.once()
    # The subtree's own quota is half a core: 7 of 20 units of it, in periods of 10 ms.
    assert host.text("/sys/fs/cgroup/cpu/vm/web/cpu.cfs_quota_us").startswith("1750")
    managed.put_back()
    assert host.text("/sys/fs/cgroup/cpu/vm/web/cpu.cfs_period_us").startswith("100000")
    assert host.text("/sys/fs/cgroup/cpu/vm/web/cpu.cfs_quota_us").startswith("-1")


def test_a_service_that_misses_its_target_gets_more(host: Host) -> None:
    host.with_v2()
    managed = made(host)
    managed.once()
    (host.root / "web.log").write_text("30.0\n" * 20)
    managed.once()
    units = {name: list(shares.values()) for name, shares in managed.state.shares.items()}
    assert sum(units["web"]) == 7 + 11 + 1
    assert managed.missed_s() == 0.0
    managed.put_back()
    assert isinstance(managed.missed_s(), NoData)


def test_a_dry_run_writes_nothing_and_says_what_it_would(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.with_v2()
    caplog.set_level("INFO", logger="dial.partition")
    managed = made(host, dry_run=True)
    managed.once()
    (host.root / "web.log").write_text("30.0\n" * 20)
    managed.once()
    managed.put_back()
    assert host.text("/sys/fs/cgroup/vm/web/cpu.max") == "max 100000\n"
    assert not (host.root / "journal").exists()
    assert "would write" in caplog.text


def test_what_an_agent_left_that_was_killed_is_put_back_before_the_next_looks(
    host: Host,
) -> None:
    host.with_v2()
    killed = made(host)
    killed.once()
    assert killed._limiter is not None
    killed._limiter._journal.close()  # as the kernel does
    managed = made(host)
    assert host.text("/sys/fs/cgroup/vm/web/cpu.max").startswith("max 100000")
    managed.put_back()


def test_a_group_that_goes_is_waited_for(host: Host) -> None:
    host.with_v2()
    managed = made(host)
    (host.root / "sys/fs/cgroup/vm/web/cpu.max").unlink()
    managed.once()
    assert host.text("/sys/fs/cgroup/vm/db/cpu.max") == "7000 10000"
    host.put("/sys/fs/cgroup/vm/web/cpu.max", "max 100000")
    managed.once()
    assert host.text("/sys/fs/cgroup/vm/web/cpu.max").startswith("7000 10000")
    managed.put_back()


def test_memory_is_not_divided_where_what_is_in_use_leaves_no_room(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.with_v2()
    caplog.set_level("INFO", logger="dial.partition")
    host.put("/proc/meminfo", "MemAvailable: 1000 kB\n")
    managed = made(host)
    managed.once()
    assert host.text("/sys/fs/cgroup/vm/web/memory.high") == "max\n"
    assert "memory is not divided" in caplog.text
    managed.put_back()


def test_a_service_without_a_group_is_named(host: Host) -> None:
    host.with_v2()
    for file in ("cpu.max", "memory.high", "io.max"):
        (host.root / "sys/fs/cgroup/vm/db" / file).unlink()
    with pytest.raises(SettingError, match="nothing can be divided"):
        made(host)


def test_a_limit_that_the_kernel_refuses_is_an_error_and_all_is_put_back(host: Host) -> None:
    host.with_v2()
    managed = made(host)
    managed.once()
    file = host.root / "sys/fs/cgroup/vm/web/cpu.max"
    file.unlink()
    file.mkdir()
    managed._applied.clear()
    with pytest.raises(LimitError, match="cannot write"):
        managed.once()
    managed.put_back()
    assert host.text("/sys/fs/cgroup/vm/db/cpu.max").startswith("max 100000")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('subtree = "vm"', 'subtree = "../vm"', "subtree '../vm'"),
        ('subtree = "vm"', 'subtree = "/"', "subtree"),
        ('"/journal"', '"journal"', "an absolute path"),
        ("512.0", "0", "memory_slack_mib '0'"),
        ("512.0", "true", "memory_slack_mib 'True'"),
        ("[services.web]", '[services."a/b"]', "the name of a cgroup"),
        ("target_ms = 5.0", "target_ms = inf", "target_ms 'inf'"),
        ("percentile = 99", "percentile = 100", "50 to 99.9"),
        ("stateless = true", "stateless = 1", "true or false"),
        ("field = 1", "field = 0", "a whole number from 1"),
        ("field = 1", "column = 1", "log.'column': no such setting"),
        ("http://127.0.0.1:1/metrics", "ftp://x", "http://HOST"),
        ("[services.batch]", "[services.batch]\ncpu_floor_cores = -1", "above 0"),
        ("[services.batch]", "[services.batch]\ntarget_ms = 1.0", "neither log nor metrics"),
        ("[services.batch]", '[services.batch]\nmetrics = { url = "x" }', "none without"),
        ("[services.batch]", '[disk]\ndevice = "sda"\nbytes_per_s = 1', "MAJOR:MINOR"),
        ("[services.batch]", '[network]\ndevice = "-x"\nbits_per_s = 1', "such as eth0"),
    ],
)
def test_a_wrong_setting_is_named(old: str, new: str, told: str) -> None:
    assert old in FILE
    with pytest.raises(SettingError) as error:
        parse_settings(tomllib.loads(FILE.replace("LOG", "/log").replace(old, new)))
    assert told in str(error.value)


def test_without_a_target_there_is_nothing_to_do() -> None:
    with pytest.raises(SettingError, match="none has a target_ms"):
        parse_settings({"subtree": "vm", "services": {"batch": {}}})


def test_bandwidth_follows_use_and_never_exceeds_the_link() -> None:
    # web has 0.5 to spare and gets one; batch has 8 to spare and gives one up.
    assert adjust({"web": 4, "batch": 10}, {"web": 3.5, "batch": 2.0}) == {"web": 5, "batch": 9}
    full = {"web": 10, "batch": 10}
    assert adjust(full, {"web": 10.0, "batch": 10.0}) == full
    assert sum(adjust({"web": 19, "batch": 1}, {"web": 19.0, "batch": 1.0}).values()) == UNITS
    assert adjust({"web": 1}, {"web": 0.0}) == {"web": 1}
    assert adjust({"web": 1}, {}) == {"web": 1}


def test_bytes_by_class_are_read_from_what_tc_prints() -> None:
    shown = """class htb d1a1:1 root rate 100Mbit ceil 100Mbit burst 1600b cburst 1600b
 Sent 70 bytes 3 pkt (dropped 0, overlimits 0 requeues 0)
class htb d1a1:10 parent d1a1:1 prio 0 rate 50Mbit ceil 50Mbit burst 1600b
 Sent 42 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)
"""
    assert parse_classes(shown) == {"d1a1:1": 70, "d1a1:10": 42}
