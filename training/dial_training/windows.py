"""Some time of a machine: the points that Eq. 1 is fitted through and measured on.

T_x of a tick rests on a few hundred requests and is off by a tenth (the 90th percentile of 200
exponential times: 9 %), and by more where queues are long, because then successive response
times are alike.  The percentile of a longer time is taken as the mean of its ticks'
percentiles, each weighing as many requests as it rests on: single response times are not in
the data set.

Eq. 1 is a statement on the mean, so a whole stage is one point of it.  An estimate of rho_bg is
wanted soon, so it is measured on windows of 30 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dial.types import Cause, NoData
from dial_training.dataset import Case
from dial_training.replay import JudgedTick

WINDOW_S = 30.0
_WHOLE_S = 0.85 * WINDOW_S
"""From here on it passes for a window: a stage of 30 s loses a tick at each end."""

_LEAST_S = 9.0
"""A shorter one is no point: its T_x is off by more than 5 %."""


@dataclass(frozen=True, slots=True)
class Point:
    """A stage, a learning phase or a window.

    Attributes
    ----------
    session, machine
        Where.
    resource
        Whose Eq. 1 it lies on.
    contended
        Whether there was a neighbour.
    rho_fg
        The product's own value, mean over the time.
    rho_bg
        True one; 0 without a neighbour.
    t_x_ms
        Measured.
    """

    session: str
    machine: str
    resource: Cause
    contended: bool
    rho_fg: float
    rho_bg: float
    t_x_ms: float

    @property
    def rho(self) -> float:
        """rho_fg + rho_bg."""
        return self.rho_fg + self.rho_bg


def split(case: Case) -> Iterator[tuple[int, ...]]:
    """The case's ticks in consecutive whole windows."""
    ticks = case.session.ticks
    interval_s = [ticks[at].observation.interval_s for at in case.at]
    for first, last in _bounds(interval_s):
        yield case.at[first:last]


def point(
    session: str,
    machine: str,
    resource: Cause,
    ticks: Sequence[JudgedTick],
    rho_bg: float | None = None,
) -> Point | None:
    """All of some ticks in a row, of one machine.

    Parameters
    ----------
    session, machine, resource : for the record.
    ticks : of the machine.
    rho_bg : what its neighbour takes; ``None`` without one.

    Returns
    -------
    Point or None
        ``None`` where T_x or rho_fg is missing in most of it, or it is too short to tell.
    """
    if sum(tick.interval_s for tick in ticks) < _LEAST_S:
        return None
    known = [
        (window.t_x_ms, tick.verdict.rho_fg, window.t_x_requests)
        for tick in ticks
        if not isinstance((window := tick.seen.window).t_x_ms, NoData)
        and not isinstance(tick.verdict.rho_fg, NoData)
        and window.t_x_requests > 0
    ]
    if 2 * len(known) <= len(ticks):
        return None
    t_x_ms, rho_fg, requests = np.array(known, dtype=np.float64).T
    return Point(
        session=session,
        machine=machine,
        resource=resource,
        contended=rho_bg is not None,
        rho_fg=float(np.average(rho_fg, weights=requests)),
        rho_bg=rho_bg or 0.0,
        t_x_ms=float(np.average(t_x_ms, weights=requests)),
    )


def _bounds(interval_s: Sequence[float]) -> Iterator[tuple[int, int]]:
    """First tick and the one after the last of each whole window."""
    first, length_s = 0, 0.0
    for at, part_s in enumerate(interval_s):
        length_s += part_s
        if length_s > WINDOW_S - part_s / 2.0:
            yield first, at + 1
            first, length_s = at + 1, 0.0
    if length_s >= _WHOLE_S:
        yield first, len(interval_s)
