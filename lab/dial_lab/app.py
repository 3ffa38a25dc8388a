"""The tenant's application: a first-come, first-served HTTP server whose cost is in the URL.

``GET /work?cpu_us=2000&touches=0&lines_us=0&disk_kib=0&bytes=64`` does just that much work, in this
order, in the one thread there is, and answers that many bytes:

- ``cpu_us``: burns CPU time *of the thread*, so that the work is the same whether or not
  somebody else has the core meanwhile; or passes of a loop (``--passes-per-us``), where the
  kernel's account of CPU time cannot be relied on (see :mod:`dial_lab.guests.uml`);
- ``touches``: loads that many words from its working set, each address known only from the
  load before (see :class:`WorkingSet`): a fixed amount of work, whose time is the memory's;
- ``lines_us``: as many loads of a set that others can write to as take that long while nobody does
  (see :class:`Lines`);
- ``disk_kib``: reads that much from the given file past the page cache (O_DIRECT);
- ``bytes``: the length of the answer.

Asked by ``endpoint-load-metrics-format: text``, an answer also says how busy the server is, as
Envoy and gRPC read it (:class:`LoadReport`).

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
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from itertools import cycle, islice, repeat
from pathlib import Path
from urllib.parse import parse_qsl

_DISK_BLOCK = 4096
_SPIN = range(200)


@dataclass(frozen=True, slots=True)
class Work:
    """What one request costs."""

    cpu_us: int = 0
    touches: int = 0
    lines_us: int = 0
    disk_kib: int = 0
    bytes: int = 64


LIMITS = {
    "cpu_us": 10_000_000,
    "touches": 20_000_000,
    "lines_us": 10_000_000,
    "disk_kib": 16_384,
    "bytes": 16_777_216,
}
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
    Work(cpu_us=2000, touches=0, lines_us=0, disk_kib=0, bytes=10)
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


def spin(passes_per_us: float, cpu_us: int) -> None:
    """Make as many passes of a loop as take ``cpu_us`` microseconds when nobody disturbs."""
    for _ in repeat(None, round(passes_per_us * cpu_us)):
        pass


def measure_passes_per_us() -> float:
    """How many passes :func:`spin` makes in a microsecond of CPU time, on this computer.

    The most of ten tries of some 5 ms: whatever disturbs a loop makes it slower.
    """
    passes = 500_000
    took_ns = []
    for _ in range(10):
        begin_ns = time.thread_time_ns()
        spin(1.0, passes)
        took_ns.append(time.thread_time_ns() - begin_ns)
    return 1000.0 * passes / min(took_ns)


class WorkingSet:
    """Objects all over an amount of memory, each of which leads to the next.

    The time of a request is to be that of its cache misses.  A chase in Python itself, ``at =
    cycle[at]``, spends 30 to 50 ns a step in the interpreter, and hides misses of 15 ns.  So
    the interpreter is given a structure that it follows in C: ``isinstance`` descends through
    nested tuples, here of one member each, at 2 ns a step when they are in the nearest cache
    (12 ns at 3 MiB, 100 ns beside a neighbour that sweeps the cache).  ``hash`` would do the
    same, but from Python 3.14 on a tuple remembers its own.

    A sequential order would be prefetched, and show nothing of a neighbour: which chain a
    newly made tuple goes on top of is drawn, so that a step leads some thousand tuples back.

    Parameters
    ----------
    kib
        Size of the working set, KiB.
    scale
        Touches made for each one asked for.
    steps
        Through a chain that stays in the nearest cache, after each touch: what a program does with
        what it has loaded.  They take 2 ns each, and nobody can make them longer.
    seed
        Of the order.
    """

    DEPTH = 64
    """Tuples in a chain: well below the interpreter's limit of recursion."""

    def __init__(self, kib: int, scale: float = 1.0, steps: int = 0, seed: int = 0) -> None:
        # The collector's header (16 bytes) stands before the object, and __sizeof__ omits it.
        each_bytes = ((),).__sizeof__() + 16
        chains: list[tuple[object, ...]] = [()] * max(1, kib * 1024 // each_bytes // self.DEPTH)
        order = list(range(len(chains))) * self.DEPTH
        shuffled = random.Random(seed)  # noqa: S311 - an order of addresses, no secret
        shuffled.shuffle(order)
        for number in order:
            chains[number] = (chains[number],)
        shuffled.shuffle(chains)
        self._turn = cycle(chains)
        self._chains_per_touch = scale / self.DEPTH
        self.touches = len(order)
        near: tuple[object, ...] = ()
        for _ in range(self.DEPTH):
            near = (near,)
        # For each of a chain's touches its steps, so that the chain is gone through so many times.
        self._steps = (near,) * steps

    def touch(self, count: int) -> None:
        """Make ``count`` touches, rounded to whole chains, going on where the last call ended."""
        for chain in islice(self._turn, round(count * self._chains_per_touch)):
            isinstance(None, chain)  # type: ignore[arg-type] # the recursion is the point
            isinstance(None, self._steps)  # type: ignore[arg-type]


class Lines:
    """A working set in a file, which others can map and write to: one word of each cache line.

    Each word says where the next one is, all over the set, and is followed by the interpreter: 25
    to 40 ns a step where the line is in the core's own second level, twice that where another core
    wrote to the line since.  Who writes has to leave each line's first word alone.

    How fast a core follows anything is nobody's to promise: who has its second thread makes it
    half as fast for some tenths of a second.  As :func:`burn` counts CPU time and no loops, so that
    it is the same work meanwhile, the work here is as many steps as take a CPU time just now with
    every line at hand, by what steps through a small set of nobody else's take.

    Parameters
    ----------
    path
        Of the file, which is made anew: what is there may be a link that somebody else has put.
    kib
        Size of the working set, KiB.
    seed
        Of the order.
    """

    KIB = 512
    """Three such sets fit into a core's second level of 2 MiB."""

    WORDS = 8
    """In a line of 64 bytes."""

    OWN, STEPS = 128, 1024
    """Steps through the set of nobody else's, and in all, between two looks at the clock: 40 us.  A
    look takes a third of a microsecond, and is counted with the fewer."""

    _OWN_KIB = 32
    """A first level's; of 16 to 64 KiB, work varied by 1 to 4 % while steps took 33 to 60 ns."""

    def __init__(self, path: Path, kib: int = KIB, seed: int = 0) -> None:
        path.unlink(missing_ok=True)
        with path.open("x+b") as file:
            file.truncate(kib * 1024)
            self._words = _chain(mmap.mmap(file.fileno(), kib * 1024), seed)
        self._own_words = _chain(mmap.mmap(-1, self._OWN_KIB * 1024), seed)
        self._word = self._own_word = 0

    def work(self, us: int) -> None:
        """Make as many steps as take ``us`` microseconds with every line at hand."""
        left_ns = us * 1000.0
        while left_ns > 0.0:
            begin_ns = time.thread_time_ns()
            self._own_word = _follow(self._own_words, self._own_word, self.OWN)
            took_ns = time.thread_time_ns() - begin_ns
            self._word = _follow(self._words, self._word, self.STEPS - self.OWN)
            left_ns -= took_ns * self.STEPS / self.OWN


def _chain(memory: mmap.mmap, seed: int) -> memoryview:
    """Words of 8 bytes; each line's first one says which word comes after it, once through all."""
    words = memoryview(memory).cast("Q")
    order = list(range(0, len(words), Lines.WORDS))
    random.Random(seed).shuffle(order)  # noqa: S311 - an order of addresses, no secret
    for word, following in zip(order, [*order[1:], order[0]], strict=True):
        words[word] = following
    return words


def _follow(words: memoryview, word: int, steps: int) -> int:
    """Where so many steps from ``word`` lead: eights of them, as a loop's time is not a load's."""
    for _ in repeat(None, steps // 8):
        word = words[words[words[words[words[words[words[words[word]]]]]]]]
    return word


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


def worker(
    memory: WorkingSet | None,
    disk: Disk | None,
    use_cpu: Callable[[int], None] = burn,
    lines: Lines | None = None,
) -> Callable[[Work], None]:
    """The function that does the work of one request."""

    def do(work: Work) -> None:
        if work.touches and memory is None:
            raise BadRequest("touches: this server was started without --working-set-kib")
        if work.lines_us and lines is None:
            raise BadRequest("lines_us: this server was started without --lines-file")
        if work.disk_kib and disk is None:
            raise BadRequest("disk_kib: this server was started without --disk-file")
        if work.cpu_us:
            use_cpu(work.cpu_us)
        if work.touches and memory is not None:
            memory.touch(work.touches)
        if work.lines_us and lines is not None:
            lines.work(work.lines_us)
        if work.disk_kib and disk is not None:
            disk.read(work.disk_kib)

    return do


def answer(target: str, do: Callable[[Work], None]) -> bytes:
    """The whole HTTP answer to one request target."""
    path, _, query = target.partition("?")
    try:
        if path != "/work":
            return response("404 Not Found", b"only /work is served\n")
        work = parse_work(query)
        do(work)
    except BadRequest as error:
        return response("400 Bad Request", f"{error}\n".encode())
    return response("200 OK", b"x" * work.bytes)


def response(status: str, body: bytes) -> bytes:
    """An HTTP answer."""
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


REPORT_ASKED = b"endpoint-load-metrics-format: text"
"""As Envoy sends it; a client that writes its headers otherwise gets no report."""


class LoadReport:
    """How busy the server is, in the text format of the Open Request Cost Aggregation standard.

    ``application_utilization`` is the part of the last second or more in which the one thread had
    a request in its hands, whether it computed, waited for a disk or was kept from its core:
    CPU time alone would not show what a neighbour takes.  ``rps_fractional`` counts the requests of
    the same time.

    Parameters
    ----------
    now_s
        The clock, seconds.
    """

    WINDOW_S = 1.0

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._busy_s = 0.0
        self._count = 0
        self.header = b""
        """A line of an answer's head; empty before the first second is over."""

    def served(self, begin_s: float, end_s: float) -> None:
        """Count one request."""
        self._busy_s += end_s - begin_s
        self._count += 1
        elapsed_s = end_s - self._since_s
        if elapsed_s >= self.WINDOW_S:
            self.header = (
                b"endpoint-load-metrics: TEXT application_utilization=%.4f, rps_fractional=%.3f\r\n"
                % (self._busy_s / elapsed_s, self._count / elapsed_s)
            )
            self._since_s, self._busy_s, self._count = end_s, 0.0, 0


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as far as a balancer in front of it needs: GET, no body."""

    _MAX_HEAD = 16_384

    def __init__(self, do: Callable[[Work], None], load: LoadReport) -> None:
        self._do = do
        self._load = load
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
            begin_s = time.monotonic()
            said = answer(words[1], self._do)
            self._load.served(begin_s, time.monotonic())
            if REPORT_ASKED in head:
                line, found, rest_of_answer = said.partition(b"\r\n")
                said = line + found + self._load.header + rest_of_answer
            self._transport.write(said)
        if len(self._buffer) > self._MAX_HEAD:
            self._refuse("the request's head is longer than 16 KiB")

    def _refuse(self, why: str) -> None:
        self._transport.write(response("400 Bad Request", f"{why}\n".encode()))
        self._transport.close()


async def serve(host: str, port: int, do: Callable[[Work], None]) -> None:
    """Serve until TERM or INT."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    load = LoadReport(time.monotonic())
    server = await loop.create_server(lambda: Connection(do, load), host, port, backlog=4096)
    async with server:
        await stopped.wait()


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description=f"GET /work?{'&'.join(_names())}")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--disk-file", type=Path)
    parser.add_argument("--working-set-kib", type=int, default=0)
    parser.add_argument("--lines-file", type=Path)
    parser.add_argument("--touch-scale", type=float, default=1.0)
    parser.add_argument("--steps-per-touch", type=int, default=0)
    parser.add_argument("--passes-per-us", type=float)
    options = parser.parse_args()
    passes_per_us = options.passes_per_us
    use_cpu = burn if passes_per_us is None else partial(spin, passes_per_us)
    kib = options.working_set_kib
    memory = WorkingSet(kib, options.touch_scale, options.steps_per_touch) if kib else None
    lines = Lines(options.lines_file) if options.lines_file else None
    disk = Disk(options.disk_file) if options.disk_file else None
    # Nothing here makes cycles, and a collection would be counted as somebody's latency.
    gc.disable()
    asyncio.run(serve(options.host, options.port, worker(memory, disk, use_cpu, lines)))


def _names() -> list[str]:
    return [f"{field.name}=N" for field in fields(Work)]


if __name__ == "__main__":
    main()
