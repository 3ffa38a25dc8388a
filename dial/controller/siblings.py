"""The control group: by how much of a neighbour is a backend slower than its siblings.

Problem
    A slow database, or requests that get heavier, make every backend slow.  From one backend
    alone that cannot be told from a neighbour: its siblings tell.  But T_x of one interval is
    off by a fifth, so that of three backends slowed alike one is always the slowest.

Formula
    Each backend's *apparent* rho_bg is what a neighbour would have to take to make it as slow
    as it was in an interval: by T_x, Eq. 1 and its own load, or by the CPU time of a request.
    (Requests that cost c times as much look like 1 - 1/c on every backend, at any load.)  Over
    the intervals since the backend last was calm, the newest counting most,

        excess = mean(own) - max(0, lower median over the siblings of their means)

    and sd is its standard error.  With b the least that load is moved for, a backend is slower
    than its siblings by a neighbour worth mentioning when

        excess >= b    and    excess >= 3 sd,

    and 4 sd where nothing but this speaks for one: no class, no estimate on a resource's curve.

    The apparent rho_bg is by M/M/1's curve, for which resource is not known yet; where it is, the
    excess is what the same T_x comes to on that resource's curve.

    This is asked of T_x, and where the cache is accused also of the CPU time of a request: that
    is much the surer witness against heavier requests.

Regimes
    two victims of three
        The *lower* median: of two siblings the healthy one speaks, so two victims do not
        excuse each other.  Three victims of three do: there is nobody to move load to.
    strong neighbour
        Two intervals are enough, as they are for the detector where a backend is far slower.
    weak neighbour
        sd falls with the intervals, so that it is found later, not never.
    neighbour after a time in which all were slow
        That time fades, and after eight intervals it is forgotten.
    shifted
        Nothing is asked of a backend that load was moved from.  Siblings that carry moved load
        are slower because of us, and excuse.
    many backends
        A control group of eight: the next ones by name.  Of more nothing more is learnt, and all
        of them beside all would take time with the square of their number.

Source
    Own.  Errors that are normal exceed 3 sd in 1 of 700 comparisons, 4 sd in 1 of 30,000, and a
    comparison is asked for only in an interval that the detector finds slow; Eq. 1's own error is
    left out of them, because it is the same on all backends while their load is even.  Against the
    median of each interval, averaged, on quiet recordings with changes of load put together anew
    that makes a false mitigation a hundred times as rare, and loses 3 of 212 neighbours: of two
    siblings the lower median is the quicker one, each time, and its mean too low.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dial.estimator import RhoBg
from dial.types import NoData

WINDOW_INTERVALS = 8
"""Intervals that are compared at most; the oldest counts a third of the newest."""

_FADE = 0.85
"""What an interval counts of the one after it: 0.5 after a long time of being slow alike is found
in four."""

_GROUP = 8

SURE_DEVIATIONS = 3.0
"""By how many standard errors a backend has to be slower than its siblings."""

SURE_ALONE_DEVIATIONS = 4.0
"""The same where no class is known that agrees."""

_UNDISTURBED = RhoBg(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Apparent:
    """What a neighbour would have to take to make a backend as slow as it is, by two witnesses.

    Attributes
    ----------
    t_x, cpu_time
        By the tail latency, and by the CPU time of a request.
    """

    t_x: RhoBg | NoData
    cpu_time: RhoBg | NoData


@dataclass(frozen=True, slots=True)
class Comparison:
    """A backend beside its typical sibling, by one witness, over the same intervals.

    Attributes
    ----------
    own, siblings
        Means of both apparent rho_bg, with their standard errors.
    """

    own: RhoBg
    siblings: RhoBg

    @property
    def excess(self) -> RhoBg:
        """By how much of a neighbour it is slower than its siblings."""
        mean = self.own.mean - max(0.0, self.siblings.mean)
        return RhoBg(mean, math.hypot(self.own.sd, self.siblings.sd))

    @property
    def shared(self) -> bool:
        """Whether the siblings suffer half of what it suffers, or more."""
        return self.siblings.mean > 0.5 * self.own.mean

    def exceeds(
        self, least: float, scale: float = 1.0, *, deviations: float = SURE_DEVIATIONS
    ) -> bool:
        """Whether it is slower by ``least``, and surely slower.

        Parameters
        ----------
        least : rho_bg that is worth it.
        scale : what the excess is to be multiplied with on the curve of the resource at hand.
        deviations : standard errors that make it sure.
        """
        excess = self.excess
        return scale * excess.mean >= least and excess.mean >= deviations * excess.sd


class ControlGroups:
    """Every backend's siblings in one tick.

    Parameters
    ----------
    histories : the last intervals of each backend, the newest last; all end with this tick.
    """

    def __init__(self, histories: Mapping[str, Sequence[Apparent]]) -> None:
        self._histories = histories
        self._order = sorted(histories)
        self._place = {name: place for place, name in enumerate(self._order)}

    def by_t_x(self, name: str, intervals: int) -> Comparison | NoData:
        """Beside its siblings over the last intervals, by T_x, or why not."""
        return self._compare(name, [[a.t_x for a in h] for h in self._of(name, intervals)])

    def by_cpu_time(self, name: str, intervals: int) -> Comparison | NoData:
        """The same by the CPU time of a request."""
        return self._compare(name, [[a.cpu_time for a in h] for h in self._of(name, intervals)])

    def _of(self, name: str, intervals: int) -> list[Sequence[Apparent]]:
        """The backend's own history, and those of its control group."""
        place, others = self._place[name], min(_GROUP, len(self._order) - 1)
        ring = (self._order[(place + i) % len(self._order)] for i in range(others + 1))
        return [self._histories[each][-intervals:] if intervals else () for each in ring]

    def _compare(self, name: str, readings: list[list[RhoBg | NoData]]) -> Comparison | NoData:
        own, *others = (_mean(each) for each in readings)
        if own is None:
            return NoData(f"no interval of {name} to compare with its siblings yet")
        known = sorted((each for each in others if each is not None), key=lambda each: each.mean)
        return Comparison(own, known[(len(known) - 1) // 2] if known else _UNDISTURBED)


def _mean(readings: Sequence[RhoBg | NoData]) -> RhoBg | None:
    """Fading mean of what is known, the newest last."""
    weight = total = variance = 0.0
    for age, reading in enumerate(reversed(readings)):
        if isinstance(reading, NoData):
            continue
        counts = _FADE**age
        weight += counts
        total += counts * reading.mean
        variance += (counts * reading.sd) ** 2
    return RhoBg(total / weight, math.sqrt(variance) / weight) if weight else None
