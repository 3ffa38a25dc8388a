"""The statistics page of a program with pBoxes: what its bytes say, and whether to believe them.

docs/pbox-page.md is the contract and has every reason; this is the reader's side of it.  A page
is a file that somebody else writes while it is read, in a directory where anybody may write, by
a program that may have crashed half-way or be of another version.  So nothing is mapped (a
mapping beyond the end of a truncated file kills its reader), nothing is taken from the layout
that the header can say, and a page that fails one check is refused as a whole, with the check's
name; a slot that cannot be read in one piece is left out alone.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from dial.agent.files import Unavailable, Vanished

MAGIC = b"PBOXPAGE"
MAJOR = 1
BYTE_ORDER = 0x01020304
LIVE = 1
SHARED = 4
"""Flag of the header: several processes write."""

_HEADER = struct.Struct("=8sHHIIIQIIQQIIIIIIIII")
_HEADER_BYTES = 192
_SLOT = struct.Struct("=IIIIQIIddQQQQQQQQQQ")
_SEQ = struct.Struct("=I")
_SLOT_BYTES = 192
_ENDED = struct.Struct("=QQQQQQQ")
_ENDED_AT = 192
_COUNTING_SLOT_BYTES = 256
"""Since 1.1 a slot goes on with what those did that had its place before."""
_KEY = struct.Struct("=QQQQII24s")
_KEY_BYTES = 64
_FREE = bytes(8)
"""A key of 0.  Most places are: looked at first, a page of 1024 is read in a fifth of the time."""
_MOST_SLOTS = 65_535
_MOST_KEYS = 65_536
_MOST_STRIDE = 1_024
"""Four times what a slot has now: a later minor version may append to it."""

_CLOCK_MONOTONIC = 1

_TRIES = 20
"""To read a slot that is being written.  Each takes 3 us; its writer needs 0.1 us, a few
thousand times a second at most."""

_STATES = {0: "it is being made", 2: "its program has ended"}


class Header(NamedTuple):
    """The head of a page, in the order of the layout."""

    magic: bytes
    major: int
    minor: int
    byte_order: int
    header_bytes: int
    state: int
    page_bytes: int
    pid: int
    uid: int
    start_ticks: int
    created_unix_ns: int
    flags: int
    clock_id: int
    slot_offset: int
    slot_count: int
    slot_stride: int
    slot_used: int
    key_offset: int
    key_count: int
    key_stride: int


class Ended(NamedTuple):
    """What pBoxes did that have ended, in the order of the layout."""

    pboxes: int = 0
    activities: int = 0
    executed_ns: int = 0
    deferred_ns: int = 0
    times_victim: int = 0
    times_noisy: int = 0
    penalties: int = 0


class Slot(NamedTuple):
    """A place and the pBox that has it, in the order of the layout."""

    seq: int
    psid: int
    pid: int
    tid: int
    start_ticks: int
    state: int
    metric: int
    goal: float
    level: float
    activities: int
    executed_ns: int
    deferred_ns: int
    activity_start_ns: int
    activity_deferred_ns: int
    wait_since_ns: int
    wait_key: int
    times_victim: int
    times_noisy: int
    penalties: int
    ended: Ended | None
    """Of those before it; ``None``: the page does not say (version 1.0)."""

    def times_ns(self, now_ns: int) -> tuple[int, int]:
        """T_e and T_d of this place at an instant, activity and wait in progress included."""
        ended = self.ended or Ended()
        executed_ns = ended.executed_ns + self.executed_ns
        deferred_ns = ended.deferred_ns + self.deferred_ns
        if self.activity_start_ns:
            executed_ns += max(0, now_ns - self.activity_start_ns)
            deferred_ns += self.activity_deferred_ns + self.waiting_ns(now_ns)
        return executed_ns, deferred_ns

    def waiting_ns(self, now_ns: int) -> int:
        """How long the wait in progress has lasted; 0 without one."""
        return max(0, now_ns - self.wait_since_ns) if self.wait_since_ns else 0


class Key(NamedTuple):
    """One virtual resource, in the order of the layout."""

    key: int
    deferred_ns: int
    waits: int
    noisy: int
    kind: int
    not_counted: int
    raw_name: bytes

    @property
    def name(self) -> str:
        """As the program named it, else its number."""
        given = self.raw_name.partition(b"\0")[0].decode("utf-8", "replace")
        return given or f"{self.key:#x}"


@dataclass(frozen=True, slots=True)
class Page:
    """One reading of a page.

    Attributes
    ----------
    header
        Checked.
    slots
        By index, those in use and those where pBoxes have ended.
    keys
        Those in use.
    left_out
        Indices of slots that could not be read in one piece.
    """

    header: Header
    slots: Mapping[int, Slot]
    keys: tuple[Key, ...]
    left_out: frozenset[int]


def read_page(path: str, owners: Collection[int]) -> Page:
    """Read a page, if it is to be believed.

    Parameters
    ----------
    path
        Of the file.
    owners
        User ids whose pages are believed.

    Raises
    ------
    Vanished
        If there is no such file.
    Unavailable
        Naming the check that failed.
    """
    with _opened(path) as descriptor:
        try:
            header = _checked(path, descriptor, owners)
            return _tables(descriptor, header, path)
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error


@contextmanager
def _opened(path: str) -> Iterator[int]:
    # Without O_NONBLOCK a pipe of that name would hold the agent for ever.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError as error:
        raise Vanished(f"{path}: not there") from error
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(path: str, descriptor: int, owners: Collection[int]) -> Header:
    """Check everything that can be checked before the figures are looked at."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Unavailable(f"{path}: not a regular file")
    if status.st_uid not in owners:
        allowed = ", ".join(map(str, sorted(owners)))
        raise Unavailable(f"{path}: owned by user {status.st_uid}; believed are those of {allowed}")
    head = os.pread(descriptor, _HEADER_BYTES, 0)
    if len(head) < _HEADER_BYTES:
        raise Unavailable(f"{path}: {len(head)} bytes are no page")
    header = parse_header(head, status.st_size, path)
    if header.uid != status.st_uid:
        raise Unavailable(f"{path}: made by user {header.uid}, but owned by {status.st_uid}")
    if not _written(descriptor):
        raise Unavailable(f"{path}: its program has crashed: nobody holds the page's lock")
    return header


