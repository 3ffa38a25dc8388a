"""One disk for each machine, and two virtual disks on it: the tenant's and the neighbour's.

    DIRECTORY/s1/image      what the disk holds
    DIRECTORY/s1/disk       the same through :mod:`dial_lab.slowdisk`, at the disk's rate
    DIRECTORY/s1/cap        what the neighbour may have of it, bytes/s
    /dev/loopM, /dev/loopN  over its two parts, so that waiting is waiting for a block device
    DIRECTORY/s1/tenant     the first, mounted: ``data``, a file to read
    DIRECTORY/s1/neighbour  the second: such a file too, and room to write

Two block devices, because what waits in one for the neighbour's cap would keep the tenant's
requests out of it; and because a guest does not see the neighbour's requests in the
statistics of its own virtual disk.

The loop devices work with direct I/O: otherwise one kernel thread for each control group
would hand over one request at a time, and a group's queue would not be seen by the server.

Three things outlive a killed lab: the mounts, the loop devices and the FUSE mount, all dead.
:func:`clear` finds them by the directory, which is the lab's own, and nothing else is
touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dial.agent.cgroups import parse_mountinfo
from dial.errors import LabError
from dial_lab import slowdisk
from dial_lab.processes import Children

DIRECTORY = Path("/var/lib/dial-lab-disks")
"""Not below /run: that is in memory, and small, on most computers."""

FILE_BYTES = 32 * 2**20
"""Of the file in each part.  Reads bypass the page cache, so that it may be small."""

_PARTS = {"tenant": (0, 64 * 2**20), "neighbour": (64 * 2**20, 192 * 2**20)}
"""Where in the image each part begins, and its bytes.  The image is sparse."""

_FUSE = Path("/dev/fuse")
_WAIT_S = 5.0


def tenant_file(directory: Path, name: str) -> Path:
    """What the tenant of machine ``name`` reads."""
    return directory / name / "tenant" / "data"


def neighbour_directory(directory: Path, name: str) -> Path:
    """Where the neighbour works, on the same disk; ``data`` is there to read."""
    return directory / name / "neighbour"


def cap_neighbour(directory: Path, name: str, bytes_per_s: float) -> None:
    """Let the neighbour of machine ``name`` have ``bytes_per_s`` of its disk at most."""
    # Replaced whole: the disk may read it at any moment.
    new = directory / name / "cap.new"
    new.write_text(f"{bytes_per_s}\n", encoding="ascii")
    new.replace(directory / name / "cap")


@contextmanager
def disks(
    directory: Path,
    names: Sequence[str],
    children: Children,
    *,
    bytes_per_s: float,
    cores: Sequence[int],
) -> Iterator[None]:
    """Build a disk for each of ``names``; they are gone at exit.

    Parameters
    ----------
    directory
        The lab's own: whatever is in it is removed, before and after.
    names
        Of the machines.
    children
        Whose programs the disks' servers become.
    bytes_per_s
        Rate of each disk.
    cores
        Where the servers run; not where the machines are, whose CPU time is not theirs.

    Raises
    ------
    LabError
        If a step fails; says which, and what the system said.
    """
    if not _FUSE.exists():
        raise LabError(f"{_FUSE}: not there; the lab's disks need a kernel with FUSE")
    clear(directory)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        for name in names:
            server = _build(directory / name, children, bytes_per_s, cores)
            servers.append(server)
        yield
    finally:
        # Taken apart while the servers still answer: unmounting writes.
        clear(directory)
        for server in servers:
            children.stop(server)


def _build(
    home: Path, children: Children, bytes_per_s: float, cores: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Make one disk; returns its server."""
    image, disk = home / "image", home / "disk"
    home.mkdir(parents=True)
    disk.touch()
    cap_neighbour(home.parent, home.name, bytes_per_s)
    _format(image, home / "contents")
    server = children.start(
        f"disk-{home.name}",
        [
            *(sys.executable, "-I", "-S", str(Path(slowdisk.__file__))),
            *("--bytes-per-s", str(bytes_per_s), "--cap", str(home / "cap")),
            *("--neighbour-from", str(_PARTS["neighbour"][0]), str(image), str(disk)),
        ],
        cores=cores,
        # Unmounting is what ends it, and that is done here.
        finite=True,
    )
    give_up = time.monotonic() + _WAIT_S
    while str(disk) not in _mounted_below(home):
        children.check()
        if time.monotonic() > give_up:
            raise LabError(f"{disk}: not mounted after {_WAIT_S:g} s; see {children.log_dir}")
        time.sleep(0.02)
    _count_bytes(_mount(disk, home / "tenant"))
    _mount(disk, home / "neighbour")
    return server


