"""What metrics were in quiet times: lines through the load, and means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dial.classifier.metrics import LEAST_CORES, LEAST_FRACTION, LINES, MEANS, Metrics
from dial.columns import Bools, Columns, Floats

_WAIT, _WAIT_SQUARED = (MEANS.index(name) for name in ("cpu_wait", "cpu_wait_squared"))
_DISK, _DISK_SQUARED = (MEANS.index(name) for name in ("disk_wait", "disk_wait_squared"))

WAIT_VARIES = 0.6
"""Of the time that a request uses the CPU and waits for it, relative to the mean; a sample's mean
varies less by the root of its requests.  In the lab's quiet times it was 0.53 of 58 requests
(exponential costs, a quota of 3 ms in 10).  Of the time waited for a disk as much is assumed; in
the lab's quiet times it is 0.2 of it for each byte."""

_MOST_DEVIATIONS = 1.5
"""What is learnt of a longer wait.  T_x of a few requests is as ever in one interval of two beside
a neighbour, and what is learnt of those decides how sure the next ones are: in a recorded block
four made that error 0.22 of 0.07, and load never moved; of three deviations each, a few still
doubled it (decisions 60 and 61).  It is the bound of Huber's estimator of location (Ann. Math.
Statist. 35, 1964), here on one side: where all is normal the deviation is 7 % too small."""

_TRUSTED_INTERVALS = 6.0
"""As the detector's: until then nothing counts as far out."""


@dataclass(frozen=True, slots=True, eq=False)
class Line(Columns):
    """Fading non-negative least-squares lines y = alpha + beta n, as their five sums: (n, k)."""

    weight: Floats
    sum_n: Floats
    sum_nn: Floats
    sum_y: Floats
    sum_ny: Floats

    def learn(self, n: Floats, y: Floats, fade: float, known: Bools) -> Line:
        """Add the points (n, y); older points count ``fade`` of what they did.

        Parameters
        ----------
        n : (n, 1) abscissae.
        y : (n, k).
        fade : 0 to 1.
        known : (n, k) which of them there are; the other lines are left as they are.
        """

        def add(past: Floats, newest: Floats | float) -> Floats:
            return np.where(known, past * fade + newest, past)

        return Line(
            add(self.weight, 1.0),
            add(self.sum_n, n),
            add(self.sum_nn, n * n),
            add(self.sum_y, y),
            add(self.sum_ny, n * y),
        )

    def predict(self, n: Floats) -> Floats:
        """The values of y at n; NaN where nothing was learnt."""
        weight, swings = np.where(self.weight == 0.0, np.nan, self.weight), self.swings()
        mean = self.sum_y / weight
        spread = weight * self.sum_nn - self.sum_n * self.sum_n
        beta = (weight * self.sum_ny - self.sum_n * self.sum_y) / np.where(swings, spread, 1.0)
        alpha = (self.sum_y - beta * self.sum_n) / weight
        idle = self.sum_nn == 0.0
        all_slope = np.where(idle, mean, self.sum_ny / np.where(idle, 1.0, self.sum_nn) * n)
        line = np.where(alpha >= 0.0, alpha + beta * n, all_slope)
        return np.where(swings, np.where(beta <= 0.0, mean, line), all_slope)

    def swings(self) -> Bools:
        """Whether n differed enough to tell the slope from what y is without n."""
        spread = self.weight * self.sum_nn - self.sum_n * self.sum_n
        # spread / sum_n^2 is the squared coefficient of variation of the load.  Below 10 %, which
        # Poisson arrivals alone make at a hundred requests an interval, the slope would be set by
        # what the metric does for other reasons.
        swings: Bools = spread > 1e-2 * self.sum_n * self.sum_n
        return swings


@dataclass(frozen=True, slots=True, eq=False)
class Mean(Columns):
    """Fading means, (n, k)."""

    weight: Floats
    sum_y: Floats

    def learn(self, y: Floats, fade: float, known: Bools) -> Mean:
        """Add ``y`` (n, k) where it is ``known``; older values count ``fade`` of what they did."""
        return Mean(
            np.where(known, self.weight * fade + 1.0, self.weight),
            np.where(known, self.sum_y * fade + y, self.sum_y),
        )

    def of_width(self, k: int) -> Mean:
        """Of so many metrics: a state of before one was added knows nothing of it."""
        missing = k - self.weight.shape[1]
        return self.each(lambda sums: np.pad(sums, ((0, 0), (0, missing)))) if missing else self

    def value(self) -> Floats:
        """The means; NaN where nothing was learnt."""
        mean: Floats = self.sum_y / np.where(self.weight == 0.0, np.nan, self.weight)
        return mean