def parse_header(head: bytes, file_bytes: int, path: str) -> Header:
    """Take a page's head apart.

    Parameters
    ----------
    head
        Its first 192 bytes.
    file_bytes
        Size of the file.
    path
        For messages.

    Raises
    ------
    Unavailable
        If it is no page, of another version, not live, or points beyond the file's end.
    """
    header = Header._make(_HEADER.unpack_from(head))
    if header.magic != MAGIC:
        raise Unavailable(f"{path}: not a statistics page")
    if header.byte_order != BYTE_ORDER:
        raise Unavailable(f"{path}: of a machine with another byte order")
    if header.major != MAJOR:
        raise Unavailable(f"{path}: version {header.major}; this agent reads version {MAJOR}")
    if header.state != LIVE:
        raise Unavailable(f"{path}: {_STATES.get(header.state, f'in state {header.state}')}")
    slots_end = header.slot_offset + header.slot_count * header.slot_stride
    keys_end = header.key_offset + header.key_count * header.key_stride
    sound = (
        header.page_bytes == file_bytes
        and header.clock_id == _CLOCK_MONOTONIC
        and header.header_bytes >= _HEADER_BYTES
        and _SLOT_BYTES <= header.slot_stride <= _MOST_STRIDE
        and _KEY_BYTES <= header.key_stride <= _MOST_STRIDE
        and header.slot_used <= header.slot_count <= _MOST_SLOTS
        and header.key_count <= _MOST_KEYS
        and header.header_bytes <= header.slot_offset
        and header.header_bytes <= header.key_offset
        and max(slots_end, keys_end) <= file_bytes
    )
    if not sound:
        raise Unavailable(f"{path}: damaged: its tables do not fit into its {file_bytes} bytes")
    return header


def _written(descriptor: int) -> bool:
    """Whether a process lives that writes the page: each holds a shared lock on it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _tables(descriptor: int, header: Header, path: str) -> Page:
    offset, stride = header.slot_offset, header.slot_stride
    size = header.slot_used * stride
    # Twice: what is alike in both was not being written, in whatever order the bytes came.
    first, second = os.pread(descriptor, size, offset), os.pread(descriptor, size, offset)
    slots: dict[int, Slot] = {}
    left_out = set()
    slot_bytes = _COUNTING_SLOT_BYTES if stride >= _COUNTING_SLOT_BYTES else _SLOT_BYTES
    for index in range(header.slot_used):
        at = index * stride
        raw = first[at : at + slot_bytes]
        if raw != second[at : at + slot_bytes] or not _at_rest(raw, slot_bytes):
            raw = _again(descriptor, offset + at, slot_bytes)
        if not raw:
            left_out.add(index)
            continue
        slot = _slot(raw)
        if slot.psid or (slot.ended and slot.ended.pboxes):
            slots[index] = slot
    size = header.key_count * header.key_stride
    table = os.pread(descriptor, size, header.key_offset)
    if len(table) < size:
        raise Unavailable(f"{path}: cut short while it was read")
    keys = tuple(
        Key._make(_KEY.unpack_from(table, at))
        for at in range(0, size, header.key_stride)
        if table[at : at + 8] != _FREE
    )
    return Page(header, slots, keys, frozenset(left_out))


def _slot(raw: bytes) -> Slot:
    counts = len(raw) >= _COUNTING_SLOT_BYTES
    ended = Ended._make(_ENDED.unpack_from(raw, _ENDED_AT)) if counts else None
    return Slot._make((*_SLOT.unpack_from(raw), ended))


def _again(descriptor: int, at: int, size: int) -> bytes:
    """One slot as soon as it is the same twice; nothing if its writer never comes to rest."""
    for _ in range(_TRIES):
        raw = os.pread(descriptor, size, at)
        if raw == os.pread(descriptor, size, at) and _at_rest(raw, size):
            return raw
    return b""


def _at_rest(raw: bytes, size: int) -> bool:
    """Whether nobody is writing the slot; whoever died within leaves its number odd for ever."""
    return len(raw) == size and not _SEQ.unpack_from(raw)[0] & 1
