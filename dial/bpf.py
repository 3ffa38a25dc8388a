"""eBPF without a compiler or a library: programs of a dozen instructions, by system call.

The agent imports the standard library alone, and what it needs of eBPF is small: count the
packets of a cgroup, time a softirq, mark a packet with its class.  So the instructions are
written out, and the kernel's verifier says whether they are right.

Everything made here is a file descriptor.  The kernel detaches a program whose link is closed,
so nothing stays behind a process that is killed.

Source: ``include/uapi/linux/bpf.h``; Documentation/bpf/standardization/instruction-set.rst.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dial.errors import DialError

SCHED_CLS, XDP, CGROUP_SKB, RAW_TRACEPOINT = 3, 6, 8, 17
"""Kinds of programs."""

INGRESS, EGRESS = 0, 1
"""Where a ``CGROUP_SKB`` program is attached."""

_XDP, _TCX_INGRESS = 37, 46
_DRIVER_MODE = 4

HASH, ARRAY, PER_CPU_HASH, PER_CPU_ARRAY = 1, 2, 5, 6
"""Kinds of maps."""

_MAP_CREATE, _LOOKUP, _UPDATE, _PROG_LOAD = 0, 1, 2, 5
_RAW_TRACEPOINT_OPEN, _LINK_CREATE = 17, 28

_SYSCALLS = {"x86_64": 321, "aarch64": 280}
_ATTR_BYTES = 144
_LOG_BYTES = 65_536

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FP = range(11)


class BpfError(DialError):
    """eBPF cannot be used here; the message says which step the kernel refused and why."""


def _syscall(command: int, attr: bytes, what: str, log: ctypes.Array[ctypes.c_char] | None) -> int:
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise BpfError(f"{what}: the number of bpf(2) on {platform.machine()} is not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attr.ljust(_ATTR_BYTES, b"\0"), _ATTR_BYTES)
    result: int = libc.syscall(number, command, buffer, _ATTR_BYTES)
    if result >= 0:
        return result
    code = ctypes.get_errno()
    lines = log.value.decode("ascii", "replace").strip().splitlines() if log is not None else []
    said = f": {lines[-1]}" if lines else ""
    raise BpfError(f"{what}: {os.strerror(code)}{said}")


# ---------------------------------------------------------------- instructions


def _insn(op: int, dst: int = 0, src: int = 0, off: int = 0, imm: int = 0) -> bytes:
    return struct.pack("<BBhI", op, dst | src << 4, off, imm & 0xFFFF_FFFF)


def mov(dst: int, value: int) -> bytes:
    """``dst = value``, 32 bits, the upper half zero."""
    return _insn(0xB4, dst, imm=value)


def copy(dst: int, src: int) -> bytes:
    """``dst = src``."""
    return _insn(0xBF, dst, src)


def add(dst: int, value: int) -> bytes:
    """``dst += value``."""
    return _insn(0x07, dst, imm=value)


def plus(dst: int, src: int) -> bytes:
    """``dst += src``."""
    return _insn(0x0F, dst, src)


def subtract(dst: int, src: int) -> bytes:
    """``dst -= src``."""
    return _insn(0x1F, dst, src)


def load(dst: int, src: int, off: int, size: int = 8) -> bytes:
    """``dst = *(src + off)`` of 1, 2, 4 or 8 bytes."""
    return _insn({1: 0x71, 2: 0x69, 4: 0x61, 8: 0x79}[size], dst, src, off)


def store(dst: int, off: int, src: int, size: int = 8) -> bytes:
    """``*(dst + off) = src`` of 4 or 8 bytes."""
    return _insn({4: 0x63, 8: 0x7B}[size], dst, src, off)


def atomic_add(dst: int, off: int, src: int) -> bytes:
    """``*(dst + off) += src``, 8 bytes, atomically."""
    return _insn(0xDB, dst, src, off)


def skip_if(dst: int, value: int, instructions: int, *, equal: bool = True) -> bytes:
    """Skip so many 8-byte instructions if ``dst`` is (not) ``value``; a map counts two."""
    return _insn(0x15 if equal else 0x55, dst, off=instructions, imm=value)


def skip_if_more(dst: int, src: int, instructions: int) -> bytes:
    """Skip so many 8-byte instructions if ``dst > src``."""
    return _insn(0x2D, dst, src, instructions)


def map_address(dst: int, descriptor: int) -> bytes:
    """``dst`` = the map; two instructions."""
    return _insn(0x18, dst, 1, imm=descriptor) + _insn(0)


def call(helper: int) -> bytes:
    """Call a helper: 1 is lookup, 5 is the clock in ns."""
    return _insn(0x85, imm=helper)


LOOKUP, CLOCK_NS = 1, 5

LEAVE = _insn(0x95)
"""Return ``r0``."""


# ---------------------------------------------------------------- what they make


@dataclass(frozen=True, slots=True)
class Map:
    """A map of 4-byte keys."""

    descriptor: int
    value_bytes: int

    def values(self, key: int) -> tuple[int, ...]:
        """The 64-bit numbers at ``key``; of a per-CPU map, those of all CPUs one after another.

        Raises
        ------
        BpfError
            If there is nothing at that key.
        """
        size = self.value_bytes
        keys = ctypes.create_string_buffer(struct.pack("<I", key), 4)
        found = ctypes.create_string_buffer(size)
        attr = struct.pack(
            "<IIQQQ", self.descriptor, 0, ctypes.addressof(keys), ctypes.addressof(found), 0
        )
        _syscall(_LOOKUP, attr, "reading a map", None)
        return struct.unpack(f"<{size // 8}Q", found.raw)

    def put(self, key: int, numbers: Sequence[int]) -> None:
        """Set the numbers at ``key``, of a per-CPU map all CPUs'; raises :class:`BpfError`."""
        keys = ctypes.create_string_buffer(struct.pack("<I", key), 4)
        given = ctypes.create_string_buffer(struct.pack(f"<{len(numbers)}Q", *numbers))
        attr = struct.pack(
            "<IIQQQ", self.descriptor, 0, ctypes.addressof(keys), ctypes.addressof(given), 0
        )
        _syscall(_UPDATE, attr, "writing a map", None)

    def close(self) -> None:
        """Give back the descriptor; programs that use the map keep it alive."""
        os.close(self.descriptor)


