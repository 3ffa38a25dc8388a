"""The slow disk: its timing and its protocol by hand, and real disks, built and removed."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.errors import LabError
from dial_lab import loopdisk, slowdisk
from dial_lab.calibration import calibrate
from dial_lab.cgroups import Cgroups
from dial_lab.processes import Children
from dial_lab.resources.disk import DiskResource
from dial_lab.slowdisk import Disk, Server
from dial_lab.topology import exclusive, host_cgroups, machines

READ, WRITE, IOCTL, FORGET = 15, 16, 39, 2


def request(opcode: int, body: bytes = b"", unique: int = 7) -> bytes:
    """As the kernel sends it: struct fuse_in_header, then the body."""
    return struct.pack("<IIQQIIIHH", 40 + len(body), opcode, unique, 1, 0, 0, 0, 0, 0) + body


def transfer(offset: int, size: int) -> bytes:
    """The body of a read or write: struct fuse_read_in and fuse_write_in are alike."""
    return struct.pack("<QQIIQII", 0, offset, size, 0, 0, 0, 0)


class Clock:
    """A time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


@pytest.fixture
def image(tmp_path: Path) -> Iterator[int]:
    file = tmp_path / "image"
    file.write_bytes(bytes(range(256)) * 32)  # 8192 bytes
    descriptor = os.open(file, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_a_read_takes_its_bytes_over_the_rate(image: int) -> None:
    clock = Clock()
    disk = Disk(image, Server(bytes_per_s=1000.0), clock, clock.sleep)
    answer = disk.answer(request(READ, transfer(256, 100)), waited=False)
    # 16 bytes of header with the length, no error and the request's number; then the data.
    assert answer == struct.pack("<IiQ", 116, 0, 7) + bytes(range(100))
    assert clock.now_s == pytest.approx(0.1)


def test_requests_that_wait_are_served_one_after_the_other(image: int) -> None:
    clock = Clock()
    disk = Disk(image, Server(bytes_per_s=1000.0), clock, clock.sleep)
    for waited in (False, True, True):
        disk.answer(request(READ, transfer(0, 200)), waited=waited)
    # 3 x 0.2 s: nobody gets a burst.
    assert clock.now_s == pytest.approx(0.6)


def test_waking_up_late_does_not_make_the_disk_slower() -> None:
    server = Server(bytes_per_s=1000.0)
    assert server.done_s(now_s=0.0, waited=False, count=100) == pytest.approx(0.1)
    # Seen at 0.13, but it waited since before 0.1: done at 0.2 all the same.
    assert server.done_s(now_s=0.13, waited=True, count=100) == pytest.approx(0.2)


def test_an_idle_disk_saves_nothing_up() -> None:
    server = Server(bytes_per_s=1000.0)
    server.done_s(now_s=0.0, waited=False, count=100)
    assert server.done_s(now_s=50.0, waited=False, count=100) == pytest.approx(50.1)


def test_what_is_written_is_read_and_costs_the_same(image: int) -> None:
    clock = Clock()
    disk = Disk(image, Server(bytes_per_s=1000.0), clock, clock.sleep)
    written = disk.answer(request(WRITE, transfer(4096, 5) + b"hello"), waited=False)
    assert written == struct.pack("<IiQII", 24, 0, 7, 5, 0)
    assert clock.now_s == pytest.approx(0.005)
    read = disk.answer(request(READ, transfer(4096, 5)), waited=True)
    assert read is not None
    assert read[16:] == b"hello"


def test_what_is_not_served_is_refused_and_what_expects_no_answer_gets_none(image: int) -> None:
    disk = Disk(image, Server(bytes_per_s=1e9))
    assert disk.answer(request(IOCTL), waited=False) == struct.pack("<IiQ", 16, -errno.ENOSYS, 7)
    assert disk.answer(request(FORGET), waited=False) is None


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 10**6), st.booleans()), min_size=1))
def test_no_order_of_arrivals_makes_the_disk_faster_than_its_rate(
    arrivals: list[tuple[float, int, bool]],
) -> None:
    server, now_s, first_s, total = Server(1e6), 0.0, arrivals[0][0], 0
    for gap_s, count, waited in arrivals:
        now_s += gap_s
        total += count
        done_s = server.done_s(now_s=now_s, waited=waited and total > count, count=count)
    assert done_s >= first_s + total / 1e6 - 1e-9


def test_mounts_are_found_below_the_directory_only() -> None:
    mountinfo = (
        "25 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "90 25 0:60 / /d/s1/disk rw,relatime shared:5 - fuse dial-lab rw\n"
        "91 25 7:0 / /d/s1/files rw - ext4 /dev/loop0 rw\n"
        "92 25 7:1 / /d2/files rw - ext4 /dev/loop1 rw\n"
        "broken\n"
    )
    assert loopdisk.parse_mounts(mountinfo, Path("/d")) == {
        "/d/s1/disk": "fuse",
        "/d/s1/files": "ext4",
    }


@given(st.text())
def test_no_text_of_mounts_is_an_error(text: str) -> None:
    assert isinstance(loopdisk.parse_mounts(text, Path("/d")), dict)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse on this computer")
    try:
        found = host_cgroups()
        with exclusive():
            yield found
    except LabError as error:
        pytest.skip(str(error))


@pytest.mark.root
def test_neighbour_takes_the_share_of_the_disk_it_is_told(cgroups: Cgroups, tmp_path: Path) -> None:
    disk = DiskResource(tmp_path / "disks")
    core = max(os.sched_getaffinity(0))
    with (
        machines(cgroups, ["t1"], [core]) as built,
        Children(tmp_path) as children,
        disk.tenants(built, children) as addresses,
    ):
        measured = calibrate(children, disk, built[0], addresses["t1"], rho_bg=0.6, seconds=2.0)
    # 10 MiB/s over 64 KiB is 160 a second, less what a request does off the disk.
    assert 110.0 < measured.quiet_rps < 160.0
    assert measured.rho_bg == pytest.approx(0.6, abs=0.1)
    assert not (tmp_path / "disks").exists()


CRASH = """
import sys, time
from pathlib import Path
from dial_lab import loopdisk
from dial_lab.processes import Children
base = Path(sys.argv[1])
with (
    Children(base) as children,
    loopdisk.disks(base / "disks", ["t1"], children, bytes_per_s=1e8, cores=[0]),
):
    print("built", flush=True)
    time.sleep(60)
"""


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_what_a_killed_lab_left_of_its_disks_is_removed_by_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "disks"
    argv = [sys.executable, "-c", CRASH, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline() == "built\n"
        lab.kill()
    mountinfo = Path("/proc/self/mountinfo")
    assert len(loopdisk.parse_mounts(mountinfo.read_text(), directory)) == 2
    loopdisk.clear(directory)
    assert loopdisk.parse_mounts(mountinfo.read_text(), directory) == {}
    assert str(directory) not in _backing_files()
    assert not directory.exists()


def _backing_files() -> str:
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return "\n".join(file.read_text() for file in files)


def test_largest_request_fits_into_the_protocols_pages() -> None:
    # FUSE_MAX_MAX_PAGES of fs/fuse: 256 pages of 4 KiB.
    assert slowdisk._LARGEST == 256 * 4096
