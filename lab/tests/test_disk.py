"""The slow disk: its timing and its protocol by hand, and real disks, built and removed."""

from __future__ import annotations

import errno
import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.errors import LabError
from dial_lab import loopdisk, slowdisk
from dial_lab.calibration import SETTLE_S, saturation_rps
from dial_lab.cgroups import Cgroups
from dial_lab.processes import Children
from dial_lab.resources.disk import DiskResource
from dial_lab.slowdisk import BURST_S, Cap, Disk, Server
from dial_lab.topology import exclusive, host_cgroups, machines

READ, WRITE, IOCTL, FORGET = 15, 16, 39, 2


def request(opcode: int, body: bytes = b"", unique: int = 7) -> bytes:
    """As the kernel sends it: struct fuse_in_header, then the body."""
    return struct.pack("<IIQQIIIHH", 40 + len(body), opcode, unique, 1, 0, 0, 0, 0, 0) + body


def transfer(offset: int, size: int) -> bytes:
    """The body of a read or write: struct fuse_read_in and fuse_write_in are alike."""
    return struct.pack("<QQIIQII", 0, offset, size, 0, 0, 0, 0)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[int]:
    file = tmp_path / "image"
    file.write_bytes(bytes(range(256)) * 32)  # 8192 bytes
    descriptor = os.open(file, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def disk_of(image: int, bytes_per_s: float = 1000.0, cap: float = 500.0) -> Disk:
    """Bytes from 4096 on are the neighbour's."""
    return Disk(image, Server(bytes_per_s), Cap(lambda: cap), neighbour_from=4096)


def play(disk: Disk) -> list[tuple[float, int]]:
    """Go through all that is due; when each answer is given, and to which request."""
    given = []
    while disk.due_s < math.inf:
        at_s = disk.due_s
        if (answer := disk.step()) is not None:
            given.append((pytest.approx(at_s), struct.unpack_from("<IiQ", answer)[2]))
    return given


def test_a_read_takes_its_bytes_over_the_rate(image: int) -> None:
    disk = disk_of(image)
    disk.arrive(request(READ, transfer(256, 100)), at_s=5.0)
    assert disk.due_s == pytest.approx(5.1)
    # 16 bytes of header with the length, no error and the request's number; then the data.
    assert disk.step() == struct.pack("<IiQ", 116, 0, 7) + bytes(range(100))
    assert disk.due_s == math.inf


def test_requests_are_served_one_after_the_other_and_an_idle_disk_saves_nothing_up(
    image: int,
) -> None:
    disk = disk_of(image)
    for number, at_s in enumerate((0.0, 0.1, 0.1, 50.0)):
        disk.arrive(request(READ, transfer(0, 200), number), at_s)
    assert play(disk) == [(0.2, 0), (0.4, 1), (0.6, 2), (50.2, 3)]


def test_the_neighbours_requests_join_the_queue_at_the_rate_of_its_cap(image: int) -> None:
    disk = disk_of(image)
    for number in range(4):
        disk.arrive(request(READ, transfer(4096, 100), number), at_s=9.0)
    # 100 bytes at 500 a second are 0.2 s; 0.1 s were saved up: they join at 9.0, 9.1, 9.3, 9.5
    # and are served in 0.1 s each.
    assert play(disk) == [(9.1, 0), (9.2, 1), (9.4, 2), (9.6, 3)]


def test_what_the_cap_holds_back_does_not_hold_up_the_tenant(image: int) -> None:
    disk = disk_of(image)
    for number in range(3):
        disk.arrive(request(READ, transfer(4096, 100), number), at_s=9.0)
    disk.arrive(request(READ, transfer(0, 100), 10), at_s=9.0)
    # The tenant's comes after the one that is in the queue, and before those not yet let in.
    assert play(disk) == [(9.1, 0), (9.2, 10), (9.3, 1), (9.4, 2)]


def test_a_changed_cap_holds_from_the_next_request_on() -> None:
    rates = iter([500.0, 1000.0, 1000.0, 1000.0])
    cap = Cap(lambda: next(rates))
    # 8.9 + 0.2 = 9.1 for the second, + 0.1 each from then on.
    joined = [cap.release_s(at_s=9.0, count=100) for _ in range(4)]
    assert joined == pytest.approx([9.0, 9.1, 9.2, 9.3])


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 10**5)), min_size=1),
    st.floats(1e4, 1e6),
)
def test_no_neighbour_gets_more_than_its_cap_and_what_it_saved_up(
    arrivals: list[tuple[float, int]], bytes_per_s: float
) -> None:
    cap, at_s, total = Cap(lambda: bytes_per_s), 0.0, 0
    for gap_s, count in arrivals:
        at_s += gap_s
        last_s = cap.release_s(at_s=at_s, count=count)
        assert total <= bytes_per_s * (last_s + BURST_S) * (1 + 1e-9)
        total += count


