"""Drops the packets of a service that is in debt, before they cost anything.

A throttled service goes on receiving, and its packets go on costing others (Iron, 3.2).  Iron
stops polling the queue of the NIC; at user level the first place is the driver itself (XDP, Linux
5.9), before a packet is steered to the core of those whom it would cost, and where the driver
has no XDP, the ingress of the device (``BPF_PROG_TYPE_SCHED_CLS``, Linux 6.6), before IP, UDP and
TCP.  A program there looks at the destination port alone.

IPv4 without options only.  What cannot be read is never dropped, and nothing is when the process
has gone: the kernel detaches the program with it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dial import bpf


@dataclass(frozen=True, slots=True)
class _Hook:
    """Where a program is attached: offsets of both ends of the packet, and what to return."""

    kind: int
    data: int
    data_end: int
    drop: int
    go_on: int


_HOOKS = (_Hook(bpf.XDP, 0, 4, drop=1, go_on=2), _Hook(bpf.SCHED_CLS, 76, 80, drop=2, go_on=-1))
"""``struct xdp_md`` and ``struct __sk_buff``; earliest first.  -1 is ``TCX_NEXT``."""

_ETHERTYPE, _VERSION_AND_LENGTH, _PORT, _HEADERS = 12, 14, 36, 38
"""Offsets in a frame: Ethernet 14 bytes, IPv4 20, then the destination port in bytes 2 and 3."""

_IPV4, _NO_OPTIONS = 0x0800, 0x45


class Ingress:
    """Drops at one device, by destination port.

    Parameters
    ----------
    device
        Name of the network device.
    ports
        Of each service.

    Raises
    ------
    BpfError
        If eBPF is not allowed, or this kernel is older.
    """

    def __init__(self, device: str, ports: Mapping[str, Sequence[int]]) -> None:
        self._ports = ports
        every = [port for own in ports.values() for port in own]
        self._state = bpf.create_map(bpf.HASH, 2, max(1, len(every)))  # closed, dropped
        for port in every:
            self._state.put(socket.htons(port), [0, 0])
        *early, last = _HOOKS
        for hook in early:
            try:
                self._link = self._attach(hook, device)
            except bpf.BpfError:
                continue
            return
        self._link = self._attach(last, device)

    def close_for(self, services: Iterable[str]) -> None:
        """Drop the packets of these services from now on, and of no others."""
        closed = set(services)
        for service, ports in self._ports.items():
            for port in ports:
                key = socket.htons(port)
                was, dropped = self._state.values(key)
                if was != (service in closed):
                    self._state.put(key, [service in closed, dropped])

    def dropped(self, service: str) -> int:
        """Packets of a service that were dropped so far."""
        return sum(self._state.values(socket.htons(port))[1] for port in self._ports[service])

    def close(self) -> None:
        """Drop nothing any more."""
        os.close(self._link)
        self._state.close()

    def _attach(self, hook: _Hook, device: str) -> int:
        program = bpf.load_program(hook.kind, self._program(hook))
        try:
            return bpf.attach_to_device(hook.kind, program, device)
        finally:
            os.close(program)

    def _program(self, hook: _Hook) -> list[bytes]:
        drop = [
            bpf.mov(bpf.R1, 1),
            bpf.atomic_add(bpf.R0, 8, bpf.R1),
            bpf.mov(bpf.R0, hook.drop),
            bpf.LEAVE,
        ]
        look_up = [
            bpf.load(bpf.R1, bpf.R7, _PORT, size=2),
            bpf.store(bpf.FP, -4, bpf.R1, size=4),
            bpf.copy(bpf.R2, bpf.FP),
            bpf.add(bpf.R2, -4),
            bpf.map_address(bpf.R1, self._state.descriptor),
            bpf.call(bpf.LOOKUP),
            bpf.skip_if(bpf.R0, 0, 2 + len(drop)),
            bpf.load(bpf.R1, bpf.R0, 0),
            bpf.skip_if(bpf.R1, 0, len(drop)),
            *drop,
        ]
        # The address of the map is two instructions in one.
        rest = len(look_up) + 1
        return [
            bpf.load(bpf.R7, bpf.R1, hook.data, size=4),
            bpf.load(bpf.R8, bpf.R1, hook.data_end, size=4),
            bpf.copy(bpf.R2, bpf.R7),
            bpf.add(bpf.R2, _HEADERS),
            bpf.skip_if_more(bpf.R2, bpf.R8, rest + 4),
            bpf.load(bpf.R2, bpf.R7, _ETHERTYPE, size=2),
            bpf.skip_if(bpf.R2, socket.htons(_IPV4), rest + 2, equal=False),
            bpf.load(bpf.R2, bpf.R7, _VERSION_AND_LENGTH, size=1),
            bpf.skip_if(bpf.R2, _NO_OPTIONS, rest, equal=False),
            *look_up,
            bpf.mov(bpf.R0, hook.go_on),
            bpf.LEAVE,
        ]
