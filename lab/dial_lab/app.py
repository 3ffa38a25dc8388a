"""The tenant's application: a first-come, first-served HTTP server whose cost is in the URL.

``GET /work?cpu_us=2000&mem_kib=0&disk_kib=0&bytes=64`` does just that much work, in this
order, in the one thread there is, and answers that many bytes:

- ``cpu_us``: burns CPU time *of the thread*, so that the work is the same whether or not
  somebody else has the core meanwhile;
- ``mem_kib``: follows a random cycle through that much memory, a load per cache line, each
  address known only from the load before (a sequential sweep would be prefetched, and show
  nothing of a neighbour in the cache);
- ``disk_kib``: reads that much from the given file past the page cache (O_DIRECT);
- ``bytes``: the length of the answer.

One thread and no queue of its own: requests wait in the sockets and are served in the order
in which the kernel reports them, which is the M/G/1 first-come server that the paper's
Eq. 1 and Lindley's recursion describe.  Standard library only, and runs as a file without
site packages, because it starts inside a third of a core.  A request costs 0.03 ms of CPU
beyond what it asks for.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import mmap
import os
import random
import signal
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import parse_qsl

_LINE_BYTES = 64
_WORD_BYTES = 4
_DISK_BLOCK = 4096
_SPIN = range(200)


@dataclass(frozen=True, slots=True)
class Work:
    """What one request costs."""

    cpu_us: int = 0
    mem_kib: int = 0
    disk_kib: int = 0
    bytes: int = 64


LIMITS = {"cpu_us": 10_000_000, "mem_kib": 65_536, "disk_kib": 16_384, "bytes": 16_777_216}
"""Largest value of each: a typing error must not stop the server for an hour."""


class BadRequest(Exception):
    """A request that is not served; the message is the answer's body."""


def parse_work(query: str) -> Work:
    """Read the query part of the URL.

    Raises
    ------
    BadRequest
        Naming the parameter, its value and what is allowed.

    Examples
    --------
    >>> parse_work("cpu_us=2000&bytes=10")
    Work(cpu_us=2000, mem_kib=0, disk_kib=0, bytes=10)
    """
    given: dict[str, int] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in LIMITS:
            raise BadRequest(f"{name[:40]!r}: no such parameter; allowed: {', '.join(LIMITS)}")
        # isdecimal also takes digits of other scripts, which int() would read.
        if not (text.isascii() and text.isdecimal() and len(text) <= 9):
            raise BadRequest(f"{name} = {text[:40]!r}: not a whole number")
        value = int(text)
        if value > LIMITS[name]:
            raise BadRequest(f"{name} = {value}: more than {LIMITS[name]}")
        if name == "disk_kib" and value * 1024 % _DISK_BLOCK:
            raise BadRequest(f"disk_kib = {value}: not a multiple of {_DISK_BLOCK // 1024}")
        given[name] = value
    return Work(**given)


def burn(cpu_us: int) -> None:
    """Use ``cpu_us`` microseconds of this thread's CPU time, to some 3 us."""
    end_ns = time.thread_time_ns() + cpu_us * 1000
    while time.thread_time_ns() < end_ns:
        # Reading the clock is a system call: read all the time, it would be most of the
        # work, and the tenant's CPU time would show as sys instead of usr.
        for _ in _SPIN:
            pass


class Memory:
    """Random cycles through memory, one for each size asked for."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - an order of addresses, no secret
        self._cycles: dict[int, array[int]] = {}

    def chase(self, kib: int) -> None:
        """Load one word from each cache line of ``kib`` KiB, in the cycle's order."""
        if kib not in self._cycles:
            self._cycles[kib] = self._cycle(kib)
        cycle = self._cycles[kib]
        at = 0
        for _ in range(kib * 1024 // _LINE_BYTES):
            at = cycle[at]

    def _cycle(self, kib: int) -> array[int]:
        """Sattolo's shuffle: a permutation that is a single cycle."""
        lines = kib * 1024 // _LINE_BYTES
        order = list(range(lines))
        for i in range(lines - 1, 0, -1):
            j = self._random.randrange(i)
            order[i], order[j] = order[j], order[i]
        step = _LINE_BYTES // _WORD_BYTES
        cycle = array("I", bytes(kib * 1024))
        for line, following in enumerate(order):
            cycle[line * step] = following * step
        return cycle


class Disk:
    """Reads at random places of one file, past the page cache."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self._blocks = os.fstat(self._file).st_size // _DISK_BLOCK
        self._random = random.Random(seed)  # noqa: S311 - places in a file, no secret

    def read(self, kib: int) -> None:
        """Read ``kib`` KiB in one piece.

        Raises
        ------
        BadRequest
            If the file is smaller.
        """
        blocks = kib * 1024 // _DISK_BLOCK
        if blocks > self._blocks:
            raise BadRequest(f"disk_kib = {kib}: the file has {self._blocks * 4} KiB")
        at = self._random.randrange(self._blocks - blocks + 1) * _DISK_BLOCK
        # O_DIRECT needs an aligned buffer; a private map starts on a page.
        with mmap.mmap(-1, kib * 1024) as buffer:
            os.preadv(self._file, [buffer], at)


def worker(memory: Memory, disk: Disk | None) -> Callable[[Work], None]:
    """The function that does the work of one request."""

    def do(work: Work) -> None:
        if work.disk_kib and disk is None:
            raise BadRequest("disk_kib: this server was started without --disk-file")
        if work.cpu_us:
            burn(work.cpu_us)
        if work.mem_kib:
            memory.chase(work.mem_kib)
        if work.disk_kib and disk is not None:
            disk.read(work.disk_kib)

    return do


def answer(target: str, do: Callable[[Work], None]) -> bytes:
    """The whole HTTP answer to one request target."""
    path, _, query = target.partition("?")
    try:
        if path != "/work":
            return _response("404 Not Found", b"only /work is served\n")
        work = parse_work(query)
        do(work)
    except BadRequest as error:
        return _response("400 Bad Request", f"{error}\n".encode())
    return _response("200 OK", b"x" * work.bytes)


def _response(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as far as a balancer in front of it needs: GET, no body."""

    _MAX_HEAD = 16_384

    def __init__(self, do: Callable[[Work], None]) -> None:
        self._do = do
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio's own contract
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Serve every request that is complete, in order."""
        self._buffer += data
        while True:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                break
            self._buffer = rest
            words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            if len(words) != 3 or words[0] != "GET":
                self._refuse("only GET without a body is served")
                return
            self._transport.write(answer(words[1], self._do))
        if len(self._buffer) > self._MAX_HEAD:
            self._refuse("the request's head is longer than 16 KiB")

    def _refuse(self, why: str) -> None:
        self._transport.write(_response("400 Bad Request", f"{why}\n".encode()))
        self._transport.close()


async def serve(host: str, port: int, do: Callable[[Work], None]) -> None:
    """Serve until TERM or INT."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    server = await loop.create_server(lambda: Connection(do), host, port, backlog=4096)
    async with server:
        await stopped.wait()


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description=f"GET /work?{'&'.join(_names())}")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--disk-file", type=Path)
    options = parser.parse_args()
    disk = Disk(options.disk_file) if options.disk_file else None
    # Nothing here makes cycles, and a collection would be counted as somebody's latency.
    gc.disable()
    asyncio.run(serve(options.host, options.port, worker(Memory(), disk)))


def _names() -> list[str]:
    return [f"{field.name}=N" for field in fields(Work)]


if __name__ == "__main__":
    main()
