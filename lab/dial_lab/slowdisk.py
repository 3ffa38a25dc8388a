"""A disk that serves first come, first served at a fixed rate: one file, by way of FUSE.

The problem: on an emulated machine the disk must be a *server*, one request at a time in the
order of arrival, each for ``bytes / rate``, or neither Eq. 1 nor a share ``rho_bg`` means
anything.  The kernel's own limit (``blkio.throttle.*``, ``io.max``) is none: it hands out the
bytes of 100 ms at once (``throtl_slice``) and makes whoever comes after them wait for the next
100 ms.  Measured at 10 MB/s with 64 KiB reads: at utilisation 0.70 the median took 0.2 ms and
P99 1.7 ms (a server would show 6 and 100 ms), and in saturation 15 of 16 reads took nothing.

So the disk is a file whose contents this program serves.  A loop device over it
(:mod:`dial_lab.loopdisk`) makes a block device of it again, in which both tenants wait as for
any disk: PSI, iowait and the byte counts of groups are the kernel's.

Reads and writes cost the same.  A request that came while another was served begins when that
one ends, not when this program wakes up, so sleeping too long does not make the disk slower.

The kernel's side is described in ``include/uapi/linux/fuse.h``; what is used here has been
there since version 7.28 of the protocol (Linux 4.20).  Standard library only, and runs as a
file, because it may not fall behind.
"""

from __future__ import annotations

