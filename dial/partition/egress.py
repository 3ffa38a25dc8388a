"""Egress bandwidth by service: HTB classes, and an eBPF program that names a packet's class.

HTB divides a device; which class a packet belongs to it learns from a filter or from the
packet's priority, which may be the class itself.  Filters that know cgroups are missing from
many kernels (``cls_cgroup``, ``act_police``), and have only the v1 group of the socket.  So a
program of four instructions at each service's v2 group writes the class as the priority
(``BPF_PROG_TYPE_CGROUP_SKB``, Linux 5.7).  It is detached with the process, its packets then go
to the class of all others, and the qdisc is in the journal.

A root qdisc that somebody has configured is never replaced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from dial import bpf
from dial.errors import LimitError
from dial.limits.journal import Journal
from dial.limits.qdisc import HANDLE, root_handle, tc
from dial.partition.bandwidth import UNITS, adjust

_ROOT, _OTHERS, _FIRST = 1, 2, 0x10
_PRIORITY_OFFSET = 32
"""Of ``priority`` in ``struct __sk_buff``."""


class Egress:
    """Divides a device's bandwidth among services, by use.

    Parameters
    ----------
    device
        Name of the network device.
    bits_per_s
        What it can send.
    groups
        Directory of the v2 group by service.
    journal
        Remembers the qdisc.

    Raises
    ------
    LimitError
        If there is no HTB, the device has a root qdisc of somebody else's, or eBPF is not
        allowed; the message says which.
    """

    def __init__(
        self, device: str, bits_per_s: float, groups: Mapping[str, str], journal: Journal
    ) -> None:
        self._device = device
        self._unit_bits = bits_per_s / UNITS
        self._classes = {name: _FIRST + index for index, name in enumerate(groups)}
        each = max(1, UNITS // len(groups))
        self._shares = dict.fromkeys(groups, each)
        self._sent: dict[str, int] = {}
        owner = root_handle(device)
        if owner != 0:
            raise LimitError(f"{device}: has a root qdisc {owner:x}: that is not ours; left alone")
        # First what may be refused and leaves nothing, then what the journal must know.
        self._links = [self._mark(groups[name], minor) for name, minor in self._classes.items()]
        journal.record_qdisc(device)
        self._make(bits_per_s)

    def adjust(self, interval_s: float) -> None:
        """Adjust to what was sent in the last interval; raises :class:`LimitError`."""
        sent = self._bytes_sent()
        used = {
            name: (count - self._sent[name]) * 8 / interval_s / self._unit_bits
            for name, count in sent.items()
            if name in self._sent
        }
        self._sent = sent
        before, self._shares = self._shares, adjust(self._shares, used)
        for name, units in self._shares.items():
            if units != before[name]:
                self._class("change", name, units)

    def close(self) -> None:
        """Mark no more packets; the qdisc is the journal's to remove."""
        while self._links:
            os.close(self._links.pop())

    def _mark(self, directory: str, minor: int) -> int:
        priority = HANDLE << 16 | minor
        program = [
            bpf.mov(bpf.R2, priority),
            bpf.store(bpf.R1, _PRIORITY_OFFSET, bpf.R2, size=4),
            bpf.mov(bpf.R0, 1),
            bpf.LEAVE,
        ]
        try:
            return bpf.attach_to_cgroup(
                bpf.load_program(bpf.CGROUP_SKB, program), directory, bpf.EGRESS
            )
        except bpf.BpfError as error:
            raise LimitError(f"egress is not divided: {error}") from error

    def _make(self, bits_per_s: float) -> None:
        base, all_bits = ("dev", self._device), f"{bits_per_s:.0f}bit"
        tc(
            "qdisc",
            "add",
            *base,
            "root",
            "handle",
            f"{HANDLE:x}:",
            "htb",
            "default",
            f"{_OTHERS:x}",
        )
        top = f"{HANDLE:x}:{_ROOT:x}"
        tc(
            *("class", "add", *base, "parent", f"{HANDLE:x}:", "classid", top),
            *("htb", "rate", all_bits, "ceil", all_bits),
        )
        # What belongs to no service (ssh, this agent) is never shut out.
        tc(
            *("class", "add", *base, "parent", top, "classid", f"{HANDLE:x}:{_OTHERS:x}"),
            *("htb", "rate", f"{self._unit_bits:.0f}bit", "ceil", all_bits),
        )
        for name, units in self._shares.items():
            self._class("add", name, units)

    def _class(self, verb: str, name: str, units: int) -> None:
        rate = f"{units * self._unit_bits:.0f}bit"
        tc(
            *("class", verb, "dev", self._device, "parent", f"{HANDLE:x}:{_ROOT:x}"),
            *("classid", f"{HANDLE:x}:{self._classes[name]:x}", "htb", "rate", rate, "ceil", rate),
        )

    def _bytes_sent(self) -> dict[str, int]:
        sent = parse_classes(tc("-s", "class", "show", "dev", self._device))
        try:
            return {n: sent[f"{HANDLE:x}:{minor:x}"] for n, minor in self._classes.items()}
        except KeyError as error:
            raise LimitError(f"{self._device}: tc shows no class {error.args[0]}") from error


def parse_classes(text: str) -> dict[str, int]:
    r"""Return bytes sent by class from ``tc -s class show``, whose JSON older versions lack.

    Examples
    --------
    >>> parse_classes("class htb d1a1:10 parent d1a1:1 prio 0\n Sent 42 bytes 1 pkt (dropped 0")
    {'d1a1:10': 42}
    """
    sent: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["class"] and len(words) > 2:
            name = words[2]
        elif words[:1] == ["Sent"] and len(words) > 1 and words[1].isdigit() and name:
            sent[name] = int(words[1])
    return sent
