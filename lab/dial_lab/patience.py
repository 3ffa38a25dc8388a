"""Waiting for strangers to leave: who shares this computer with the lab comes and goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dial.errors import LabUnquiet

TRIES = 10
PAUSE_S = 20.0
"""Strangers in the cache stayed for minutes; three are waited for, then somebody has to see."""

_T = TypeVar("_T")


def when_quiet(
    measure: Callable[[], _T],
    note: Callable[[str], None] = lambda _: None,
    *,
    tries: int = TRIES,
    pause_s: float = PAUSE_S,
) -> _T:
    """What ``measure`` finds, tried again while somebody outside the lab disturbs it.

    Parameters
    ----------
    measure
        Raises :class:`dial.errors.LabUnquiet` while it is disturbed.
    note
        Is told before each pause.
    tries, pause_s
        How often at most, and the time between two of them.

    Raises
    ------
    LabUnquiet
        If the last try is still disturbed.
    """
    for _ in range(tries - 1):
        try:
            return measure()
        except LabUnquiet as unquiet:
            note(f"{unquiet}; trying again in {pause_s:g} s")
            time.sleep(pause_s)
    return measure()
