"""The control group: by how much of a neighbour is a backend slower than its siblings.

Problem
    A slow database, or requests that get heavier, make every backend slow.  From one backend
    alone that cannot be told from a neighbour: its siblings tell.  But T_x of one interval is
    off by a fifth, so that of three backends slowed alike one is always the slowest.

Formula
    Each backend's *apparent* rho_bg is what a neighbour would have to take to make it as slow
    as it was in this interval: by T_x, Eq. 1 and its own load, or by the CPU time of a request.
    (Requests that cost c times as much look like 1 - 1/c on every backend, at any load.)  Its
    excess in an interval is

        e = apparent rho_bg - max(0, lower median of the siblings' apparent rho_bg)

    and over the m intervals since the backend last was calm

        excess = mean(e),     sd = sqrt(sum(var e)) / m.

    With b the least that load is moved for, a backend is slower than its siblings by a
    neighbour worth mentioning when

        excess >= b    and    excess - 1.5 sd >= b / 2.

    The apparent rho_bg is by M/M/1's curve, for which resource is not known yet; where it is, the
    mean excess is what the same T_x comes to on that resource's curve.

    This is asked of T_x, and where the cache is accused also of the CPU time of a request: that
    is much the surer witness against heavier requests.

Regimes
    two victims of three
        The *lower* median: of two siblings the healthy one speaks, so two victims do not
        excuse each other.  Three victims of three do: there is nobody to move load to.
    strong neighbour
        Two intervals are enough; they are what the detector asks for, too.
    weak neighbour
        sd falls with the intervals, so that it is found later, not never.  To ask that the bound
        itself be above b would leave every neighbour of little more than b unfound.

Source
    Own.  The margin is a one-sided bound of 93 % for normal errors; Eq. 1's own error is left
    out of them, because it is the same on all backends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dial.estimator import RhoBg
from dial.types import Measured, NoData

_DEVIATIONS = 1.5
"""Of the excess, between it and half the least."""

_NEWEST = 0.5
"""Weight of the newest interval in what the siblings did lately."""


@dataclass(frozen=True, slots=True)
class Apparent:
    """What a neighbour would have to take to make a backend as slow as it is, by two witnesses.

    Attributes
    ----------
    t_x, cpu_time
        By the tail latency, and by the CPU time of a request.  Signed, so that errors cancel.
    """

    t_x: RhoBg | NoData
    cpu_time: RhoBg | NoData


@dataclass(frozen=True, slots=True)
class Beside:
    """What is remembered of a backend beside its siblings, by one witness.

    Attributes
    ----------
    lately
        What a neighbour of the typical sibling would take, were there one: this interval and,
        half as much each, those before.
    intervals, own_sum, excess_sum, variance_sum
        Of its apparent rho_bg and its excess, since the backend last was calm.
    """

    lately: float = 0.0
    intervals: int = 0
    own_sum: float = 0.0
    excess_sum: float = 0.0
    variance_sum: float = 0.0

    @property
    def own(self) -> Measured:
        """Its apparent rho_bg, a mean."""
        if not self.intervals:
            return NoData("no interval to compare with siblings yet")
        return self.own_sum / self.intervals

    @property
    def excess(self) -> Measured:
        """By how much of a neighbour it is slower than its siblings, a mean."""
        if not self.intervals:
            return NoData("no interval to compare with siblings yet")
        return self.excess_sum / self.intervals

    @property
    def shared(self) -> bool:
        """Whether the siblings suffer half of what it suffers, or more."""
        own, excess = self.own, self.excess
        if isinstance(own, NoData) or isinstance(excess, NoData):
            return False
        return excess < 0.5 * own

    def surely(self, least: float, scale: float = 1.0) -> bool:
        """Whether it is slower by ``least``, and by half of it errors considered.

        Parameters
        ----------
        least : rho_bg that is worth it.
        scale : what an apparent rho_bg of 1 comes to on the curve of the resource at hand.
        """
        excess = self.excess
        if isinstance(excess, NoData):
            return False
        error = math.sqrt(self.variance_sum) / self.intervals
        sure = excess - _DEVIATIONS * error
        return scale * excess >= least and scale * sure >= 0.5 * least

    def step(self, own: RhoBg | NoData, siblings: RhoBg | NoData, *, calm: bool) -> Beside:
        """The next interval.

        Parameters
        ----------
        own : apparent rho_bg of the backend in this interval.
        siblings : that of its typical sibling (:func:`typical_siblings`).
        calm : whether the detector sees nothing in this interval: comparing begins anew.
        """
        past = Beside(self.lately) if calm else self
        if isinstance(siblings, NoData):
            level, variance = past.lately, 0.0
        else:
            level, variance = max(0.0, siblings.mean), siblings.sd**2
        lately = past.lately + _NEWEST * (level - past.lately)
        if calm or isinstance(own, NoData):
            return replace(past, lately=lately)
        return Beside(
            lately,
            past.intervals + 1,
            past.own_sum + own.mean,
            past.excess_sum + own.mean - level,
            past.variance_sum + own.sd**2 + variance,
        )


def siblings_of(apparent: Mapping[str, Apparent]) -> dict[str, Apparent]:
    """The typical sibling of each backend."""
    t_x = typical_siblings({name: each.t_x for name, each in apparent.items()})
    cpu_time = typical_siblings({name: each.cpu_time for name, each in apparent.items()})
    return {name: Apparent(t_x[name], cpu_time[name]) for name in apparent}


def typical_siblings(apparent: Mapping[str, RhoBg | NoData]) -> dict[str, RhoBg | NoData]:
    """For each backend the lower median over its siblings, of those that are known.

    One sort for all: leaving oneself out of a sorted list moves the median by one place at
    most.
    """
    known = {n: value for n, value in apparent.items() if not isinstance(value, NoData)}
    order = sorted(known, key=lambda name: known[name].mean)
    place = {name: i for i, name in enumerate(order)}
    found: dict[str, RhoBg | NoData] = {}
    for name in apparent:
        siblings = len(order) - (name in place)
        middle = (siblings - 1) // 2
        if name in place and middle >= place[name]:
            middle += 1
        found[name] = known[order[middle]] if siblings else NoData("of no sibling it is known")
    return found
