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
    backend's estimate or more, and the excess is surely (by 1 sd) less than b.  Of each the lower
    of mean and median counts: all may be slow for a moment, beside a neighbour too, and the mean
    is that moment's.

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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from dial.columns import Floats, Ints
from dial.controller.history import Apparent, Witnesses
from dial.estimator import RhoBg
from dial.types import Cause, NoData

_FADE = 0.85
"""What an interval counts of the one after it: 0.5 after a long time of being slow alike is found
in four."""

_GROUP = 8

SURE_DEVIATIONS = 3.0
"""By how many standard errors a backend has to be slower than its siblings."""

SURE_ALONE_DEVIATIONS = 4.0
"""The same where no class is known that agrees, or the siblings suffer as well."""

_INSTANT = 1e-3
"""Below it the correlation of two intervals is 1, but for what arithmetic loses."""

_UNDISTURBED = RhoBg(0.0, 0.0)
_NO_RATE = NoData("the balancer's choice says nothing of it")


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
    """Every backend's siblings in one tick; backends are asked for by their rows, k of them.

    Parameters
    ----------
    names : of the n backends.
    witnesses : what their last intervals say, this tick's the last.
    """

    def __init__(self, names: tuple[str, ...], witnesses: Witnesses) -> None:
        self._names = names
        self._witnesses = witnesses

    def by_t_x(self, rows: Ints, intervals: Ints) -> list[Comparison | NoData]:
        """Each backend beside its siblings over so many last intervals, by T_x, or why not."""
        return self._compare(rows, intervals, self._witnesses.by_t_x(self._groups(rows)))

    def by_cpu_time(self, rows: Ints, intervals: Ints) -> list[Comparison | NoData]:
        """The same by the CPU time of a request."""
        return self._compare(rows, intervals, self._witnesses.by_cpu_time(self._groups(rows)))

    def by_rate(self, rows: Ints, intervals: Ints) -> list[RhoBg | NoData]:
        """What the balancer's choice speaks for: means over so many intervals, or why not."""
        says = self._witnesses.by_rate(rows[:, None])
        age = np.arange(says.mean.shape[-1] - 1, -1, -1)
        heard = np.where(age < intervals[:, None, None], says.mean, np.nan)
        if np.isnan(heard).all():
            return [_NO_RATE] * rows.size
        mean, sd = _means(Apparent(heard, says.sd, says.relaxations))
        found = zip(mean[:, 0].tolist(), sd[:, 0].tolist(), strict=True)
        return [_NO_RATE if math.isnan(mean) else RhoBg(mean, sd) for mean, sd in found]

    def typical(self, rows: Ints, *, by_cpu_time: bool) -> list[RhoBg | NoData]:
        """What the siblings of each seem to suffer of late, by one witness."""
        siblings = self._groups(rows)[:, 1:]
        says = self._witnesses
        history = says.by_cpu_time(siblings) if by_cpu_time else says.by_t_x(siblings)
        means, sds = _means(history)
        means = np.minimum(means, _medians(history.mean))
        return [
            NoData(f"no sibling of {self._names[row]} was heard of late")
            if found is None
            else found
            for row, found in zip(rows.tolist(), _lower_medians(means, sds), strict=True)
        ]

    def _compare(self, rows: Ints, intervals: Ints, history: Apparent) -> list[Comparison | NoData]:
        if not rows.size:
            return []
        width = history.mean.shape[-1]
        ages = _ages(history.mean)
        newest = np.min(ages[:, 1:], axis=1, initial=width)
        newest = np.where(newest == width, 0, newest)
        # The newest of its own that is no newer than the newest of theirs.
        age = np.arange(width - 1, -1, -1)
        asked = age < intervals[:, None, None]
        own = asked[:, 0] & (age >= newest[:, None])
        known = np.concatenate((own[:, None], np.broadcast_to(asked, history.mean.shape)[:, 1:]), 1)
        heard = np.where(known, history.mean, np.nan)
        since = _ages(heard[:, :1])
        latest = slice(-max(int(intervals.max()), 1), None)
        means, sds = _means(
            Apparent(heard[..., latest], history.sd[..., latest], history.relaxations[..., latest])
        )
        means[:, 1:][ages[:, 1:] > since] = np.nan
        beside = _lower_medians(means[:, 1:], sds[:, 1:])
        compared: list[Comparison | NoData] = []
        for row, mean, sd, siblings in zip(
            rows.tolist(), means[:, 0].tolist(), sds[:, 0].tolist(), beside, strict=True
        ):
            if math.isnan(mean):
                name = self._names[row]
                compared.append(NoData(f"no interval of {name} to compare with its siblings yet"))
            else:
                compared.append(Comparison(RhoBg(mean, sd), siblings or _UNDISTURBED))
        return compared

    def _groups(self, rows: Ints) -> Ints:
        """Rows of the backends themselves, and of their control groups: (k, 1 + 8), or fewer."""
        order, places = _by_name(self._names)
        others = min(_GROUP, order.size - 1)
        members: Ints = order[(places[rows][:, None] + np.arange(others + 1)) % order.size]
        return members