import argparse
import errno
import os
import select
import signal
import stat
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_HEADER_IN = struct.Struct("<IIQQIIIHH")
_HEADER_OUT = struct.Struct("<IiQ")
_INIT_IN = struct.Struct("<IIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_ATTR_OUT = struct.Struct("<QII" + "6Q10I")
_OPEN_OUT = struct.Struct("<QII")
_TRANSFER_IN = struct.Struct("<QQIIQII")
_WRITE_OUT = struct.Struct("<II")

_FORGET, _GETATTR, _OPEN, _READ, _WRITE, _RELEASE, _FSYNC = 2, 3, 14, 15, 16, 18, 20
_FLUSH, _INIT, _INTERRUPT, _BATCH_FORGET = 25, 26, 36, 42
_NO_ANSWER = frozenset({_FORGET, _INTERRUPT, _BATCH_FORGET})
_NOTHING_TO_DO = frozenset({_RELEASE, _FSYNC, _FLUSH})

_VERSION = (7, 31)
_ASYNC_READ, _BIG_WRITES, _ASYNC_DIO, _MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
_FLAGS = _ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES
_PAST_THE_CACHE = 1
"""FOPEN_DIRECT_IO: a page cache in front of the disk would answer for it."""

_LARGEST = 1 << 20
"""Bytes in one request: 256 pages, the protocol's most."""
_IN_FLIGHT = 256
"""Requests the kernel may hand over at once; its default of 12 would be a queue of its own
in which not everybody waits in the order of arrival."""


class Server:
    """When each request is done, if they are served one by one.

    Parameters
    ----------
    bytes_per_s
        The disk's rate.

    Examples
    --------
    >>> disk = Server(bytes_per_s=1000.0)
    >>> disk.done_s(now_s=0.0, waited=False, count=100)
    0.1
    >>> disk.done_s(now_s=0.15, waited=True, count=100)  # woke up 50 ms too late
    0.2
    >>> disk.done_s(now_s=1.0, waited=False, count=100)
    1.1
    """

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def done_s(self, *, now_s: float, waited: bool, count: int) -> float:
        """When a request of ``count`` bytes is done, by the clock of ``now_s``.

        Parameters
        ----------
        now_s
            The present time.
        waited
            Whether the request was there already when the one before was done.
        count
            Its bytes.
        """
        begin_s = self._free_s if waited else max(now_s, self._free_s)
        self._free_s = begin_s + count / self._bytes_per_s
        return self._free_s


class Disk:
    """Answers the kernel's requests for one file.

    Parameters
    ----------
    image
        Open file with the contents.
    server
        Says how long requests take.
    clock, sleep
        Monotonic time in seconds, and waiting for so many of them.
    """

    def __init__(
        self,
        image: int,
        server: Server,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._image = image
        self._server = server
        self._clock = clock
        self._sleep = sleep
        self._bytes = os.fstat(image).st_size

    def answer(self, request: bytes, *, waited: bool) -> bytes | None:
        """The answer to one request, when it is due; ``None`` where none is expected."""
        _, opcode, unique, *_ = _HEADER_IN.unpack_from(request)
        if opcode in _NO_ANSWER:
            return None
        body = memoryview(request)[_HEADER_IN.size :]
        try:
            said = self._do(opcode, body, waited)
        except OSError as error:
            return _HEADER_OUT.pack(_HEADER_OUT.size, -(error.errno or errno.EIO), unique)
        return _HEADER_OUT.pack(_HEADER_OUT.size + len(said), 0, unique) + said

    def _do(self, opcode: int, body: memoryview, waited: bool) -> bytes:
        if opcode in (_READ, _WRITE):
            _, offset, size, *_ = _TRANSFER_IN.unpack_from(body)
            now_s = self._clock()
            done_s = self._server.done_s(now_s=now_s, waited=waited, count=size)
            self._sleep(max(0.0, done_s - now_s))
            if opcode == _READ:
                return os.pread(self._image, size, offset)
            start = _TRANSFER_IN.size
            return _WRITE_OUT.pack(os.pwrite(self._image, body[start : start + size], offset), 0)
        if opcode == _INIT:
            _, _, readahead, offered = _INIT_IN.unpack_from(body)
            return _INIT_OUT.pack(
                *_VERSION, readahead, _FLAGS & offered, _IN_FLIGHT, _IN_FLIGHT,
                _LARGEST, 1, _LARGEST // 4096, 0, 0,
            )  # fmt: skip
        if opcode == _GETATTR:
            return self._attributes()
        if opcode == _OPEN:
            return _OPEN_OUT.pack(0, _PAST_THE_CACHE, 0)
        if opcode in _NOTHING_TO_DO:
            return b""
        raise OSError(errno.ENOSYS, "not served")

    def _attributes(self) -> bytes:
        hour_s, inode, blocks = 3600, 1, self._bytes // 512
        mode, links, block = stat.S_IFREG | 0o600, 1, 4096
        times = (0, 0, 0)
        return _ATTR_OUT.pack(
            hour_s, 0, 0, inode, self._bytes, blocks, *times, *times, mode, links, 0, 0, 0, block, 0
        )  # fmt: skip


def attach(mount_point: Path) -> int:
    """Put a file system of one file over ``mount_point``; returns the kernel's end of it."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=100000,user_id=0,group_id=0,max_read={_LARGEST}"
    subprocess.run(
        # -i: no mount.fuse helper, which would start somebody else's server.
        ["mount", "-i", "-t", "fuse", "-o", options, "dial-lab", str(mount_point)],
        pass_fds=[device],
        check=True,
    )
    return device


def serve(device: int, disk: Disk) -> None:
    """Answer until the file system is unmounted."""
    ready = select.poll()
    ready.register(device, select.POLLIN)
    while True:
        waited = bool(ready.poll(0))
        try:
            request = os.read(device, _LARGEST + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:  # unmounted
                return
            if error.errno in (errno.ENOENT, errno.EINTR):  # taken back by whoever asked
                continue
            raise
        said = disk.answer(request, waited=waited)
        if said is None:
            continue
        try:
            os.write(device, said)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise


def _hurry() -> None:
    """Go before everything else: a disk does not get slow because the balancer is busy."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:  # in a control group without real-time budget, also for root
        os.nice(-15)


def _end(_signal: int, _frame: FrameType | None) -> None:
    # At once: a request in service is answered with an error by the kernel.
    os._exit(0)


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description="Serve IMAGE, slowly, as the file MOUNT_POINT.")
    parser.add_argument("--bytes-per-s", type=float, required=True)
    parser.add_argument("image", type=Path)
    parser.add_argument("mount_point", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    _hurry()
    image = os.open(options.image, os.O_RDWR)
    serve(attach(options.mount_point), Disk(image, Server(options.bytes_per_s)))


if __name__ == "__main__":
    main()