def _mount(disk: Path, mount_point: Path) -> str:
    """Mount the part of the disk that is called like ``mount_point``; returns its device."""
    begin, size = _PARTS[mount_point.name]
    where = ("--offset", str(begin), "--sizelimit", str(size))
    device = _run("losetup", "--direct-io=on", *where, "--find", "--show", str(disk))
    mount_point.mkdir()
    _run("mount", "-t", "ext4", "-o", "noatime,nodev,nosuid,noexec", device, str(mount_point))
    return device


def _count_bytes(device: str) -> None:
    """Have the bytes of control groups counted on a v1 host.

    A kernel (seen on 6.18) counts them for a disk from the first time that its limit is set,
    and no limit is as good as any.
    """
    hierarchies = parse_mountinfo(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    if "blkio" not in hierarchies.v1:
        return
    number = Path("/sys/block", Path(device).name, "dev").read_text(encoding="ascii").strip()
    limits = Path(hierarchies.v1["blkio"], "blkio.throttle.read_bps_device")
    try:
        limits.write_text(f"{number} 0\n", encoding="ascii")
    except OSError as error:
        raise LabError(f"{limits}: cannot write '{number} 0': {error.strerror}") from error


def _format(image: Path, contents: Path) -> None:
    """A file system in each part, with the file, written past the slow disk."""
    contents.mkdir()
    with image.open("wb") as file:
        file.truncate(sum(size for _, size in _PARTS.values()))
    # Without a journal: nobody mounts this again.
    options = ("-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal", "-d", str(contents))
    for begin, size in _PARTS.values():
        # Not zeros, which would become holes, and reading a hole asks no disk.
        (contents / "data").write_bytes(os.urandom(FILE_BYTES))
        extended = f"lazy_itable_init=0,offset={begin}"
        _run("mkfs.ext4", *options, "-E", extended, str(image), str(size // 4096))
    shutil.rmtree(contents)


def clear(directory: Path) -> None:
    """Take apart and remove every disk in ``directory``, also those of a killed lab.

    Raises
    ------
    LabError
        If something is still in use.
    """
    mounted = _mounted_below(directory)
    for path in reversed([path for path, kind in mounted.items() if kind != "fuse"]):
        _unmount(path)
    for device in _loops_below(directory):
        _run("losetup", "--detach", device)
    for path in reversed([path for path, kind in mounted.items() if kind == "fuse"]):
        _unmount(path)
    if left := _mounted_below(directory):
        raise LabError(f"{', '.join(left)}: still mounted; unmount by hand")
    shutil.rmtree(directory, ignore_errors=True)


def _unmount(path: str) -> None:
    """Unmount, with patience: a killed program, or a loop device, lets go a moment later."""
    give_up = time.monotonic() + _WAIT_S
    while True:
        try:
            _run("umount", path)
        except LabError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
        else:
            return


def parse_mounts(mountinfo: str, directory: Path) -> dict[str, str]:
    r"""Mount points below ``directory`` and their types, in the order of mounting.

    Examples
    --------
    >>> line = "90 25 0:60 / /d/s1/disk rw - fuse dial-lab rw\n"
    >>> parse_mounts(line, Path("/d"))
    {'/d/s1/disk': 'fuse'}
    >>> parse_mounts(line, Path("/other"))
    {}
    """
    found: dict[str, str] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) > 4 and kinds and Path(fields[4]).is_relative_to(directory):
            found[fields[4]] = kinds[0]
    return found


def _mounted_below(directory: Path) -> dict[str, str]:
    return parse_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8"), directory)


def _loops_below(directory: Path) -> list[str]:
    """Loop devices over files in ``directory``."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text(encoding="utf-8").strip()
        except OSError:  # detached meanwhile
            continue
        if Path(file).is_relative_to(directory):
            found.append(f"/dev/{backing.parent.parent.name}")
    return found


def _run(*argv: str) -> str:
    """What the program prints; its own words in the error."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    except FileNotFoundError:
        raise LabError(f"{argv[0]}: not installed; `make setup` installs it") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(argv)}: no end after 30 s") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip() or f"ended with code {error.returncode}"
        raise LabError(f"{' '.join(argv)}: {said}") from None
    return done.stdout.strip()