def create_map(kind: int, numbers: int, entries: int) -> Map:
    """Make a map of 4-byte keys whose values are some 64-bit numbers.

    Raises
    ------
    BpfError
        If the kernel refuses: not allowed, or no memory.
    """
    attr = struct.pack("<IIII", kind, 4, 8 * numbers, entries)
    descriptor = _syscall(_MAP_CREATE, attr, "making a map", None)
    cpus = _possible_cpus() if kind in (PER_CPU_ARRAY, PER_CPU_HASH) else 1
    return Map(descriptor, 8 * numbers * cpus)


def load_program(kind: int, instructions: Sequence[bytes]) -> int:
    """Load a program; returns its descriptor.

    Raises
    ------
    BpfError
        If the kernel or its verifier refuses.
    """
    code = ctypes.create_string_buffer(b"".join(instructions))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    log = ctypes.create_string_buffer(_LOG_BYTES)
    count = sum(len(part) for part in instructions) // 8
    attr = struct.pack(
        "<IIQQIIQ",
        *(kind, count, ctypes.addressof(code), ctypes.addressof(licence)),
        *(1, _LOG_BYTES, ctypes.addressof(log)),
    )
    return _syscall(_PROG_LOAD, attr, "loading a program", log)


def attach_to_cgroup(program: int, directory: str, where: int) -> int:
    """Run a ``CGROUP_SKB`` program for a v2 group and those below; returns the link.

    Raises
    ------
    BpfError
        If there is no such group, or the kernel (before 5.7) knows no such links.
    """
    try:
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BpfError(f"{directory}: {error.strerror}") from error
    try:
        attr = struct.pack("<IIII", program, group, where, 0)
        return _syscall(_LINK_CREATE, attr, f"attaching to {directory}", None)
    finally:
        os.close(group)


def attach_to_device(kind: int, program: int, device: str) -> int:
    """Run an ``XDP`` or ``SCHED_CLS`` program for what a device receives; returns the link.

    Raises
    ------
    BpfError
        If there is no such device, its driver has no XDP (or somebody else's is there), or the
        kernel (before 6.6 for ``SCHED_CLS``) knows no such links.
    """
    try:
        index = socket.if_nametoindex(device)
    except OSError as error:
        raise BpfError(f"{device}: {error.strerror}") from error
    where, flags = (_XDP, _DRIVER_MODE) if kind == XDP else (_TCX_INGRESS, 0)
    attr = struct.pack("<IIII", program, index, where, flags)
    return _syscall(_LINK_CREATE, attr, f"attaching to {device}", None)


def attach_to_tracepoint(program: int, name: str) -> int:
    """Run a ``RAW_TRACEPOINT`` program at a tracepoint; returns the link.

    Raises
    ------
    BpfError
        If the kernel has no such tracepoint.
    """
    text = ctypes.create_string_buffer(name.encode("ascii"))
    attr = struct.pack("<QI", ctypes.addressof(text), program)
    return _syscall(_RAW_TRACEPOINT_OPEN, attr, f"attaching to {name}", None)


def _possible_cpus() -> int:
    with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:  # noqa: PTH123
        text = file.read().strip()
    last = text.split(",")[-1].split("-")[-1]
    return int(last) + 1
