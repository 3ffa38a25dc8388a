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
        (n,) how many ended in the interval; the CPU time is of ``overlap`` times as many.
    wait, wait_sd
        (n,) rho_bg by the CPU time waited for, and its standard error; NaN as ``slow``.
    rate, rate_sd
        (n,) rho_bg by what the balancer gives it beside its siblings, so that it is compared
        already, and its standard error; NaN where that is not known.
    stretch
        (n,) CPU time used and waited for, for each CPU second used, over the quiet one, and over
        what moved load makes of it; NaN as ``slow``.
    overlap
        (n,) how many intervals the agent's sample is long, and CPU times are of; 1 and more.
    disk, disk_sd
        (n,) rho_bg by the time waited for the disk, and its standard error; NaN as ``slow``.
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
    stretch: Floats
    overlap: Floats
    disk: Floats
    disk_sd: Floats

    @property
    def sampled(self) -> Floats:
        """How many requests the CPU time is of."""
        return self.requests * np.fmax(self.overlap, 1.0)

    @property
    def persistence(self) -> Floats:
        """How long the interval is, in relaxation times of a sample's error.

        Errors of samples that are m intervals long, and k apart, go together by 1 - k/m, summed
        over all k by m.  Averages of an Ornstein-Uhlenbeck process over intervals of a relaxation
        times do by as much where (1 - e^-a)/a is 1 - 1/m.  With 1/(1 + a/2 + a^2/12) for the left
        side, and one step of iteration, a is found to within a hundredth.
        """
        longer = np.fmax(self.overlap - 1.0, 1.0 / LONG)
        about = np.sqrt(9.0 + 12.0 / longer) - 3.0
        found: Floats = (1.0 + 1.0 / longer) * -np.expm1(-about)
        return found

    @property
    def residence(self) -> Floats:
        """Time of a request at the CPU, using it and waiting for it, over the quiet one.

        Where it is not known how long it waits, what it uses.
        """
        return self.slowdown * np.where(np.isnan(self.stretch), 1.0, self.stretch)


@dataclass(frozen=True, slots=True, eq=False)
class Apparent:
    """What a neighbour would have to take to make backends as slow as they were, by one witness.

    All are of one shape, the last axis being intervals, the newest last.

    Attributes
    ----------
    mean, sd
        rho_bg, NaN where the witness says nothing, and its standard error.
    relaxations
        How long the interval is, in relaxation times of what makes it wrong: T_x of two intervals
        that are short go together, as the backend's queue does, and CPU times as far as samples
        overlap (:attr:`Read.persistence`).
    """

    mean: Floats
    sd: Floats
    relaxations: Floats

    @property
    def of_siblings(self) -> Apparent:
        """Of groups (k, m, w), without the backends themselves, which come first."""
        return Apparent(self.mean[:, 1:], self.sd[:, 1:], self.relaxations[:, 1:])


@dataclass(frozen=True, slots=True, eq=False)
class History(Columns):
    """The last intervals of n backends.

    Attributes
    ----------
    read
        (n, 13, w) the fields of :class:`Read`, of w intervals, the newest last.
    """

    read: Floats

    @classmethod
    def blank(cls, n: int) -> History:
        """No interval of n backends yet."""
        return cls(np.full((n, len(Read.__slots__), WINDOW_INTERVALS), math.nan))

    def then(self, newest: Read) -> History:
        """One interval more."""
        n, fields, width = self.read.shape
        # A state of before a field was added knows nothing of it: new ones come last.
        read = np.full((n, len(Read.__slots__), width + 1), math.nan)
        read[:, :fields, :-1] = self.read
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

    def requests_of_samples(self) -> tuple[Floats, Floats]:
        """(n,) how many requests the samples of :meth:`spaced` are of."""
        sampled = Read(*np.moveaxis(self.read, 1, 0)).sampled
        return sampled[:, -1 - SPACING_INTERVALS], sampled[:, -1]

    def _field(self, name: str) -> Floats:
        """(n, w) one of :class:`Read`, by interval."""
        found: Floats = self.read[:, Read.__slots__.index(name)]
        return found

    def latest(self) -> History:
        """As many as are compared."""
        return History(self.read[:, :, -WINDOW_INTERVALS:])


class Witnesses:
    """What T_x, the CPU and the disk of a request, and the balancer's choice say of it.

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
        fields = self._fields(rows)
        reading = Reading(MM1, fields.slow, fields.rho_fg, fields.t_x_requests, self._percentile)
        mean, sd = self._sampling.alone(reading)
        sd *= self.noise.t_x[rows][..., None]
        return _apparent(mean, sd, np.minimum(reading.relaxations(mean), LONG))

    def t_x_speaks(self, rows: Ints) -> Bools:
        """Of which intervals T_x says anything, (..., w) for rows (...,)."""
        fields = self._fields(rows)
        speaks: Bools = ~(np.isnan(fields.slow) | np.isnan(fields.rho_fg))
        return speaks

    def by_cpu_time(self, rows: Ints) -> Apparent:
        """The same by the CPU time of a request."""
        fields = self._fields(rows)
        mean, sd = self._cpu_time(fields, rows)
        return _apparent(mean, sd, fields.persistence)

    def by_cpu_residence(self, rows: Ints) -> Apparent:
        """The same by the time that a request is at the CPU, using it and waiting for it."""
        fields = self._fields(rows)
        mean, sd = self._cpu_time(fields, rows)
        left = 1.0 / fields.residence
        varies = np.hypot(sd / (1.0 - mean), np.nan_to_num(fields.wait_sd / (1.0 - fields.wait)))
        return _apparent(1.0 - left, left * varies, fields.persistence)

    def _cpu_time(self, read: Read, rows: Ints) -> tuple[Floats, Floats]:
        # One heavy request is in a sample for as long as that is.
        alike = self.noise.alike[rows][..., None]
        requests = np.where(alike, read.sampled, read.requests)
        reading = Reading(SLOWDOWN, read.slowdown, 0.0, requests, percentile=None)
        mean, sd = self._sampling.alone(reading)
        return np.asarray(mean), np.asarray(sd) * self.noise.cpu_time[rows][..., None]

    def by_cpu_wait(self, rows: Ints) -> Apparent:
        """The same by the CPU time waited for."""
        fields = self._fields(rows)
        return _apparent(fields.wait, fields.wait_sd, fields.persistence)

    def by_disk_wait(self, rows: Ints) -> Apparent:
        """The same by the time waited for the disk."""
        fields = self._fields(rows)
        return _apparent(fields.disk, fields.disk_sd, fields.persistence)

    def by_rate(self, rows: Ints) -> Apparent:
        """The same by what the balancer gives them."""
        fields = self._fields(rows)
        return _apparent(fields.rate, fields.rate_sd, np.full_like(fields.rate, LONG))

    def _fields(self, rows: Ints) -> Read:
        read = self._history.read[rows]
        return Read(*(read[..., at, :] for at in range(read.shape[-2])))


def _apparent(mean: object, sd: object, relaxations: object) -> Apparent:
    arrays = (np.asarray(each, np.float64) for each in (mean, sd, relaxations))
    return Apparent(*arrays)
