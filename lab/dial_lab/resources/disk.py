"""Disk time: ``fio`` with a fixed rate of reads from the disk that the tenant reads from.

How a disk of a machine works is the subject of :mod:`dial_lab.slowdisk`.  It serves first
come, first served, so whose request is next does not depend on who asks, and the shares
follow from who waits for whom:

- the neighbour asks at a rate of its own and never waits for an answer (up to 64 reads in
  flight), so it gets its rate ``rho_bg * C`` whatever the tenant does, as long as that is
  below C;
- the tenant has one read at a time in flight and gets the rest: while one of its reads of S
  bytes takes time t, the neighbour's reads of ``rho_bg * C * t`` bytes are served too, so
  ``C t = S + rho_bg C t`` and its throughput is ``S / t = (1 - rho_bg) C``.

Measured: told 0.50 it takes 0.51, told 0.70 it takes 0.68 (a request spends some 0.5 ms off the
disk, in which the neighbour is served for free).  With ``--rate_process=poisson`` fio 3.33
delivers a tenth less than its rate, 0.44 for 0.50, so the reads are evenly spaced.

That is throughput.  The *latency* of a lone read grows by less than 1 / (1 - rho_bg): it waits for
what is before it, and is then served at the full rate.  At 10 % of its usual load and a rho_bg of
0.68 the tenant waits for the disk twice as long a request as alone, not three times.

A second greedy reader (``dd iflag=direct``, ``stress-ng --hdd``) would instead take a share that
depends on the tenant's own load and on both block sizes.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dial_lab import loopdisk, tenant
from dial_lab.addresses import Address, free_ports
from dial_lab.processes import Children
from dial_lab.resources.base import Cost
from dial_lab.topology import Machine

BYTES_PER_S = 10 * 2**20
"""Of each disk: a read of 64 KiB takes 6.25 ms, so a machine serves some 140 of them a second,
about as many requests as it does where they cost CPU time."""

_BLOCK = 65_536
_IN_FLIGHT = 64
"""A tenant's read of 256 KiB (one in fifty is longer) beside a rho_bg of 0.7 takes 83 ms, in
which the neighbour asks 9 times; at 0.9 it asks 36 times."""

_MARGIN_S = 30.0


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
    def cost(self) -> Cost:
        """Reads of 64 KiB on average; and a little CPU time, so that the disk is what is short."""
        return Cost("disk_kib", 64.0, step=4, fixed="cpu_us=100")

    @contextmanager
    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> Iterator[Mapping[str, Address]]:
        """Applications on loopback, each with a file on its machine's disk."""
        names = [machine.name for machine in machines]
        cores = sorted(os.sched_getaffinity(0))
        apps: list[subprocess.Popen[bytes]] = []
        with loopdisk.disks(self.directory, names, children, bytes_per_s=BYTES_PER_S, cores=cores):
            ports = free_ports(len(machines))
            addresses = {
                name: Address("127.0.0.1", port) for name, port in zip(names, ports, strict=True)
            }
            try:
                for machine in machines:
                    file = loopdisk.tenant_file(self.directory, machine.name)
                    address = addresses[machine.name]
                    options = ("--disk-file", str(file))
                    apps.append(tenant.start_app(children, machine, address, options))
                yield addresses
            finally:
                # Before their disks go: an open file keeps them mounted.
                for app in apps:
                    children.stop(app)

    def start_neighbour(
        self, children: Children, machine: Machine, rho_bg: float, at_most_s: float
    ) -> subprocess.Popen[bytes]:
        """One ``fio`` that reads ``rho_bg`` of the disk's bytes a second, evenly spaced."""
        file = loopdisk.neighbour_file(self.directory, machine.name)
        options = {
            "name": "neighbour",
            "filename": file,
            "rw": "randread",
            "bs": _BLOCK,
            "direct": 1,
            "ioengine": "libaio",
            "iodepth": _IN_FLIGHT,
            "rate": round(rho_bg * BYTES_PER_S),
            "time_based": 1,
            "runtime": math.ceil(at_most_s + _MARGIN_S),
            "gtod_reduce": 1,
        }
        return children.start(
            f"neighbour-{machine.name}",
            [
                "fio",
                "--readonly",
                "--thread",
                *(f"--{key}={value}" for key, value in options.items()),
            ],
            cores=[machine.core],
            join=machine.neighbour_files(),
            finite=True,
        )


DISK = DiskResource()
