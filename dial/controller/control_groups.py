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

    and sd is its standard error: of sampling, or more where that backend varied more in quiet times
    (:mod:`dial.controller.noise`).  A neighbour comes in the middle of an interval: the same over
    those from the first one on in which the backend was slower at all counts where it is surer.
    What is made of it: :mod:`dial.controller.comparison`.

    A queue that is long now is long in the next interval too.  Errors of two intervals that are k
    apart go together, as an Ornstein-Uhlenbeck process's averages do, by

        (1 - e^-a)^2 / (2 (a - 1 + e^-a)) e^(-a (k - 1)),

    a being the length of an interval in relaxation times of the queue.

    CPU times of a few intervals may differ by more than their errors, where one request costs much
    more than others.  Their mean is as unsure as they differ: its sd is multiplied by

        sqrt(max(1, chi^2 / (k - 1)))

    of the k intervals.  A neighbour makes them all alike.

    This is asked of T_x, and where the cache is accused also of the CPU time of a request: that
    is much the surer witness against heavier requests.  Where the CPU itself or the disk is accused
    it is asked of the time that it is waited for, which with few requests says more than T_x.  What
    siblings wait for, and what their requests cost, is as ever in most intervals, so that all that
    are remembered say it, and the newest only whether it is more of all: of one interval theirs is
    as unsure as the backend's own.

    The time of a request at the CPU, using it and waiting for it, is both in one.  Who takes the
    cache makes requests use more, and a VM that uses more waits for more: beside the lab's, at a
    quarter and at half of the load, each came to 1 / (1 - rho_bg) of 0.18 and 0.1, together of
    0.27.  It is as sure as both of them, but a wait of one's own making is in it.

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
        Two intervals are enough, as they are for the detector where a backend is far slower; and
        one where other witnesses say the same (:mod:`dial.controller.agreement`).
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
    Own, but for the last factor, which is Birge's (1932).

    Eq. 1's own error is left out, because it is the same on all backends while their load is even.
    Against the median of each interval, averaged, on quiet recordings with changes of load put
    together anew what a comparison asks for makes a false mitigation a hundred times as rare, and
    loses 3 of 212 neighbours: of two siblings the lower median is the quicker one, each time, and
    its mean too low.

    Of simulated M/M/1 queues at rho 0.5 to 0.9, with 25 and 85 requests an interval, sd is 0.9 to
    1.6 of what it is in truth; with errors that are taken as independent it is 0.5 of it at rho
    0.9, and 3 sd are exceeded by chance in 1 of 50 comparisons over eight intervals, not 1 of 700.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dial.columns import Bools, Floats, Ints
from dial.controller import fading
from dial.controller.comparison import Comparison
from dial.controller.history import Apparent, Witnesses
from dial.controller.noise import Noise
from dial.estimator import RhoBg
from dial.types import NoData

_GROUP = 8