class Siblings:
    """The comparisons of one tick: each kind of all who need it, once one of them does.

    Parameters
    ----------
    groups : every backend's siblings.
    slow : rows of the backends that are slower than expected.
    likely : of those that likely are slower than in their quiet past.
    intervals : (n,) over how many each backend is compared.
    followed : rows of those that load was moved away from.
    """

    def __init__(
        self,
        groups: ControlGroups,
        *,
        slow: Ints,
        likely: Ints,
        intervals: Ints,
        followed: Ints,
    ) -> None:
        self._groups, self._intervals = groups, intervals
        self._slow, self._likely, self._followed = slow, likely, followed

    def by_t_x(self, row: int) -> Comparison | NoData:
        """A slow backend beside its siblings, by T_x, or why not."""
        return self._slow_by_t_x[row]

    def by_cpu_time(self, row: int) -> Comparison | NoData:
        """The same of one that likely is slow, by the CPU time of a request."""
        return self._likely_by_cpu_time[row]

    def by_rate(self, row: int) -> RhoBg | NoData:
        """What the balancer's choice speaks for, over the same intervals."""
        return self._likely_by_rate[row]

    def typical(self, row: int, cause: Cause) -> RhoBg | NoData:
        """What siblings of one that is followed suffer, by the witness that counts for a cause."""
        return (self._typical_by_cpu_time if cause is Cause.LLC else self._typical_by_t_x)[row]

    @cached_property
    def _slow_by_t_x(self) -> dict[int, Comparison | NoData]:
        rows = self._slow
        return _by_row(rows, self._groups.by_t_x(rows, self._intervals[rows]))

    @cached_property
    def _likely_by_cpu_time(self) -> dict[int, Comparison | NoData]:
        rows = self._likely
        return _by_row(rows, self._groups.by_cpu_time(rows, self._intervals[rows]))

    @cached_property
    def _likely_by_rate(self) -> dict[int, RhoBg | NoData]:
        rows = self._likely
        return _by_row(rows, self._groups.by_rate(rows, self._intervals[rows]))

    @cached_property
    def _typical_by_t_x(self) -> dict[int, RhoBg | NoData]:
        return _by_row(self._followed, self._groups.typical(self._followed, by_cpu_time=False))

    @cached_property
    def _typical_by_cpu_time(self) -> dict[int, RhoBg | NoData]:
        return _by_row(self._followed, self._groups.typical(self._followed, by_cpu_time=True))


_T = TypeVar("_T")


def _by_row(rows: Ints, found: Iterable[_T]) -> dict[int, _T]:
    return dict(zip(rows.tolist(), found, strict=True))


@lru_cache(maxsize=8)
def _by_name(names: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Rows in the order of the names, and each row's place in it."""
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    return order, places


def _lower_medians(means: Floats, sds: Floats) -> list[RhoBg | None]:
    """Of those in each row (k, m) that are known at all."""
    known = np.count_nonzero(~np.isnan(means), axis=1)
    if not known.any():
        return [None] * len(known)
    order = np.argsort(means, axis=1, kind="stable")  # NaN comes last
    middle = order[np.arange(len(known)), np.maximum(known - 1, 0) // 2]
    at = np.arange(len(known)), middle
    found = zip(known.tolist(), means[at].tolist(), sds[at].tolist(), strict=True)
    return [RhoBg(mean, sd) if n else None for n, mean, sd in found]


def _medians(means: Floats) -> Floats:
    """Lower medians over the intervals that are known, (k, m); NaN where none is."""
    known = np.count_nonzero(~np.isnan(means), axis=-1)
    middle = np.maximum(known - 1, 0) // 2
    in_order = np.sort(means, axis=-1)  # NaN comes last
    found: Floats = np.take_along_axis(in_order, middle[..., None], axis=-1)[..., 0]
    return found


def _ages(means: Floats) -> Ints:
    """How many intervals ago the newest one is that is known, (k, m); w where none is."""
    known = ~np.isnan(means[..., ::-1])
    ages: Ints = np.where(known.any(axis=-1), known.argmax(axis=-1), means.shape[-1])
    return ages


def _means(history: Apparent) -> tuple[Floats, Floats]:
    """Fading means of what is known, and standard errors, (k, m) each; NaN where nothing is."""
    known = ~np.isnan(history.mean)
    counts = _FADE ** np.arange(known.shape[-1] - 1.0, -1.0, -1.0)
    # Summed up as they stand: a product of matrices may round otherwise from run to run.
    weight = (known * counts).sum(axis=-1)
    weight[weight == 0.0] = np.nan
    total = np.where(known, history.mean * counts, 0.0).sum(axis=-1)
    sd = np.where(known, history.sd, 0.0) * counts
    fades, alike = np.exp(-history.relaxations), _alike(history.relaxations)
    # Errors of the intervals gone by, each as it goes together with the present one's.
    along, last = np.zeros((2, *weight.shape))
    variance = np.zeros(weight.shape)
    for at in range(known.shape[-1]):
        there = known[..., at]
        along = np.where(there, along * fades[..., at] + last * alike[..., at], along)
        variance += sd[..., at] * (sd[..., at] + 2.0 * along)
        last = np.where(there, sd[..., at], last)
    return total / weight, np.sqrt(variance) / weight


def _alike(relaxations: Floats) -> Floats:
    """Correlation of two intervals, one right after the other: an Ornstein-Uhlenbeck process's."""
    long = np.maximum(relaxations, _INSTANT)
    fades = np.exp(-long)
    found: Floats = (1.0 - fades) ** 2 / (2.0 * (long - 1.0 + fades))
    return np.where(relaxations < _INSTANT, 1.0, found)