def test_what_is_written_is_read_and_costs_the_same(image: int) -> None:
    disk = disk_of(image)
    disk.arrive(request(WRITE, transfer(2048, 5) + b"hello"), at_s=0.0)
    disk.arrive(request(READ, transfer(2048, 5)), at_s=0.0)
    assert disk.due_s == pytest.approx(0.005)
    assert disk.step() == struct.pack("<IiQII", 24, 0, 7, 5, 0)
    assert disk.due_s == pytest.approx(0.010)
    assert disk.step() == struct.pack("<IiQ", 21, 0, 7) + b"hello"


def test_what_is_not_served_is_refused_and_what_expects_no_answer_gets_none(image: int) -> None:
    disk = disk_of(image)
    disk.arrive(request(IOCTL), at_s=0.0)
    assert disk.step() == struct.pack("<IiQ", 16, -errno.ENOSYS, 7)
    disk.arrive(request(FORGET), at_s=0.0)
    assert disk.due_s == math.inf


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 10**6)), min_size=1))
def test_no_order_of_arrivals_makes_the_disk_faster_than_its_rate(
    arrivals: list[tuple[float, int]],
) -> None:
    server, at_s, first_s, total = Server(1e6), 0.0, arrivals[0][0], 0
    for gap_s, count in arrivals:
        at_s += gap_s
        total += count
        done_s = server.done_s(at_s=at_s, count=count)
    assert done_s >= first_s + total / 1e6 - 1e-9


def test_mounts_are_found_below_the_directory_only() -> None:
    mountinfo = (
        "25 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "90 25 0:60 / /d/s1/disk rw,relatime shared:5 - fuse dial-lab rw\n"
        "91 25 7:0 / /d/s1/tenant rw - ext4 /dev/loop0 rw\n"
        "92 25 7:1 / /d2/tenant rw - ext4 /dev/loop1 rw\n"
        "broken\n"
    )
    assert loopdisk.parse_mounts(mountinfo, Path("/d")) == {
        "/d/s1/disk": "fuse",
        "/d/s1/tenant": "ext4",
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
def test_every_neighbour_takes_the_share_of_the_disk_it_is_told(
    cgroups: Cgroups, tmp_path: Path, in_a_calm_moment: Callable[..., object]
) -> None:
    disk = DiskResource(tmp_path / "disks")
    core = max(os.sched_getaffinity(0))
    # 10 MiB/s over 64 KiB is 160 a second, less what a request does off the disk.
    expected = {
        "quiet_rps": pytest.approx(135.0, abs=25.0),
        **dict.fromkeys(disk.programs, pytest.approx(0.6, abs=0.1)),
    }
    with (
        machines(cgroups, ["t1"], [core]) as (machine,),
        Children(tmp_path) as children,
        disk.tenants([machine], children) as addresses,
    ):

        def measure() -> dict[str, float]:
            found = {"quiet_rps": saturation_rps(addresses["t1"], disk.cost, 1.0)}
            for program in disk.programs:
                neighbour = disk.start_neighbour(children, machine, 0.6, 2.0, program)
                saturation_rps(addresses["t1"], disk.cost, SETTLE_S)
                contended_rps = saturation_rps(addresses["t1"], disk.cost, 1.0)
                found[program] = 1.0 - contended_rps / found["quiet_rps"]
                children.check()
                children.stop(neighbour)
            return found

        assert in_a_calm_moment(measure, expected) == expected
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
    # The disk, the tenant's part and the neighbour's.
    assert len(loopdisk.parse_mounts(mountinfo.read_text(), directory)) == 3
    loopdisk.clear(directory)
    assert loopdisk.parse_mounts(mountinfo.read_text(), directory) == {}
    assert str(directory) not in _backing_files()
    assert not directory.exists()


def _backing_files() -> str:
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return "\n".join(file.read_text() for file in files)


def test_largest_request_is_whole_pages_and_no_more_than_the_protocol_has() -> None:
    # FUSE_MAX_MAX_PAGES of fs/fuse: 256 pages of 4 KiB.
    assert slowdisk.LARGEST % 4096 == 0
    assert slowdisk.LARGEST <= 256 * 4096
