"""Parsers of what applications and databases say of themselves."""

from __future__ import annotations

import fcntl
import os

from dial.agent.files import Unavailable
from dial.pbox.deferral import Totals
from dial.pbox.page import read_page
from dial.pbox.postgres import WaitEvents

from .contract import file_of, refused


def statistics_page(data: bytes) -> bool:
    """A statistics page whose writer lives; whose it is, is the file's owner's word."""
    data = data[:36] + os.getuid().to_bytes(4, "little") + data[40:]
    with file_of(data) as path, path.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_SH)
        try:
            page = read_page(str(path), {os.getuid()})
        except Unavailable as error:
            return refused(error, str(path))
    for slot in page.slots.values():
        assert slot.psid or (slot.ended and slot.ended.pboxes)
        assert min(slot.times_ns(10**15)) >= 0
    assert all(key.name for key in page.keys)
    return True


def wait_events(data: bytes) -> bool:
    """A line of psql's: sessions by what they wait for, or something else that it says."""
    source = WaitEvents("dbname=app", lambda: 0.0)
    line = data.decode("utf-8", "replace").strip()
    if not source._look(line):
        assert source._totals == Totals()
        return False
    totals = source._totals
    assert 0.0 <= totals.deferred_s <= totals.active_s
    return True
