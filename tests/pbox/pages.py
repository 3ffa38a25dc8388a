"""A statistics page written by hand, after docs/pbox-page.md."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HEADER_BYTES, SLOT_BYTES, KEY_BYTES = 192, 256, 64
SLOTS, KEYS = 4, 4
SLOT_OFFSET = HEADER_BYTES
KEY_OFFSET = SLOT_OFFSET + SLOTS * SLOT_BYTES
PAGE_BYTES = KEY_OFFSET + KEYS * KEY_BYTES

FIELDS = {
    "magic": (0, "8s"),
    "major": (8, "H"),
    "minor": (10, "H"),
    "byte_order": (12, "I"),
    "header_bytes": (16, "I"),
    "state": (20, "I"),
    "page_bytes": (24, "Q"),
    "pid": (32, "I"),
    "uid": (36, "I"),
    "created_unix_ns": (48, "Q"),
    "flags": (56, "I"),
    "clock_id": (60, "I"),
    "slot_offset": (64, "I"),
    "slot_count": (68, "I"),
    "slot_stride": (72, "I"),
    "slot_used": (76, "I"),
    "key_offset": (80, "I"),
    "key_count": (84, "I"),
    "key_stride": (88, "I"),
}
SLOT_FIELDS = {
    "seq": (0, "I"),
    "psid": (4, "I"),
    "pid": (8, "I"),
    "start_ticks": (16, "Q"),
    "state": (24, "I"),
    "executed_ns": (56, "Q"),
    "deferred_ns": (64, "Q"),
    "activity_start_ns": (72, "Q"),
    "activity_deferred_ns": (80, "Q"),
    "wait_since_ns": (88, "Q"),
    "wait_key": (96, "Q"),
    "times_noisy": (112, "Q"),
    "ended_pboxes": (192, "Q"),
    "ended_executed_ns": (208, "Q"),
    "ended_deferred_ns": (216, "Q"),
    "ended_times_noisy": (232, "Q"),
}
KEY_FIELDS = {
    "key": (0, "Q"),
    "deferred_ns": (8, "Q"),
    "not_counted": (36, "I"),
    "name": (40, "24s"),
}


class FakePage:
    """The bytes of a page with four places for pBoxes and four for keys."""

    def __init__(self, **header: int | bytes) -> None:
        self.data = bytearray(PAGE_BYTES)
        self.slot_bytes = int(header.get("slot_stride", SLOT_BYTES))
        usual: dict[str, int | bytes] = {
            "magic": b"PBOXPAGE",
            "major": 1,
            "minor": 1,
            "byte_order": 0x01020304,
            "header_bytes": HEADER_BYTES,
            "state": 1,
            "page_bytes": PAGE_BYTES,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "created_unix_ns": 1,
            "clock_id": 1,
            "slot_offset": SLOT_OFFSET,
            "slot_count": SLOTS,
            "slot_stride": SLOT_BYTES,
            "slot_used": SLOTS,
            "key_offset": KEY_OFFSET,
            "key_count": KEYS,
            "key_stride": KEY_BYTES,
        }
        self._put(FIELDS, 0, usual | header)

    def slot(self, index: int, **values: int) -> None:
        """Set fields of a pBox; its number is its place's, plus 1, unless given."""
        named = {"psid": index + 1, "pid": os.getpid()} | values
        self._put(SLOT_FIELDS, SLOT_OFFSET + index * self.slot_bytes, named)

    def key(self, index: int, **values: int | bytes) -> None:
        """Set fields of a virtual resource."""
        self._put(KEY_FIELDS, KEY_OFFSET + index * KEY_BYTES, values)

    def _put(self, layout: dict[str, tuple[int, str]], at: int, values: dict) -> None:
        for name, value in values.items():
            offset, kind = layout[name]
            struct.pack_into(f"={kind}", self.data, at + offset, value)


@contextmanager
def written(path: Path, page: FakePage) -> Iterator[None]:
    """Put the page there, as a program that lives."""
    path.write_bytes(page.data)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
