"""Disk time: a program on the neighbour's virtual disk, capped there.

How a disk of a machine works, and how the neighbour's part of it is capped, is the subject of
:mod:`dial_lab.slowdisk`.  It serves first come, first served, so whose request is next does
not depend on who asks, and the shares follow from who waits for whom:

- the neighbour always has requests waiting for its cap, so they come at a rate of
  ``rho_bg * C`` whatever the tenant does, as long as that is below C;
- the tenant has one read at a time in flight and gets the rest: while one of its reads of S
  bytes takes time t, the neighbour's requests of ``rho_bg * C * t`` bytes are served too, so
  ``C t = S + rho_bg C t`` and its throughput is ``S / t = (1 - rho_bg) C``.

Measured: told 0.50 and 0.70, programs past the page cache take 0.46 and 0.68.  A request of the
tenant takes 6.76 ms alone, 6.25 of them on the disk, and beside them 6.25 / (1 - rho_bg): the
half millisecond off the disk is hidden in that, so rho_bg is 1 - 6.76 / 12.5 and 1 - 6.76 / 20.8.
Those that wait for their commits come in bursts, and take 0.46 to 0.50 and 0.69 to 0.72.

That is throughput.  The *latency* of a lone read grows by less than 1 / (1 - rho_bg): it waits for
what is before it, and is then served at the full rate.  At 10 % of its usual load and a rho_bg of
0.68 the tenant waits for the disk twice as long a request as alone, not three times.

Without the cap a second greedy program would take a share that depends on the tenant's own
load and on both block sizes.  None of those here has to be told a rate.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dial_lab import loopdisk, tenant
from dial_lab.addresses import Address
from dial_lab.neighbours import sqlite
from dial_lab.processes import Children
from dial_lab.resources.base import Cost, Program, chosen, limit_s
from dial_lab.topology import Machine
from dial_lab.vms import vms

BYTES_PER_S = 10 * 2**20
"""Of each disk: a read of 64 KiB takes 6.25 ms, so a machine serves some 140 of them a second,
about as many requests as it does where they cost CPU time."""

_IN_FLIGHT = 32
"""Of fio.  A tenant's read of 256 KiB (one in fifty is longer) beside a rho_bg of 0.7 takes 83 ms,
in which 9 of the neighbour's requests pass its cap."""

_WRITES_PER_FSYNC = 16
"""A mebibyte: what is still to be written back when the neighbour is stopped."""

_WORKERS = 8
"""Of stress-ng, each with one request in flight."""


def _stress_ng(directory: Path, seconds: int) -> list[str]:
    """Writes files and reads them at random, past the page cache."""
    return [
        *("stress-ng", "--quiet", "--hdd", str(_WORKERS), "--hdd-opts", "direct,wr-seq,rd-rnd"),
        *("--hdd-bytes", "4M", "--hdd-write-size", "64K", "--temp-path", str(directory)),
        *("--timeout", f"{seconds}s"),
    ]


def _fio_direct(directory: Path, seconds: int) -> list[str]:
    """Reads at random, past the page cache."""
    return _fio(directory, seconds, rw="randread", direct=1, ioengine="libaio", iodepth=_IN_FLIGHT)


def _fio_buffered(directory: Path, seconds: int) -> list[str]:
    """Writes at random into the page cache, and waits for each mebibyte to be on the disk."""
    return _fio(directory, seconds, rw="randwrite", ioengine="psync", fsync=_WRITES_PER_FSYNC)


def _fio(directory: Path, seconds: int, **options: str | int) -> list[str]:
    common = {
        "name": "neighbour",
        "filename": directory / "data",
        "bs": "64k",
        "time_based": 1,
        "runtime": seconds,
        "gtod_reduce": 1,
    }
    given = [f"--{key}={value}" for key, value in (common | options).items()]
    return ["fio", "--thread", *given]


def _sqlite(directory: Path, seconds: int) -> list[str]:
    """Fills a database."""
    file = directory / "rows.db"
    return [
        *(sys.executable, "-I", "-S", str(Path(sqlite.__file__))),
        *("--seconds", str(seconds), str(file)),
    ]


@dataclass(frozen=True, slots=True)
class DiskResource:
    """See :class:`dial_lab.resources.base.Resource`.

    Attributes
    ----------
    directory
        Where disks are made; see :func:`dial_lab.loopdisk.disks`.
    """

    directory: Path = loopdisk.DIRECTORY

    @property
    def name(self) -> str:
        """As in a verdict."""
        return "disk"

    @property
    def victim_apart(self) -> bool:
        """Each machine has a disk of its own."""
        return False

    @property
    def calibrated_together(self) -> bool:
        """Each machine has all of its own."""
        return False

    @property
    def in_common(self) -> None:
        """Its limit is far below what the computer's disk has."""

    @property
    def cost(self) -> Cost:
        """Reads of 64 KiB on average; and a little CPU time, so that the disk is what is short."""
        return Cost("disk_kib", 64.0, step=4, fixed="cpu_us=100")

    @property
    def programs(self) -> Mapping[str, Program[Path]]:
        """Their place is the neighbour's virtual disk."""
        return _PROGRAMS

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """One application in each VM, with a file on its machine's disk."""
        names = [machine.name for machine in machines]
        cores = sorted(os.sched_getaffinity(0))
        apps: list[subprocess.Popen[bytes]] = []
        with (
            loopdisk.disks(self.directory, names, children, bytes_per_s=BYTES_PER_S, cores=cores),
            vms(machines) as places,
        ):
            try:
                for machine in machines:
                    file = loopdisk.tenant_file(self.directory, machine.name)
                    options = ("--disk-file", str(file))
                    apps.append(tenant.start_app(children, machine, places[machine.name], options))
                yield {name: vm.address for name, vm in places.items()}
            finally:
                # Before their disks go: an open file keeps them mounted.
                for app in apps:
                    children.stop(app)

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
    ) -> subprocess.Popen[bytes]:
        """One program that reads or writes all it can."""
        place = loopdisk.neighbour_directory(self.directory, machine.name)
        argv = chosen(self.programs, program).argv(place, limit_s(at_most_s))
        loopdisk.cap_neighbour(self.directory, machine.name, rho_bg * BYTES_PER_S)
        return children.start(
            f"neighbour-{machine.name}",
            argv,
            cores=[machine.core],
            join=machine.neighbour_files(),
        )


_PROGRAMS = {
    "stress-ng-hdd": Program("training", _stress_ng),
    "fio-direct": Program("unseen", _fio_direct),
    "fio-buffered": Program("unseen", _fio_buffered),
    "sqlite": Program("unseen", _sqlite),
}

DISK = DiskResource()