@dataclass(frozen=True, slots=True, eq=False)
class QuietBaseline(Columns):
    """What the backends' metrics were while nobody disturbed them.

    Immutable: :meth:`learn` returns the next one.
    """

    lines: Line
    means: Mean

    @classmethod
    def blank(cls, n: int) -> QuietBaseline:
        """Nothing is known of n backends."""
        line, mean = np.zeros((n, len(LINES))), np.zeros((n, len(MEANS)))
        return cls(Line(line, line, line, line, line), Mean(mean, mean))

    def learn(self, now: Metrics, where: Bools, *, memory_intervals: int) -> QuietBaseline:
        """Learn one quiet interval of the backends ``where`` (n,) is true.

        Metrics that are missing leave theirs unchanged.
        """
        fade = 1.0 - 1.0 / memory_intervals
        explained = np.array([now[name] for name in LINES]).T
        others = np.array([now[name] for name in MEANS]).T
        varies = WAIT_VARIES / np.sqrt(np.maximum(now.requests, 1.0))
        (cpu, cpu_sd), (disk, disk_sd) = self.wait(), self.disk_wait()
        for at, squared, mean, sd in (
            (_WAIT, _WAIT_SQUARED, cpu, np.fmax(cpu_sd, varies * (1.0 + cpu))),
            (_DISK, _DISK_SQUARED, disk, np.fmax(disk_sd, varies * disk)),
        ):
            others[:, at] = self._bounded(others[:, at], mean + _MOST_DEVIATIONS * sd, at)
            others[:, squared] = others[:, at] ** 2
        n = now.served_per_s[:, None]
        known = where[:, None] & ~np.isnan(others)
        # Who does not run, or hardly reads, does not wait: that is no reference for when it does.
        known[:, [_WAIT, _WAIT_SQUARED]] &= (now["cpu_time"] >= LEAST_CORES)[:, None]
        known[:, [_DISK, _DISK_SQUARED]] &= (now.waits_for_disk >= LEAST_FRACTION)[:, None]
        return QuietBaseline(
            self.lines.learn(n, explained, fade, where[:, None] & ~np.isnan(explained)),
            self._means.learn(others, fade, known),
        )

    def _bounded(self, waited: Floats, most: Floats, column: int) -> Floats:
        """(n,) what is learnt of the time waited for something: what is far out counts as less."""
        far = (waited > most) & (self._means.weight[:, column] >= _TRUSTED_INTERVALS)
        return np.where(far, most, waited)

    def wait(self) -> tuple[Floats, Floats]:
        """(n,) mean and standard deviation of the CPU time waited for, for each second used.

        In quiet times; NaN where nothing was learnt.
        """
        return self._mean_and_sd(_WAIT, _WAIT_SQUARED)

    def disk_wait(self) -> tuple[Floats, Floats]:
        """(n,) the same of the time in which somebody waits for the disk, s for each byte."""
        return self._mean_and_sd(_DISK, _DISK_SQUARED)

    def _mean_and_sd(self, column: int, squared: int) -> tuple[Floats, Floats]:
        means = self._means.value()
        mean, square = means[:, column], means[:, squared]
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))

    @property
    def _means(self) -> Mean:
        return self.means.of_width(len(MEANS))

    def expected(self, metric: str, served_per_s: Floats) -> Floats:
        """(n,) of a metric, at so many requests/s; NaN where nothing was learnt."""
        if metric in LINES:
            column = LINES.index(metric)
            return self.lines.each(lambda sums: sums[:, column]).predict(served_per_s)
        column = MEANS.index(metric)
        return self._means.each(lambda sums: sums[:, column]).value()

    def tells_idle(self, metric: str) -> Bools:
        """(n,) whether what a metric is without load was told from what load makes of it.

        Parameters
        ----------
        metric : one of :data:`dial.classifier.metrics.LINES`.
        """
        column = LINES.index(metric)
        return self.lines.each(lambda sums: sums[:, column]).swings()

    def has_learnt(self, metric: str, row: int) -> bool:
        """Whether anything is known of a metric of one backend."""
        if metric in LINES:
            return bool(self.lines.weight[row, LINES.index(metric)] > 0.0)
        return bool(self._means.weight[row, MEANS.index(metric)] > 0.0)
