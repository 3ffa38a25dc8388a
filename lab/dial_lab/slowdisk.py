"""A disk that serves first come, first served at a fixed rate: one file, by way of FUSE.

The problem: on an emulated machine the disk must be a *server*, one request at a time in the
order of arrival, each for ``bytes / rate``, or neither Eq. 1 nor a share ``rho_bg`` means
anything.  The kernel's own limit (``blkio.throttle.*``, ``io.max``) is none: it hands out the
bytes of 100 ms at once (``throtl_slice``) and makes whoever comes after them wait for the next
100 ms.  Measured at 10 MB/s with 64 KiB reads: at utilisation 0.70 the median took 0.2 ms and
P99 1.7 ms (a server would show 6 and 100 ms), and in saturation 15 of 16 reads took nothing.

So the disk is a file whose contents this program serves.  Loop devices over it
(:mod:`dial_lab.loopdisk`) make block devices of it again, in which both tenants wait as for
any disk: PSI, iowait and the byte counts of groups are the kernel's.

The file's last part is the neighbour's virtual disk.  Its requests pass a cap before they
join the queue, as a hypervisor's limit on a virtual disk has it, so that whatever program
the neighbour is, it takes a share that is a *number*.  The cap decides when they come, not
who is served: in the queue all are alike.

Reads and writes cost the same.  A request that came while another was served begins when that
one ends, not when this program wakes up, so sleeping too long does not make the disk slower.

The kernel's side is described in ``include/uapi/linux/fuse.h``; what is used here has been
there since version 7.28 of the protocol (Linux 4.20).  Standard library only, and runs as a
file, because it may not fall behind.
"""

from __future__ import annotations

import argparse
import errno
import heapq
import itertools
import math
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
_OPEN_FLAGS = 1 << 0 | 1 << 6
"""FOPEN_DIRECT_IO: a page cache in front of the disk would answer for it.
FOPEN_PARALLEL_DIRECT_WRITES (Linux 6.2; ignored before): otherwise one write at a time gets
here, and a neighbour's writes wait where their cap cannot make up for it."""

LARGEST = 1 << 16
"""Bytes in one request.  What is larger comes as several at once: to who asked that is the same,
but a mebibyte that is written back passes the cap in pieces, and does not hold up the tenant
for a tenth of a second."""
_IN_FLIGHT = 256
"""Requests the kernel may hand over at once; its default of 12 would be a queue of its own
in which not everybody waits in the order of arrival."""


BURST_S = 0.1
"""Of its cap's time a neighbour may leave unused and make up for: it thinks, commits, or waits
for its own last request, and is to get its share all the same."""


class Server:
    """When each request is done, if they are served one by one.

    Parameters
    ----------
    bytes_per_s
        The disk's rate.

    Examples
    --------
    >>> disk = Server(bytes_per_s=1000.0)
    >>> disk.done_s(at_s=0.0, count=100)
    0.1
    >>> disk.done_s(at_s=0.05, count=100)  # waits for the first
    0.2
    >>> disk.done_s(at_s=1.0, count=100)
    1.1
    """

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def done_s(self, *, at_s: float, count: int) -> float:
        """When a request of ``count`` bytes that joins the queue at ``at_s`` is done."""
        self._free_s = max(at_s, self._free_s) + count / self._bytes_per_s
        return self._free_s


class Cap:
    """When a neighbour's requests may join the queue: a token bucket of :data:`BURST_S`.

    Parameters
    ----------
    bytes_per_s
        Gives the present cap; asked at every request.

    Examples
    --------
    >>> cap = Cap(lambda: 1000.0)
    >>> [cap.release_s(at_s=5.0, count=100) for _ in range(3)]  # 0.1 s saved up
    [5.0, 5.0, 5.1]
    """

    def __init__(self, bytes_per_s: Callable[[], float]) -> None:
        self._bytes_per_s = bytes_per_s
        self._next_s = -math.inf

    def release_s(self, *, at_s: float, count: int) -> float:
        """When a request of ``count`` bytes that arrives at ``at_s`` may go on."""
        begin_s = max(self._next_s, at_s - BURST_S)
        self._next_s = begin_s + count / self._bytes_per_s()
        return max(at_s, begin_s)


