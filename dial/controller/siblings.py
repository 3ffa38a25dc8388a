"""The control group: by how much of a neighbour is a backend slower than its siblings.

Problem
    A slow database, or requests that get heavier, make every backend slow.  From one backend
    alone that cannot be told from a neighbour: its siblings tell.  But T_x of one interval is
    off by a fifth, so that of three backends slowed alike one is always the slowest.

Formula
    Each backend's *apparent* rho_bg is what a neighbour would have to take to make it as slow
    as it was in this interval: by T_x, Eq. 1 and its own load, or by the CPU time of a request.
    (Requests that cost c times as much look like 1 - 1/c on every backend, at any load.)  Over
    the intervals since the backend last was calm, the newest counting most,

        excess = mean(apparent rho_bg) - max(0, mean(lower median of the siblings'))

    and sd is its standard error.  With b the least that load is moved for, a backend is slower
    than its siblings by a neighbour worth mentioning when

        excess >= b    and    excess - sd >= b / 2.

    The apparent rho_bg is by M/M/1's curve, for which resource is not known yet; where it is, the
    excess is what the same T_x comes to on that resource's curve.

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
    neighbour after a time in which all were slow
        That time fades within some ten intervals.
    shifted
        Nothing is asked: siblings that carry moved load are slower because of us.

Source
    Own.  The margin is a one-sided bound of 84 % for normal errors; Eq. 1's own error is left
    out of them, because it is the same on all backends while their load is even.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dial.estimator import RhoBg
from dial.types import Measured, NoData

_FADE = 0.85
"""What an interval counts of the one after it: the mean is over some seven, so that 0.5 after a
long time of being slow alike is found in four."""


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
    """A backend beside its typical sibling, by one witness, since it last was calm.

    Attributes
    ----------
    weight, own, siblings, variance
        Fading sums over the intervals: of 1, of both apparent rho_bg, and of their variance.
    """

    weight: float = 0.0
    own: float = 0.0
    siblings: float = 0.0
    variance: float = 0.0

    @property
    def apparent(self) -> Measured:
        """The backend's apparent rho_bg, a mean."""
        if self.weight == 0.0:
            return NoData("no interval to compare with siblings yet")
        return self.own / self.weight

    @property
    def excess(self) -> RhoBg | NoData:
        """By how much of a neighbour it is slower than its siblings: a mean and its error."""
        if self.weight == 0.0:
            return NoData("no interval to compare with siblings yet")
        mean = (self.own - max(0.0, self.siblings)) / self.weight
        return RhoBg(mean, math.sqrt(self.variance) / self.weight)

    @property
    def shared(self) -> bool:
        """Whether the siblings suffer half of what it suffers, or more."""
        return self.weight > 0.0 and self.siblings > 0.5 * self.own

    def exceeds(self, least: float, scale: float = 1.0) -> bool:
        """Whether it is slower by ``least``, and by half of it errors considered.

        Parameters
        ----------
        least : rho_bg that is worth it.
        scale : what the excess is to be multiplied with on the curve of the resource at hand.
        """
        excess = self.excess
        if isinstance(excess, NoData):
            return False
        sure = excess.mean - excess.sd
        return scale * excess.mean >= least and scale * sure >= 0.5 * least

    def step(self, own: RhoBg | NoData, sibling: RhoBg | NoData, *, calm: bool) -> Comparison:
        """The next interval.

        Parameters
        ----------
        own : apparent rho_bg of the backend in this interval; ``NoData`` adds nothing.
        sibling : that of its typical sibling (:func:`siblings_of`); without any the backend
            is compared with one that nobody disturbs.
        calm : whether the detector sees nothing: comparing begins anew.
        """
        if calm:
            return Comparison()
        weight, variance = _FADE * self.weight, _FADE**2 * self.variance
        mine, theirs = _FADE * self.own, _FADE * self.siblings
        if isinstance(own, NoData):
            return Comparison(weight, mine, theirs, variance)
        other = RhoBg(0.0, 0.0) if isinstance(sibling, NoData) else sibling
        return Comparison(
            weight + 1.0,
            mine + own.mean,
            theirs + other.mean,
            variance + own.sd**2 + other.sd**2,
        )


def siblings_of(apparent: Mapping[str, Apparent]) -> dict[str, Apparent]:
    """The typical sibling of each backend: the lower median over the others, by each witness."""
    t_x = _lower_medians({name: each.t_x for name, each in apparent.items()})
    cpu_time = _lower_medians({name: each.cpu_time for name, each in apparent.items()})
    return {name: Apparent(t_x[name], cpu_time[name]) for name in apparent}


def _lower_medians(apparent: Mapping[str, RhoBg | NoData]) -> dict[str, RhoBg | NoData]:
    """Of the others that are known.

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