_UNDISTURBED = RhoBg(0.0, 0.0)
_NO_RATE = NoData("the balancer's choice says nothing of it")


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

    @property
    def noise(self) -> Noise:
        """By how much the errors of T_x and of CPU times are larger than those of sampling."""
        return self._witnesses.noise

    def why_not(self, rows: Ints, intervals: Ints) -> list[NoData | None]:
        """Why each backend cannot be compared with its siblings by T_x, where it cannot."""
        known = self._witnesses.t_x_speaks(self._groups(rows))
        compared = np.count_nonzero(_compared(known, intervals)[:, 0], axis=1)
        return [
            None if own else self._no_interval(row)
            for row, own in zip(rows.tolist(), compared.tolist(), strict=True)
        ]

    def by_t_x(self, rows: Ints, intervals: Ints) -> list[Comparison | NoData]:
        """Each backend beside its siblings over so many last intervals, by T_x, or why not."""
        return self._compare(rows, intervals, self._witnesses.by_t_x(self._groups(rows)))

    def by_cpu_time(self, rows: Ints, intervals: Ints) -> list[Comparison | NoData]:
        """The same by the CPU time of a request, beside what the siblings' cost anyway.

        Where one heavy request may make it a multiple, siblings' of as many intervals only.
        """
        history = self._witnesses.by_cpu_time(self._groups(rows))
        now = self._compare(rows, intervals, history, scattered=True)
        anyway = self._beside_anyway(now, history, scattered=True)
        return [
            surer if self.noise.alike[row] else one
            for row, one, surer in zip(rows.tolist(), now, anyway, strict=True)
        ]

    def by_cpu_residence(self, rows: Ints, intervals: Ints) -> list[Comparison | NoData]:
        """The same by the time of a request at the CPU, using it and waiting for it."""
        history = self._witnesses.by_cpu_residence(self._groups(rows))
        now = self._compare(rows, intervals, history, scattered=True)
        return self._beside_anyway(now, history, scattered=True)

    def by_cpu_wait(self, rows: Ints, intervals: Ints) -> list[Comparison | NoData]:
        """The same by the CPU time waited for, beside what the siblings wait for anyway."""
        history = self._witnesses.by_cpu_wait(self._groups(rows))
        return self._beside_anyway(self._compare(rows, intervals, history), history)

    def by_disk_wait(self, rows: Ints, intervals: Ints) -> list[Comparison | NoData]:
        """The same by the time waited for the disk, beside what the siblings wait for anyway."""
        history = self._witnesses.by_disk_wait(self._groups(rows))
        return self._beside_anyway(self._compare(rows, intervals, history), history)

    def by_rate(self, rows: Ints, intervals: Ints) -> list[RhoBg | NoData]:
        """What the balancer's choice speaks for: means over so many intervals, or why not."""
        says = self._witnesses.by_rate(rows[:, None])
        age = np.arange(says.mean.shape[-1] - 1, -1, -1)
        heard = np.where(age < intervals[:, None, None], says.mean, np.nan)
        if np.isnan(heard).all():
            return [_NO_RATE] * rows.size
        mean, sd = fading.means(Apparent(heard, says.sd, says.relaxations))
        found = zip(mean[:, 0].tolist(), sd[:, 0].tolist(), strict=True)
        return [_NO_RATE if math.isnan(mean) else RhoBg(mean, sd) for mean, sd in found]

    def typical(self, rows: Ints, *, by_cpu_time: bool) -> list[RhoBg | NoData]:
        """What the siblings of each seem to suffer of late, by one witness."""
        siblings = self._groups(rows)[:, 1:]
        says = self._witnesses
        history = says.by_cpu_time(siblings) if by_cpu_time else says.by_t_x(siblings)
        means, sds = fading.means(history)
        means = np.minimum(means, fading.medians(history.mean))
        return [
            NoData(f"no sibling of {self._names[row]} was heard of late")
            if found is None
            else found
            for row, found in zip(rows.tolist(), fading.lower_medians(means, sds), strict=True)
        ]

    def _beside_anyway(
        self, compared: list[Comparison | NoData], history: Apparent, *, scattered: bool = False
    ) -> list[Comparison | NoData]:
        """What was ``compared`` beside what siblings show over all that is remembered."""
        if not compared:
            return []
        anyway = fading.lower_medians(*_means(history.of_siblings, scattered=scattered))
        return [
            one if isinstance(one, NoData) or usual is None else one.beside(usual)
            for one, usual in zip(compared, anyway, strict=True)
        ]

    def _compare(
        self, rows: Ints, intervals: Ints, history: Apparent, *, scattered: bool = False
    ) -> list[Comparison | NoData]:
        if not rows.size:
            return []
        compared = _compared(~np.isnan(history.mean), intervals)
        from_slow = _from_slow(compared, history.mean[:, 0])
        latest = max(int(intervals.max()), 1)
        found = self._over(rows, compared, history, latest, scattered)
        if np.array_equal(from_slow, compared):
            return found
        return list(map(_surer, found, self._over(rows, from_slow, history, latest, scattered)))

    def _over(
        self, rows: Ints, compared: Bools, history: Apparent, latest: int, scattered: bool
    ) -> list[Comparison | NoData]:
        """By the means over the intervals ``compared`` (k, m, w), all among the ``latest``."""
        known = ~np.isnan(history.mean)
        heard = np.where(compared, history.mean, np.nan)
        newest = slice(-latest, None)
        over = Apparent(
            heard[..., newest], history.sd[..., newest], history.relaxations[..., newest]
        )
        means, sds = _means(over, scattered=scattered)
        means[:, 1:][fading.ages(known[:, 1:]) > fading.ages(compared[:, :1])] = np.nan
        beside = fading.lower_medians(means[:, 1:], sds[:, 1:])
        found: list[Comparison | NoData] = []
        intervals = np.count_nonzero(compared[:, 0], axis=-1).tolist()
        for row, count, mean, sd, siblings in zip(
            rows.tolist(), intervals, means[:, 0].tolist(), sds[:, 0].tolist(), beside, strict=True
        ):
            if math.isnan(mean):
                found.append(self._no_interval(row))
            else:
                found.append(Comparison(RhoBg(mean, sd), siblings or _UNDISTURBED, count))
        return found

    def _no_interval(self, row: int) -> NoData:
        return NoData(f"no interval of {self._names[row]} to compare with its siblings yet")

    def _groups(self, rows: Ints) -> Ints:
        """Rows of the backends themselves, and of their control groups: (k, 1 + 8), or fewer."""
        order, places = _by_name(self._names)
        others = min(_GROUP, order.size - 1)
        members: Ints = order[(places[rows][:, None] + np.arange(others + 1)) % order.size]
        return members


