"""pBoxes for activities of a kind, used again: an activity a request, no pBox a request.

A pBox that lived for one request would be gone before anybody read its figures, and would not
know what a penalty did.  So there are as many of a kind as activities of it run at once, and each
begins where a like one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dial_pbox.pboxes import GOAL_PERCENT, PBox


class Pool:
    """Idle pBoxes by kind.  For any thread.

    A list gives and takes whole; a lock of ours could be taken when a process forks, and then
    would stay so in the child.

    Parameters
    ----------
    goal_percent
        Of the pBoxes that it makes.
    """

    def __init__(self, goal_percent: int = GOAL_PERCENT) -> None:
        self._goal_percent = goal_percent
        self._idle: dict[str, list[PBox]] = {}

    def take(self, kind: str) -> PBox:
        """An idle pBox, a new one if there is none; raises :class:`dial_pbox.PBoxError`."""
        idle = self._idle.get(kind, [])
        while idle:
            try:
                box = idle.pop()
            except IndexError:  # another thread was faster
                break
            if box.psid:
                return box
        return PBox(kind, self._goal_percent)

    def give_back(self, kind: str, box: PBox) -> None:
        """Keep it for the next one, unless its activity did not end."""
        if not box.running:
            self._idle.setdefault(kind, []).append(box)

    def clear(self) -> None:
        """Release the idle ones."""
        idle, self._idle = self._idle, {}
        for boxes in idle.values():
            for box in boxes:
                box.release()


POOL = Pool()
"""Of this process."""


@contextmanager
def activity(kind: str, pool: Pool = POOL) -> Iterator[PBox]:
    """One activity of a kind, on this thread.

    Raises
    ------
    PBoxError
        If the domain has no room for another pBox; at the end, if that is not on the thread of
        the beginning.
    """
    box = pool.take(kind)
    try:
        with box.activity():
            yield box
    finally:
        pool.give_back(kind, box)
