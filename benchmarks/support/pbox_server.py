"""What the shim takes of a server: two memcached, one of them with it, loaded in turn."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.support.pbox import SHIM, clean_environment, run_json, shim_environment
from dial.agent.files import Unavailable
from dial.pbox.page import read_page
from dial.ports import free_port

_CONNECTIONS = 4
_SLICE_MS = 25
"""Short, so that what else the computer does meets both of a pair."""
_WARM_UP = 10
_PAIRS = 60
"""Of slices in the life of two servers.  Then two new ones: where a program's memory happens to
lie is worth a per cent or two, so pairs of one life are no independent measurements."""
_START_S = 10.0
"""Longest time until a server answers."""

_SHIM_FLAG = 2
"""Of a page's header: the shim has written it, and it only measures."""


class Median(NamedTuple):
    """With its 95 % interval by ranks."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Median:
        """Take it.

        Examples
        --------
        >>> Median.of([0.3, 0.1, 0.2])
        Median(value=0.2, low=0.1, high=0.3)
        """
        ranked, n = sorted(values), len(values)
        spread = round(0.98 * n**0.5)  # ranks n/2 -+ 1.96 sqrt(n)/2: the binomial, as a normal
        low, high = max(0, n // 2 - spread), min(n - 1, n // 2 + spread)
        return cls(median(ranked), ranked[low], ranked[high])


@dataclass(frozen=True, slots=True)
class Server:
    """A memcached of ours.

    Attributes
    ----------
    process
        The running program.
    port
        Where it listens.
    page
        The shim's statistics page; ``None``: it runs without the shim.
    """

    process: subprocess.Popen[bytes]
    port: int
    page: Path | None

    def traced(self) -> int:
        """Activities that the shim has seen finish; 0 without it.

        Raises
        ------
        SystemExit
            If the shim is where it should not be, or is not where it should.
        """
        if self.process.poll() is not None:
            raise SystemExit(f"memcached has ended ({self.process.returncode})")
        mapped = SHIM in Path(f"/proc/{self.process.pid}/maps").read_text()
        if mapped is not (self.page is not None):
            raise SystemExit(
                f"the shim is {'' if mapped else 'not '}before memcached: see LD_PRELOAD"
            )
        if self.page is None:
            return 0
        try:
            page = read_page(str(self.page), {os.getuid()})
        except Unavailable as error:
            raise SystemExit(f"the shim before memcached shows nothing: {error}") from error
        if page.header.pid != self.process.pid or page.header.flags != _SHIM_FLAG:
            raise SystemExit(f"{self.page}: not of a shim that measures memcached")
        return sum(slot.activities for slot in page.slots.values())


def server_overhead(tree: Path, lives: int) -> dict[str, Median]:
    """Fractions that the shim takes: of throughput, and in processor time of the server's.

    Both servers run and are loaded in turn, a slice each, in an order that changes with each pair.
    They share one core, and the load has another one: else the scheduler's placing of three threads
    on two cores is most of what is measured.  Of each life the median pair counts.

    Throughput is what users see, and as noisy as the load and the scheduler are.  The processor
    time that the server's process spends on a request is the steadier measure of the same.

    Raises
    ------
    SystemExit
        If a server's threads went without the shim that should have had it, or the other way round.
    """
    page = Path(f"/dev/shm/pbox-benchmark-{os.getpid()}.page")  # noqa: S108 - its usual place
    lost, added = [], []
    for _ in range(lives):
        with ExitStack() as servers:
            plain = servers.enter_context(memcached({}, None))
            shimmed = servers.enter_context(memcached(shim_environment(tree, str(page)), page))
            pairs = _loaded(tree / "bench" / "bench_kv_load", plain, shimmed)
        lost.append(median(1 - with_it.per_s() / without.per_s() for without, with_it in pairs))
        added.append(median(with_it.cpu_s() / without.cpu_s() - 1 for without, with_it in pairs))
    return {"throughput": Median.of(lost), "cpu": Median.of(added)}


class _Slice(NamedTuple):
    """What one server did while it was loaded."""

    requests: int
    taken_s: float
    spent_s: float

    def per_s(self) -> float:
        """Requests."""
        return self.requests / self.taken_s

    def cpu_s(self) -> float:
        """Processor time of a request."""
        return self.spent_s / self.requests


def _loaded(load: Path, plain: Server, shimmed: Server) -> list[tuple[_Slice, _Slice]]:
    """Pairs of slices, of the server without the shim and the one with it."""
    traced = shimmed.traced() + plain.traced()
    of_each = [str(n) for each in (plain, shimmed) for n in (each.port, each.process.pid)]
    rounds = str(_WARM_UP + _PAIRS)
    with _on_core(-1):
        seen = run_json(load, str(_CONNECTIONS), str(_SLICE_MS), rounds, *of_each)["rounds"]
    if shimmed.traced() + plain.traced() <= traced:
        raise SystemExit("the shim has traced nothing of what memcached did")
    return [(_Slice(**without), _Slice(**with_it)) for without, with_it in seen[_WARM_UP:]]


@contextmanager
def _on_core(number: int) -> Iterator[None]:
    """Programs that are started meanwhile inherit one core of those that there are."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[number]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def memcached(environment: Mapping[str, str], page: Path | None) -> Iterator[Server]:
    """A memcached with two workers, which answers."""
    port = free_port()
    command = ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "2", "-m", "64"]
    if os.geteuid() == 0:
        command += ["-u", "root"]  # or it refuses; it serves the loopback alone
    with _on_core(0):
        process = subprocess.Popen(command, env=clean_environment() | dict(environment))
    try:
        _wait_until_it_answers(port, process)
        yield Server(process, port, page)
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_answers(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return once this process, and none that had the port before, serves it."""
    give_up_s = time.monotonic() + _START_S
    while time.monotonic() < give_up_s and process.poll() is None:
        if _who_serves(port) == process.pid:
            return
        time.sleep(0.05)
    raise SystemExit(f"memcached does not answer on port {port} within {_START_S:g} s")


def _who_serves(port: int) -> int:
    """Process id that the server says it has; 0 without an answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as server:
            server.sendall(b"stats\r\n")
            answer = server.makefile("rb")
            for line in answer:
                if line.startswith(b"STAT pid "):
                    return int(line.split()[2])
    except OSError:
        pass
    return 0