def _means(history: Apparent, *, scattered: bool) -> tuple[Floats, Floats]:
    """Fading means and their errors, (k, m) each, as unsure as intervals differ where asked for."""
    means, sds = fading.means(history)
    if scattered:
        sds *= fading.scatter(history, means)
    return means, sds


def _compared(known: Bools, intervals: Ints) -> Bools:
    """Which intervals of backends and of their siblings are compared, (k, m, w).

    Parameters
    ----------
    known : (k, m, w) of which intervals a witness speaks; the backends' own come first.
    intervals : (k,) how many are asked for, the newest.
    """
    width = known.shape[-1]
    newest = np.min(fading.ages(known)[:, 1:], axis=1, initial=width)
    newest = np.where(newest == width, 0, newest)
    age = np.arange(width - 1, -1, -1)
    compared: Bools = known & (age < intervals[:, None, None])
    # The newest of its own that is no newer than the newest of theirs.
    compared[:, 0] &= age >= newest[:, None]
    return compared


def _surer(one: Comparison | NoData, other: Comparison | NoData) -> Comparison | NoData:
    """Whose excess is more of its standard errors; there are both or neither."""
    if isinstance(one, NoData) or isinstance(other, NoData):
        return one
    ahead = other.excess.mean * one.excess.sd > one.excess.mean * other.excess.sd
    return replace(other, intervals=one.intervals) if ahead else one


def _from_slow(compared: Bools, own: Floats) -> Bools:
    """Of the intervals compared (k, m, w) those from the first one in which a backend is slower.

    Parameters
    ----------
    compared : the backends' own come first; all are kept where none of those is slower.
    own : (k, w) what their own intervals show of a neighbour; 0 or less is none.
    """
    slower = compared[:, 0] & (own > 0.0)
    first = np.where(slower.any(axis=-1), slower.argmax(axis=-1), 0)
    kept: Bools = compared & (np.arange(own.shape[-1]) >= first[:, None, None])
    return kept


@lru_cache(maxsize=8)
def _by_name(names: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Rows in the order of the names, and each row's place in it."""
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    return order, places
