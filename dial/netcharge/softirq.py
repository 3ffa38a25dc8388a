"""Softirq time of the network, by whose packets it was and in whose context: with eBPF.

Three counters, kept in the kernel:

* how long the two network softirqs took (tracepoints ``softirq_entry`` and ``softirq_exit``);
* of that, how long and how often in the context of each group's threads, whose accounts show it;
* how many packets each group received and sent (a program at its v2 group, and one at the root
  of the hierarchy for all there are).

A group's cost is its part of the packets: received ones of the receiving softirq's time, sent
ones of the sending one's.  Iron times each packet inside the kernel; here a group whose packets
cost more than others' is charged the mean of all in that interval.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dial import bpf

_NET_TX, _NET_RX = 2, 3
"""Numbers of the two softirqs (include/linux/interrupt.h)."""

_CURRENT_CGROUP_ID = 80
_ALL = 0
"""Index of the root's packets."""


@dataclass(frozen=True, slots=True)
class Packets:
    """Counts since the beginning."""

    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class Counts:
    """One reading of all counters.

    Attributes
    ----------
    receiving_ns, sending_ns
        Time in the two softirqs, on all CPUs.
    context_ns
        Of both, in the context of each group.
    packets
        By group.
    all_packets
        Of every group of the machine.
    timed_ns, runs
        Of both softirqs, by CPU: time, and how often one ran.
    interruptions
        How often one ran in the context of each group, by CPU.
    """

    receiving_ns: int
    sending_ns: int
    context_ns: Mapping[str, int]
    packets: Mapping[str, Packets]
    all_packets: Packets
    timed_ns: tuple[int, ...] = ()
    runs: tuple[int, ...] = ()
    interruptions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def cost_ns(before: Counts, after: Counts, group: str) -> float:
    """Return what the group's packets cost between two readings, wherever it was done.

    Examples
    --------
    A quarter of the packets received, in 8 ms of softirqs:

    >>> zero = Counts(0, 0, {"web": 0}, {"web": Packets(0, 0)}, Packets(0, 0))
    >>> cost_ns(zero, Counts(8_000_000, 0, {}, {"web": Packets(50, 9)}, Packets(200, 9)), "web")
    2000000.0
    """
    own, own_before = after.packets[group], before.packets[group]
    every, every_before = after.all_packets, before.all_packets
    sent = _part(own.sent - own_before.sent, every.sent - every_before.sent)
    receiving_ns = after.receiving_ns - before.receiving_ns
    sending_ns = after.sending_ns - before.sending_ns
    return receiving_ns * _received_part(before, after, group) + sending_ns * sent


def _received_part(before: Counts, after: Counts, group: str) -> float:
    return _part(
        after.packets[group].received - before.packets[group].received,
        after.all_packets.received - before.all_packets.received,
    )


def _part(own: int, all_of_them: int) -> float:
    return min(1.0, own / all_of_them) if all_of_them > 0 else 0.0


def charge_ns(
    before: Counts,
    after: Counts,
    group: str,
    *,
    context_is_accounted: bool,
    per_run_ns: Sequence[float] = (),
) -> float:
    """Return what the group's own accounts do not show of its cost: Iron's ``cpuusage``.

    Parameters
    ----------
    before, after
        Two readings.
    group
        Of whom.
    context_is_accounted
        Whether the kernel books softirqs to whom they interrupt (no IRQ_TIME_ACCOUNTING).
    per_run_ns
        What each softirq costs beyond what is timed, by CPU (:mod:`dial.netcharge.interrupts`).

    Returns
    -------
    float
        Negative if it worked more for others' packets than others for its own.
    """
    cost = cost_ns(before, after, group)
    if not context_is_accounted:
        return cost
    hidden = _hidden_ns(per_run_ns, before.runs, after.runs)
    shown = after.context_ns[group] - before.context_ns[group]
    interrupted = _hidden_ns(
        per_run_ns, before.interruptions.get(group, ()), after.interruptions.get(group, ())
    )
    return cost + _received_part(before, after, group) * hidden - shown - interrupted


