"""The domain of a process, and a pBox.

A pBox is bound to a thread only while an activity of it runs there.  The library would leave it
with the thread that ran it last, where no other could use it, and would not go back to the outer
one of two activities; so each is filed under a number of its own when it is made, detached when
its activity has ended, and the outer one is bound again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dial_pbox.library import (
    Bind,
    Event,
    Metric,
    Mode,
    Options,
    PBoxError,
    RawStats,
    Rule,
    Unbind,
    checked,
    library,
)

GOAL_PERCENT = 50
"""Interference that is tolerated unless told otherwise, as in the paper's evaluation (6.2)."""

_FILED = 0x7079_0000 << 32
"""The numbers that pBoxes are filed under begin with "py", as keys do, and end with the psid."""


@dataclass(slots=True)
class _Process:
    """How many domains this process has left behind: a psid is good in one of them."""

    domains: int = 0

    def leave_domain(self) -> None:
        """All psids are void from now on."""
        self.domains += 1


class _Thread(threading.local):
    """What a thread runs: the innermost of its activities."""

    box: PBox | None = None


_process = _Process()
_thread = _Thread()
# A child has none of its parent's pBoxes, and will have its own with the same numbers.
os.register_at_fork(after_in_child=_process.leave_domain)


def open_domain(
    *,
    mode: Mode = Mode.MITIGATE,
    page: str | Path | None = None,
    shared_as: str | None = None,
    max_pboxes: int = 0,
    max_keys: int = 0,
) -> None:
    """Open this process's domain; without it the first pBox opens one with the defaults.

    Parameters
    ----------
    mode
        Whether noisy activities are delayed.
    page
        Path of the statistics page (``%p`` is the process id), "" for none; by default
        ``$PBOX_PAGE`` or /dev/shm/pbox-PID.page.
    shared_as
        Name of a domain that several processes share.
    max_pboxes, max_keys
        Sizes of its tables; 0 for the library's.

    Raises
    ------
    LibraryMissing
        If libpbox is not installed.
    PBoxError
        If a domain is open already, or memory cannot be mapped.
    """
    options = Options(
        size=ctypes.sizeof(Options),
        mode=mode,
        domain=None if shared_as is None else shared_as.encode(),
        page=None if page is None else str(page).encode(),
        max_pboxes=max_pboxes,
        max_keys=max_keys,
    )
    checked(library().open_pbox(ctypes.byref(options)), "open_pbox")


def close_domain() -> None:
    """End the domain and remove its page.  No other thread may be in the library meanwhile."""
    library().close_pbox()
    _process.leave_domain()


def page_path() -> Path | None:
    """Where the statistics page is, if there is one."""
    path = library().pbox_page_path()
    return None if path is None else Path(path.decode())


@dataclass(frozen=True, slots=True)
class Stats:
    """What a pBox did; times in seconds, over activities that have ended."""

    activities: int
    executed_s: float
    deferred_s: float
    times_victim: int
    times_noisy: int
    penalties: int
    penalty_s: float
    events_ignored: int
    level: float
    """T_f by the rule's metric over recent activities; -1 before the first."""


class PBox:
    """A pBox: any thread may run activities of it, one at a time.

    Parameters
    ----------
    name
        For people who read the page; at most 23 bytes are kept.
    goal_percent
        Interference that is tolerated, percent of the time without it.
    metric
        Which figure of recent activities is held against the goal.

    Raises
    ------
    PBoxError
        If the domain has no room (``ENOSPC``), or a value is out of range (``EINVAL``).

    Attributes
    ----------
    running
        Whether an activity of it is in progress.
    """

    def __init__(
        self, name: str = "", goal_percent: int = GOAL_PERCENT, metric: Metric = Metric.AVERAGE
    ) -> None:
        rule = Rule(type=0, metric=metric, isolation_level=goal_percent)
        self.running = False
        self._domain = _process.domains
        self._psid = checked(library().create_pbox(rule), "create_pbox")
        if name:
            library().name_pbox(self.psid, name.encode())
        self._detach()

    @property
    def psid(self) -> int:
        """Its number; 0, which is nobody's, after the end of its domain and in a forked child."""
        return self._psid if self._domain == _process.domains else 0

    def __enter__(self) -> PBox:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """End it, whatever state it is in; a second time does nothing.

        Raises
        ------
        PBoxError
            If an activity of it runs on another thread.
        """
        answer = library().release_pbox(self.psid)
        if answer != -errno.ENOENT:
            checked(answer, "release_pbox")
        _bind_again()

    @contextmanager
    def activity(self) -> Iterator[PBox]:
        """One activity, on this thread: T_e is what passes within.

        Raises
        ------
        PBoxError
            If an activity of it runs on another thread, or it was released; at the end, if that
            is not on the thread of the beginning.
        """
        outer = _thread.box
        self.begin(Bind.DEDICATED)
        _thread.box = self
        try:
            yield self
        finally:
            if _thread.box is not self:
                raise PBoxError(errno.EBUSY, "an activity ends on the thread that it began on")
            _thread.box = outer
            self.end()

    def begin(self, bind: Bind) -> None:
        """Begin an activity; raises as :meth:`activity`.

        Parameters
        ----------
        bind
            Dedicated: this thread is its own until :meth:`end`.  Shared: the thread goes on to
            something else, and what happens to the activity is told by :meth:`update`.
        """
        checked(library().bind_pbox(self._filed_under, bind), "bind_pbox")
        checked(library().activate_pbox(self.psid), "activate_pbox")
        self.running = True
        if bind is Bind.SHARED:
            self._detach()

    def end(self) -> None:
        """End the activity, if the pBox still is."""
        self.running = False
        if library().freeze_pbox(self.psid) in (0, -errno.EALREADY):
            self._detach()
        else:
            _bind_again()

    def update(self, key: int, event: Event) -> None:
        """Tell an event; one that is out of order is counted by the library and ignored."""
        if _thread.box is self:
            library().update_pbox(key, event)
        else:  # a coroutine's
            library().update_pbox_of(self.psid, key, event)

    @property
    def penalty_s(self) -> float:
        """For how long an activity of it should not begin; 0 when it may."""
        left_ns: int = library().penalty_pbox(self.psid)
        return max(0, left_ns) / 1e9

    def stats(self) -> Stats:
        """What it did.

        Raises
        ------
        PBoxError
            If it was released.
        """
        raw = RawStats()
        checked(library().stat_pbox(self.psid, ctypes.byref(raw)), "stat_pbox")
        return Stats(
            activities=raw.activities,
            executed_s=raw.executed_ns / 1e9,
            deferred_s=raw.deferred_ns / 1e9,
            times_victim=raw.times_victim,
            times_noisy=raw.times_noisy,
            penalties=raw.penalties,
            penalty_s=raw.penalty_ns / 1e9,
            events_ignored=raw.events_ignored,
            level=raw.level,
        )

    @property
    def _filed_under(self) -> int:
        return _FILED | self.psid

    def _detach(self) -> None:
        """Take it from this thread, whose own it must be now."""
        library().unbind_pbox(self._filed_under, Unbind.LAZY)
        _bind_again()


def _bind_again() -> None:
    """Go back to what the thread runs, if it runs an activity."""
    if _thread.box is not None:
        library().bind_pbox(_thread.box._filed_under, Bind.DEDICATED)
