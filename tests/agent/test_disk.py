from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from dial.agent.disk import GroupDiskV1, GroupDiskV2, MachineDisk
from dial.agent.files import Tree, Unavailable
from dial.types import NoData

Plant = Callable[[Mapping[str, str]], Tree]


def line(name: str, read: int, written: int, busy_ms: int) -> str:
    return f" 8 0 {name} 1 0 {read} 9 1 0 {written} 9 0 {busy_ms} 9 0 0 0 0 1 1\n"


def test_bytes_add_up_and_the_busiest_disk_tells_the_time(plant: Plant) -> None:
    hardware = {"/sys/block/sda/device/x": "", "/sys/block/sdb/device/x": ""}
    disk = MachineDisk(
        plant(
            hardware
            | {
                "/proc/diskstats": line("sda", 0, 0, 0)
                + line("sda1", 0, 0, 0)
                + line("sdb", 0, 0, 0)
            }
        )
    )
    before = disk.read()
    plant(
        {
            "/proc/diskstats": line("sda", 100, 100, 400)
            + line("sda1", 100, 100, 400)
            + line("sdb", 0, 200, 1500)
        }
    )
    # (200 + 200) sectors of 512 B in 2 s; the partition is not counted again
    assert disk.rates(before, disk.read(), 2.0) == {
        "disk_busy_fraction": 0.75,
        "disk_bytes_per_s": 102_400.0,
    }
    assert isinstance(disk.rates(disk.read(), before, 2.0)["disk_busy_fraction"], NoData)


def test_a_machine_with_loop_devices_only_has_no_disk(plant: Plant) -> None:
    with pytest.raises(Unavailable, match="no disk"):
        MachineDisk(plant({"/proc/diskstats": line("loop0", 1, 1, 1)})).read()


V1 = "8:0 Read {0}\n8:0 Write {1}\n8:0 Sync 9\n8:0 Discard 999\n8:0 Total 9\nTotal 9\n"


@pytest.mark.parametrize("suffix", ["", "_recursive"])
def test_a_v1_group_counts_reads_and_writes(plant: Plant, suffix: str) -> None:
    path = f"/b/blkio.throttle.io_service_bytes{suffix}"
    disk = GroupDiskV1(plant({path: "Total 0\n"}), "/b")
    before = disk.read()
    plant({path: V1.format(3000, 1000)})
    assert disk.rates(before, disk.read(), 2.0) == {"disk_bytes_per_s": 2000.0}
    assert isinstance(
        disk.rates({"8:0": 9000}, disk.read(), 1.0)["disk_bytes_per_s"],
        NoData,
    )


def test_a_v2_group_counts_reads_and_writes(plant: Plant) -> None:
    path = "/u/io.stat"
    disk = GroupDiskV2(plant({path: "8:0 rbytes=1000 wbytes=0 rios=1 wios=0\n"}), "/u")
    before = disk.read()
    plant({path: "8:0 rbytes=2000 wbytes=500 rios=1 wios=0 dbytes=9 dios=9\n253:0\n"})
    assert disk.rates(before, disk.read(), 1.0) == {"disk_bytes_per_s": 1500.0}


def test_a_v2_group_without_the_io_controller_says_so(plant: Plant) -> None:
    with pytest.raises(Unavailable, match="io controller is not enabled"):
        GroupDiskV2(plant({}), "/u").read()