def _hidden_ns(per_run_ns: Sequence[float], before: Sequence[int], after: Sequence[int]) -> float:
    """What softirqs cost beyond what is timed, by how often they ran on each CPU."""
    runs = zip(per_run_ns, before, after, strict=False)
    return sum(each * (now - past) for each, past, now in runs)


class Softirqs:
    """Counts until closed.

    Parameters
    ----------
    root
        Mount point of the v2 hierarchy; empty where none is mounted.
    groups
        Directory in it by group.

    Raises
    ------
    BpfError
        If eBPF is not allowed, or this kernel lacks a part of it.
    """

    def __init__(self, root: str, groups: Mapping[str, str]) -> None:
        if not root:
            raise bpf.BpfError("packets by cgroup need a v2 hierarchy, and none is mounted")
        self._names = tuple(groups)
        self._links: list[int] = []
        self._times = bpf.create_map(bpf.PER_CPU_ARRAY, 4, 1)  # since, receiving, sending, runs
        self._context = bpf.create_map(bpf.PER_CPU_HASH, 2, max(1, len(groups)))  # time, runs
        self._packets = bpf.create_map(bpf.ARRAY, 2, len(groups) + 1)
        self._ids = {}
        try:
            for name, directory in groups.items():
                # Its inode is the group's id; the lower half is unique on a machine.
                self._ids[name] = _inode(directory) & 0xFFFF_FFFF
                self._context.put(self._ids[name], [0] * (self._context.value_bytes // 8))
            for index, directory in enumerate((root, *groups.values())):
                for offset, where in ((0, bpf.INGRESS), (8, bpf.EGRESS)):
                    program = bpf.load_program(bpf.CGROUP_SKB, self._counting(index, offset))
                    self._links.append(bpf.attach_to_cgroup(program, directory, where))
                    os.close(program)
            for name, code in (
                ("softirq_exit", self._leaving()),
                ("softirq_entry", self._entering()),
            ):
                program = bpf.load_program(bpf.RAW_TRACEPOINT, code)
                self._links.append(bpf.attach_to_tracepoint(program, name))
                os.close(program)
        except bpf.BpfError:
            self.close()
            raise

    def read(self) -> Counts:
        """Read all counters; raises :class:`~dial.bpf.BpfError`."""
        times = self._times.values(0)
        packets = [Packets(*self._packets.values(i)) for i in range(len(self._names) + 1)]
        receiving_ns, sending_ns = times[1::4], times[2::4]
        context = {name: self._context.values(number) for name, number in self._ids.items()}
        return Counts(
            sum(receiving_ns),
            sum(sending_ns),
            {name: sum(found[::2]) for name, found in context.items()},
            dict(zip(self._names, packets[1:], strict=True)),
            packets[_ALL],
            tuple(map(sum, zip(receiving_ns, sending_ns, strict=True))),
            times[3::4],
            {name: found[1::2] for name, found in context.items()},
        )

    def close(self) -> None:
        """Detach everything."""
        while self._links:
            os.close(self._links.pop())
        for each in (self._times, self._context, self._packets):
            each.close()

    def _counting(self, index: int, offset: int) -> list[bytes]:
        """One more packet of the group; every packet may pass."""
        return [
            bpf.mov(bpf.R1, index),
            bpf.store(bpf.FP, -4, bpf.R1, size=4),
            bpf.copy(bpf.R2, bpf.FP),
            bpf.add(bpf.R2, -4),
            bpf.map_address(bpf.R1, self._packets.descriptor),
            bpf.call(bpf.LOOKUP),
            bpf.skip_if(bpf.R0, 0, 2),
            bpf.mov(bpf.R1, 1),
            bpf.atomic_add(bpf.R0, offset, bpf.R1),
            bpf.mov(bpf.R0, 1),
            bpf.LEAVE,
        ]

    def _own_times(self) -> list[bytes]:
        """R0 = this CPU's times; leaves if there are none, which the verifier wants to hear."""
        return [
            bpf.mov(bpf.R1, 0),
            bpf.store(bpf.FP, -4, bpf.R1, size=4),
            bpf.copy(bpf.R2, bpf.FP),
            bpf.add(bpf.R2, -4),
            bpf.map_address(bpf.R1, self._times.descriptor),
            bpf.call(bpf.LOOKUP),
            bpf.skip_if(bpf.R0, 0, 2, equal=False),
            bpf.mov(bpf.R0, 0),
            bpf.LEAVE,
        ]

    def _entering(self) -> list[bytes]:
        """Remember when a network softirq began on this CPU."""
        return [
            bpf.load(bpf.R6, bpf.R1, 0),  # which softirq
            bpf.skip_if(bpf.R6, _NET_TX, 3),
            bpf.skip_if(bpf.R6, _NET_RX, 2),
            bpf.mov(bpf.R0, 0),
            bpf.LEAVE,
            *self._own_times(),
            bpf.copy(bpf.R7, bpf.R0),
            bpf.call(bpf.CLOCK_NS),
            bpf.store(bpf.R7, 0, bpf.R0),
            bpf.mov(bpf.R0, 0),
            bpf.LEAVE,
        ]

    def _leaving(self) -> list[bytes]:
        """Add what it took to the softirq's time, and to that of the group it interrupted."""
        add_up = [
            bpf.skip_if(bpf.R6, _NET_RX, 3),
            bpf.load(bpf.R1, bpf.R7, 16),
            bpf.plus(bpf.R1, bpf.R8),
            bpf.store(bpf.R7, 16, bpf.R1),
            bpf.skip_if(bpf.R6, _NET_TX, 3),
            bpf.load(bpf.R1, bpf.R7, 8),
            bpf.plus(bpf.R1, bpf.R8),
            bpf.store(bpf.R7, 8, bpf.R1),
        ]
        return [
            bpf.load(bpf.R6, bpf.R1, 0),
            bpf.skip_if(bpf.R6, _NET_TX, 3),
            bpf.skip_if(bpf.R6, _NET_RX, 2),
            bpf.mov(bpf.R0, 0),
            bpf.LEAVE,
            *self._own_times(),
            bpf.copy(bpf.R7, bpf.R0),
            bpf.load(bpf.R9, bpf.R7, 0),
            # It began before we looked: not counted.
            bpf.skip_if(bpf.R9, 0, 2, equal=False),
            bpf.mov(bpf.R0, 0),
            bpf.LEAVE,
            bpf.call(bpf.CLOCK_NS),
            bpf.copy(bpf.R8, bpf.R0),
            bpf.subtract(bpf.R8, bpf.R9),
            *add_up,
            bpf.load(bpf.R1, bpf.R7, 24),
            bpf.add(bpf.R1, 1),
            bpf.store(bpf.R7, 24, bpf.R1),
            bpf.call(_CURRENT_CGROUP_ID),
            bpf.store(bpf.FP, -8, bpf.R0),
            bpf.copy(bpf.R2, bpf.FP),
            bpf.add(bpf.R2, -8),
            bpf.map_address(bpf.R1, self._context.descriptor),
            bpf.call(bpf.LOOKUP),
            bpf.skip_if(bpf.R0, 0, 3),
            bpf.atomic_add(bpf.R0, 0, bpf.R8),
            bpf.mov(bpf.R1, 1),
            bpf.atomic_add(bpf.R0, 8, bpf.R1),
            bpf.mov(bpf.R0, 0),
            bpf.LEAVE,
        ]


def _inode(directory: str) -> int:
    try:
        return Path(directory).stat().st_ino
    except OSError as error:
        raise bpf.BpfError(f"{directory}: {error.strerror}") from error