class Disk:
    """The kernel's requests for one file, and what is due when.

    Parameters
    ----------
    image
        Open file with the contents.
    server
        Says how long requests take.
    cap
        Of the neighbour.
    neighbour_from
        Where in the file the neighbour's part begins, bytes.
    """

    def __init__(self, image: int, server: Server, cap: Cap, neighbour_from: int) -> None:
        self._image = image
        self._server = server
        self._cap = cap
        self._neighbour_from = neighbour_from
        self._bytes = os.fstat(image).st_size
        self._number = itertools.count()
        self._events: list[tuple[float, int, Callable[[float], bytes | None]]] = []

    @property
    def due_s(self) -> float:
        """When the next step is due; infinite when nothing is under way."""
        return self._events[0][0] if self._events else math.inf

    def arrive(self, request: bytes, at_s: float) -> None:
        """Take a request of the kernel that came at ``at_s``; steps due by then come first."""
        _, opcode, unique, *_ = _HEADER_IN.unpack_from(request)
        if opcode in _NO_ANSWER:
            return
        body = memoryview(request)[_HEADER_IN.size :]

        def answer(_: float) -> bytes:
            try:
                said = self._do(opcode, body)
            except OSError as error:
                return _HEADER_OUT.pack(_HEADER_OUT.size, -(error.errno or errno.EIO), unique)
            return _HEADER_OUT.pack(_HEADER_OUT.size + len(said), 0, unique) + said

        if opcode not in (_READ, _WRITE):
            self._at(at_s, answer)
            return
        _, offset, count, *_ = _TRANSFER_IN.unpack_from(body)

        def join(now_s: float) -> None:
            self._at(self._server.done_s(at_s=now_s, count=count), answer)

        joins_s = at_s
        if offset >= self._neighbour_from:
            joins_s = self._cap.release_s(at_s=at_s, count=count)
        if joins_s > at_s:
            self._at(joins_s, join)
        else:
            join(at_s)

    def step(self) -> bytes | None:
        """Do what is due next; returns an answer for the kernel if it is one."""
        at_s, _, do = heapq.heappop(self._events)
        return do(at_s)

    def _at(self, due_s: float, do: Callable[[float], bytes | None]) -> None:
        # The number keeps what is due at the same time in order.
        heapq.heappush(self._events, (due_s, next(self._number), do))

    def _do(self, opcode: int, body: memoryview) -> bytes:
        if opcode in (_READ, _WRITE):
            _, offset, size, *_ = _TRANSFER_IN.unpack_from(body)
            if opcode == _READ:
                return os.pread(self._image, size, offset)
            start = _TRANSFER_IN.size
            return _WRITE_OUT.pack(os.pwrite(self._image, body[start : start + size], offset), 0)
        if opcode == _INIT:
            _, _, readahead, offered = _INIT_IN.unpack_from(body)
            return _INIT_OUT.pack(
                *_VERSION, readahead, _FLAGS & offered, _IN_FLIGHT, _IN_FLIGHT,
                LARGEST, 1, LARGEST // 4096, 0, 0,
            )  # fmt: skip
        if opcode == _GETATTR:
            return self._attributes()
        if opcode == _OPEN:
            return _OPEN_OUT.pack(0, _OPEN_FLAGS, 0)
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
    options = f"fd={device},rootmode=100000,user_id=0,group_id=0,max_read={LARGEST}"
    subprocess.run(
        # -i: no mount.fuse helper, which would start somebody else's server.
        ["mount", "-i", "-t", "fuse", "-o", options, "dial-lab", str(mount_point)],
        pass_fds=[device],
        check=True,
    )
    return device


def serve(device: int, disk: Disk) -> None:
    """Answer until the file system is unmounted."""
    at_s = time.monotonic()
    while True:
        if disk.due_s <= time.monotonic():
            at_s = max(at_s, disk.due_s)
            _say(device, disk.step())
            continue
        # What is there already came while something else was done: by then, not now.
        if not _ready(device, 0.0):
            if not _ready(device, disk.due_s - time.monotonic()):
                continue
            at_s = time.monotonic()
        try:
            request = os.read(device, LARGEST + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:  # unmounted
                return
            if error.errno in (errno.ENOENT, errno.EINTR):  # taken back by whoever asked
                continue
            raise
        disk.arrive(request, at_s)


def _ready(device: int, wait_s: float) -> bool:
    """Whether there is a request within ``wait_s``."""
    # Not poll, which counts in milliseconds.
    timeout = max(0.0, wait_s) if math.isfinite(wait_s) else None
    return bool(select.select([device], [], [], timeout)[0])


def _say(device: int, answer: bytes | None) -> None:
    if answer is None:
        return
    try:
        os.write(device, answer)
    except OSError as error:
        if error.errno != errno.ENOENT:  # taken back by whoever asked
            raise


def go_first() -> None:
    """Let this process run before everything else on its core."""
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
    parser.add_argument("--neighbour-from", type=int, required=True, metavar="BYTES")
    parser.add_argument("--cap", type=Path, required=True, help="file with the cap, bytes/s")
    parser.add_argument("image", type=Path)
    parser.add_argument("mount_point", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    go_first()  # a disk does not get slow because the balancer is busy
    image = os.open(options.image, os.O_RDWR)
    cap = Cap(lambda: float(options.cap.read_text(encoding="ascii")))
    disk = Disk(image, Server(options.bytes_per_s), cap, options.neighbour_from)
    serve(attach(options.mount_point), disk)


if __name__ == "__main__":
    main()
