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

    and 4 sd where nothing but this speaks for one: no class, no estimate on a resource's curve; or
    where something speaks against it: the siblings suffer half as much, or more.

    Load that was moved in error is found out by the same comparison: of eight intervals under a
    shift the siblings' means, which Eq. 1 corrects for the load that they carry, are half of the
    backend's estimate or more, and the excess is surely (by 1 sd) less than b.

    A queue that is long now is long in the next interval too.  Errors of two intervals that are k
    apart go together, as an Ornstein-Uhlenbeck process's averages do, by

        (1 - e^-a)^2 / (2 (a - 1 + e^-a)) e^(-a (k - 1)),

    a being the length of an interval in relaxation times of the queue.

    The apparent rho_bg is by M/M/1's curve, for which resource is not known yet; where it is, the
    excess is what the same T_x comes to on that resource's curve.

    This is asked of T_x, and where the cache is accused also of the CPU time of a request: that
    is much the surer witness against heavier requests.

Regimes
    two victims of three
        The *lower* median: of two siblings the healthy one speaks, so two victims do not
        excuse each other.  Three victims of three do: there is nobody to move load to.
    few requests
        A T_x may rest on the requests of several ticks, and the siblings' on those of others: a
        slow one is compared when a sibling's has come that is no older.  Of backends that all
        become slow at one time, the first to have a T_x of it would be accused otherwise.
    nearly saturated
        Of backends that all are slow the queues wander for many intervals, each its own way: eight
        of them say little more than one.
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

    Of simulated M/M/1 queues at rho 0.5 to 0.9, with 25 and 85 requests an interval, sd is 0.9 to
    1.6 of what it is in truth; with errors that are taken as independent it is 0.5 of it at rho
    0.9, and 3 sd are exceeded by chance in 1 of 50 comparisons over eight intervals, not 1 of 700.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dial.estimator import RhoBg
from dial.types import Cause, NoData

WINDOW_INTERVALS = 8
"""Intervals that are compared at most; the oldest counts a third of the newest."""

_FADE = 0.85
"""What an interval counts of the one after it: 0.5 after a long time of being slow alike is found
in four."""

_GROUP = 8

SURE_DEVIATIONS = 3.0
"""By how many standard errors a backend has to be slower than its siblings."""

SURE_ALONE_DEVIATIONS = 4.0
"""The same where no class is known that agrees, or the siblings suffer as well."""

LONG = 1e6
"""Relaxation times after which nothing is left of a queue; a number that JSON has, as infinity is
none, for the state is kept in a file."""

_INSTANT = 1e-3
"""Below it the correlation of two intervals is 1, but for what arithmetic loses."""

NOT_ASKED = NoData("not asked")
_UNDISTURBED = RhoBg(0.0, 0.0)

_Reading = tuple[RhoBg | NoData, float]
"""Apparent rho_bg, and the length of its interval in relaxation times."""


