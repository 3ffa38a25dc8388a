"""Drops the packets of a service that is in debt, before they cost anything.

A throttled service goes on receiving, and its packets go on costing others (Iron, 3.2).  Iron
stops polling the queue of the NIC; at user level the first place is the ingress of the device,
where a program looks at the destination port alone (``BPF_PROG_TYPE_SCHED_CLS``, Linux 6.6): a
packet that is dropped there has not been through IP, UDP or TCP, nor woken anybody.

IPv4 without options only.  What cannot be read is never dropped, and nothing is when the process
has gone: the kernel detaches the program with it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence

from dial import bpf

_DATA, _DATA_END = 76, 80
"""Offsets in ``struct __sk_buff``."""

_ETHERTYPE, _VERSION_AND_LENGTH, _PORT, _HEADERS = 12, 14, 36, 38
"""Offsets in a frame: Ethernet 14 bytes, IPv4 20, then the destination port in bytes 2 and 3."""

_IPV4, _NO_OPTIONS = 0x0800, 0x45
_NEXT, _DROP = -1, 2
"""``TCX_NEXT`` leaves the packet to whoever else looks; ``TCX_DROP``."""


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
        program = bpf.load_program(bpf.SCHED_CLS, self._program())
        try:
            self._link = bpf.attach_to_device(program, device)
        finally:
            os.close(program)

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

    def _program(self) -> list[bytes]:
        drop = [
            bpf.mov(bpf.R1, 1),
            bpf.atomic_add(bpf.R0, 8, bpf.R1),
            bpf.mov(bpf.R0, _DROP),
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
            bpf.load(bpf.R7, bpf.R1, _DATA, size=4),
            bpf.load(bpf.R8, bpf.R1, _DATA_END, size=4),
            bpf.copy(bpf.R2, bpf.R7),
            bpf.add(bpf.R2, _HEADERS),
            bpf.skip_if_more(bpf.R2, bpf.R8, rest + 4),
            bpf.load(bpf.R2, bpf.R7, _ETHERTYPE, size=2),
            bpf.skip_if(bpf.R2, socket.htons(_IPV4), rest + 2, equal=False),
            bpf.load(bpf.R2, bpf.R7, _VERSION_AND_LENGTH, size=1),
            bpf.skip_if(bpf.R2, _NO_OPTIONS, rest, equal=False),
            *look_up,
            bpf.mov(bpf.R0, _NEXT),
            bpf.LEAVE,
        ]
