"""The last intervals of every backend, as they were read: what siblings are compared by.

What a neighbour would have to take to make a backend as slow as it was is computed of those that
are compared, when they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dial.columns import Bools, Columns, Floats, Ints
from dial.controller.noise import Noise
from dial.estimator import SLOWDOWN, Reading, Tracker
from dial.queueing import MM1

WINDOW_INTERVALS = 8
"""Intervals that are compared at most; the oldest counts a third of the newest."""

_SAMPLE_INTERVALS = 4
"""An agent's sample may be two intervals old and partly of the two before: it is read each half
second, and ticks may be as short."""

SPACING_INTERVALS = 2
"""Between two that are compared for how much costs vary: a request that costs twenty times as much
as others is served in two intervals that follow each other, more often than not."""

_HARDLY_ANY = 0.25
"""Of the requests of now: far below what chance makes of them."""

LONG = 1e6
"""Relaxation times after which nothing is left of a queue."""


@dataclass(frozen=True, slots=True, eq=False)
class Read(Columns):
    """One interval of n backends.

    Attributes
    ----------
    slow
        (n,) T_x over that of the idle backend; NaN where that is not known, and where the balancer
        does not use the backend, which then is nobody's sibling.
    rho_fg
        (n,) its own utilisation; NaN where it is not known.
    t_x_requests
        (n,) how many T_x rests on.
    slowdown
        (n,) CPU time of a request over the quiet one; NaN as ``slow``.
    requests
        (n,) how many that rests on.
    wait, wait_sd
        (n,) rho_bg by the CPU time waited for, and its standard error; NaN as ``slow``.
    rate, rate_sd
        (n,) rho_bg by what the balancer gives it beside its siblings, so that it is compared
        already, and its standard error; NaN where that is not known.
    """

    slow: Floats
    rho_fg: Floats
    t_x_requests: Floats
    slowdown: Floats
    requests: Floats
    wait: Floats
    wait_sd: Floats
    rate: Floats
    rate_sd: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Apparent:
    """What a neighbour would have to take to make backends as slow as they were, by one witness.

    All are of one shape, the last axis being intervals, the newest last.

    Attributes
    ----------
    mean, sd
        rho_bg, NaN where the witness says nothing, and its standard error.
    relaxations
        How long the interval is, in relaxation times of the backend's queue: T_x of two intervals
        that are short go together, CPU times never do.
    """

    mean: Floats
    sd: Floats
    relaxations: Floats


@dataclass(frozen=True, slots=True, eq=False)
class History(Columns):
    """The last intervals of n backends.

    Attributes
    ----------
    read
        (n, 9, w) the fields of :class:`Read`, of w intervals, the newest last.
    """

    read: Floats

    @classmethod
    def blank(cls, n: int) -> History:
        """No interval of n backends yet."""
        return cls(np.full((n, len(Read.__slots__), WINDOW_INTERVALS), math.nan))

    def then(self, newest: Read) -> History:
        """One interval more."""
        n, fields, width = self.read.shape
        read = np.empty((n, fields, width + 1))
        read[:, :, :-1] = self.read
        for at, name in enumerate(Read.__slots__):
            read[:, at, -1] = getattr(newest, name)
        return History(read)

    def has_load(self) -> Bools:
        """(n,) whether requests have come for as long as the samples of :meth:`spaced` go back.

        With a load that has just begun a sample is partly of the time without one, and a request
        seems to take a third of its CPU time.
        """
        requests = self._field("requests")[:, -_SAMPLE_INTERVALS - SPACING_INTERVALS :]
        least = np.asarray(requests.min(axis=1), np.float64)
        found: Bools = least >= _HARDLY_ANY * requests[:, -1]
        return found

    def spaced(self, name: str) -> tuple[Floats, Floats]:
        """(n,) a field of :class:`Read` as it was :data:`SPACING_INTERVALS` ago, and now."""
        field = self._field(name)
        return field[:, -1 - SPACING_INTERVALS], field[:, -1]

    def _field(self, name: str) -> Floats:
        """(n, w) one of :class:`Read`, by interval."""
        found: Floats = self.read[:, Read.__slots__.index(name)]
        return found

    def latest(self) -> History:
        """As many as are compared."""
        return History(self.read[:, :, -WINDOW_INTERVALS:])


class Witnesses:
    """What T_x, the CPU time of a request, the wait for it and the balancer's choice say of it.

    Parameters
    ----------
    history : of all backends.
    sampling : estimates rho_bg, with the error of sampling alone: Eq. 1's own is the same on all.
    percentile : x of T_x.
    noise : by how much more they vary than that.
    """

    def __init__(
        self, history: History, sampling: Tracker, percentile: float, noise: Noise
    ) -> None:
        self._history = history
        self.noise = noise
        self._sampling = sampling
        self._percentile = percentile

    def by_t_x(self, rows: Ints) -> Apparent:
        """Of the backends in these rows, (..., w) for rows (...,)."""
        slow, rho_fg, requests, *_ = self._fields(rows)
        reading = Reading(MM1, slow, rho_fg, requests, self._percentile)
        mean, sd = self._sampling.alone(reading)
        sd *= self.noise.t_x[rows][..., None]
        return _apparent(mean, sd, np.minimum(reading.relaxations(mean), LONG))

    def t_x_speaks(self, rows: Ints) -> Bools:
        """Of which intervals T_x says anything, (..., w) for rows (...,)."""
        slow, rho_fg, *_ = self._fields(rows)
        speaks: Bools = ~(np.isnan(slow) | np.isnan(rho_fg))
        return speaks

    def by_cpu_time(self, rows: Ints) -> Apparent:
        """The same by the CPU time of a request."""
        _, _, _, slowdown, requests, *_ = self._fields(rows)
        reading = Reading(SLOWDOWN, slowdown, 0.0, requests, percentile=None)
        mean, sd = self._sampling.alone(reading)
        sd *= self.noise.cpu_time[rows][..., None]
        return _apparent(mean, sd, np.full_like(slowdown, LONG))

    def by_cpu_wait(self, rows: Ints) -> Apparent:
        """The same by the CPU time waited for."""
        *_, wait, wait_sd, _, _ = self._fields(rows)
        return _apparent(wait, wait_sd, np.full_like(wait, LONG))

    def by_rate(self, rows: Ints) -> Apparent:
        """The same by what the balancer gives them."""
        *_, rate, rate_sd = self._fields(rows)
        return _apparent(rate, rate_sd, np.full_like(rate, LONG))

    def _fields(self, rows: Ints) -> Floats:
        fields: Floats = np.moveaxis(self._history.read[rows], -2, 0)
        return fields


def _apparent(mean: object, sd: object, relaxations: object) -> Apparent:
    arrays = (np.asarray(each, np.float64) for each in (mean, sd, relaxations))
    return Apparent(*arrays)