@dataclass(frozen=True, slots=True)
class Apparent:
    """What a neighbour would have to take to make a backend as slow as it is, by each witness.

    Attributes
    ----------
    t_x, cpu_time
        By the tail latency, and by the CPU time of a request.
    relaxations
        How long the interval is, in relaxation times of the backend's queue: T_x of two intervals
        that are short go together, CPU times never do.
    rate
        By what the balancer gives it beside its siblings, so that it is compared already.
    """

    t_x: RhoBg | NoData
    cpu_time: RhoBg | NoData
    relaxations: float = LONG
    rate: RhoBg | NoData = NOT_ASKED


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

    def exceeds(self, least: float, scale: float = 1.0, *, alone: bool = False) -> bool:
        """Whether it is slower by ``least``, and surely slower.

        Parameters
        ----------
        least : rho_bg that is worth it.
        scale : what the excess is to be multiplied with on the curve of the resource at hand.
        alone : no class agrees that a neighbour is there.
        """
        excess = self.excess
        sure = SURE_ALONE_DEVIATIONS if alone or self.shared else SURE_DEVIATIONS
        return scale * excess.mean >= least and excess.mean >= sure * excess.sd

    def refutes(self, least: float) -> bool:
        """Whether the siblings suffer as well, and it surely is not slower by ``least``."""
        excess = self.excess
        return self.shared and excess.mean + excess.sd < least


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
        return self._compare(name, intervals, _by_t_x)

    def by_rate(self, name: str, intervals: int) -> RhoBg | NoData:
        """The mean over the last intervals of what the balancer's choice speaks for, or why not."""
        found = _mean([(each.rate, LONG) for each in self._histories[name][-intervals:]])
        return NoData("the balancer's choice says nothing of it") if found is None else found

    def typical(self, name: str, cause: Cause) -> RhoBg | NoData:
        """What the siblings seem to suffer of late, by the witness that counts for ``cause``."""
        read = _by_cpu_time if cause is Cause.LLC else _by_t_x
        _, *others = self._of(name)
        found = _lower_median([read(each) for each in history] for history in others)
        return NoData(f"no sibling of {name} was heard of late") if found is None else found

    def by_cpu_time(self, name: str, intervals: int) -> Comparison | NoData:
        """The same by the CPU time of a request."""
        return self._compare(name, intervals, _by_cpu_time)

    def _compare(
        self, name: str, intervals: int, read: Callable[[Apparent], _Reading]
    ) -> Comparison | NoData:
        own, *others = ([read(each) for each in history] for history in self._of(name))
        heard = [(age, each) for each in others if (age := _age(each)) is not None]
        newest = min((age for age, _ in heard), default=0)
        known = own[max(len(own) - intervals, 0) : len(own) - newest]
        mean = _mean(known)
        if mean is None:
            return NoData(f"no interval of {name} to compare with its siblings yet")
        since = newest + (_age(known) or 0)
        beside = _lower_median(each[-intervals:] for age, each in heard if age <= since)
        return Comparison(mean, beside or _UNDISTURBED)

    def _of(self, name: str) -> list[Sequence[Apparent]]:
        """The backend's own history, and those of its control group."""
        place, others = self._place[name], min(_GROUP, len(self._order) - 1)
        ring = (self._order[(place + i) % len(self._order)] for i in range(others + 1))
        return [self._histories[each] for each in ring]


def _by_t_x(interval: Apparent) -> _Reading:
    return interval.t_x, interval.relaxations


def _by_cpu_time(interval: Apparent) -> _Reading:
    return interval.cpu_time, LONG


def _lower_median(histories: Iterable[Sequence[_Reading]]) -> RhoBg | None:
    """Of the means of those that are known at all."""
    means = (_mean(each) for each in histories)
    known = sorted((each for each in means if each is not None), key=lambda each: each.mean)
    return known[(len(known) - 1) // 2] if known else None


def _age(readings: Sequence[_Reading]) -> int | None:
    """How many intervals ago the newest one is that is known."""
    known = (age for age, (one, _) in enumerate(reversed(readings)) if not isinstance(one, NoData))
    return next(known, None)


def _mean(readings: Sequence[_Reading]) -> RhoBg | None:
    """Fading mean of what is known, the newest last."""
    weight = total = variance = 0.0
    # Errors of the intervals gone by, each as it goes together with the present one's.
    along = last = 0.0
    for reading, relaxations in readings:
        weight, total, variance = weight * _FADE, total * _FADE, variance * _FADE**2
        along, last = along * _FADE, last * _FADE
        if isinstance(reading, NoData):
            continue
        along = along * math.exp(-relaxations) + last * _alike(relaxations)
        weight += 1.0
        total += reading.mean
        variance += reading.sd * (reading.sd + 2.0 * along)
        last = reading.sd
    return RhoBg(total / weight, math.sqrt(variance) / weight) if weight else None


def _alike(relaxations: float) -> float:
    """Correlation of two intervals, one right after the other: an Ornstein-Uhlenbeck process's."""
    if relaxations < _INSTANT:
        return 1.0
    fades = math.exp(-relaxations)
    return (1.0 - fades) ** 2 / (2.0 * (relaxations - 1.0 + fades))
