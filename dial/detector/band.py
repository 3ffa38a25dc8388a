r"""The paper's detector: T_x above a confidence band for successive intervals.

Problem
    Decide from one tail latency per interval whether a backend is slower than in its own
    quiet past.

Formula
    With n quiet intervals of mean m and standard deviation d, the next quiet T_x lies
    below

        upper = m + t(n - 1) d sqrt(1 + 1/n)

    with probability (1 + confidence)/2; t is the quantile of Student's distribution with
    n - 1 degrees of freedom.  ``successive`` intervals in a row above it are a detection.

Regimes
    Few quiet intervals: t and 1/n widen the band, so a detector that knows little is slow
    to accuse.  Many: upper tends to m + 1.96 d.  After the load moved, or while a detection
    lasts, the band stands still: it must never learn contention as normal.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.1 and step 1 of 2.5.

Departures
    * A prediction band of one further interval, where the paper says confidence interval
      of the mean: that one shrinks to nothing as n grows and would accuse every second
      interval.
    * A single exceedance that was not followed by another was noise, and noise belongs in
      the band: it is held back and learnt when the run of exceedances ends.  Leaving
      exceedances out for good would narrow the band with every one of them.
    * The past is forgotten slowly (``memory_intervals``), as days differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dial.columns import Bools, Columns, Floats, Ints
from dial.detector.held_back import forget, hold_back, none_held_back
from dial.detector.moments import with_one_more
from dial.detector.signal import Signal

_LEAST_RELATIVE_DEVIATION = 0.05
"""A deviation below 5 % of the mean is not believed.

A log of whole milliseconds shows six intervals of exactly 5 ms, and a band without width
would then be left by 5.001.  The band becomes 10 % wide: less than that nobody would move
load for.
"""


@dataclass(frozen=True, slots=True, eq=False)
class BandState(Columns):
    """What is remembered of each backend's quiet past, (n,).

    Attributes
    ----------
    learnt
        Number of intervals learnt.
    weight, mean_ms, m2_ms2
        The same number fading, their mean and sum of squared deviations.
    held_back_ms
        (n, k) exceedances of the present run, not learnt yet (:mod:`dial.detector.held_back`).
    """

    learnt: Ints
    weight: Floats
    mean_ms: Floats
    m2_ms2: Floats
    held_back_ms: Floats

    @classmethod
    def blank(cls, n: int) -> BandState:
        """Nothing is known of n backends."""
        zero = np.zeros(n)
        return cls(np.zeros(n, np.int64), zero, zero, zero, none_held_back(n))


@dataclass(frozen=True, slots=True)
class Band:
    """The detector's parameters; see the module for the rule.

    Parameters
    ----------
    confidence : two-sided, as the paper counts it: 0.95 leaves 2.5 % above.
    successive : exceedances in a row that are a detection.
    learn_intervals : quiet intervals before the band is trusted at all.
    memory_intervals : intervals after which a learnt one counts 1/e.
    """

    confidence: float = 0.95
    successive: int = 2
    learn_intervals: int = 6
    memory_intervals: int = 300

    def upper_ms(self, state: BandState) -> Floats:
        """Upper edge of the band in milliseconds, (n,); NaN where too little was learnt."""
        # Not the fading number: it never gets past memory_intervals.
        trusted = state.learnt >= self.learn_intervals
        weight = np.where(trusted, state.weight, 2.0)
        deviation_ms = np.maximum(
            np.sqrt(state.m2_ms2 / (weight - 1.0)), _LEAST_RELATIVE_DEVIATION * state.mean_ms
        )
        quantile = stdtrit(weight - 1.0, (1.0 + self.confidence) / 2.0)
        upper_ms = state.mean_ms + quantile * deviation_ms * np.sqrt(1.0 + 1.0 / weight)
        return np.where(trusted, upper_ms, np.nan)

    def step(self, state: BandState, t_x_ms: Floats, *, learn: bool) -> tuple[BandState, Signal]:
        """Look at one interval.

        Parameters
        ----------
        state : of the backends, as the last step left it.
        t_x_ms : (n,) tail latency of the interval; NaN leaves the run as it is.
        learn : whether this interval may be quiet (no load is shifted at present).
        """
        upper_ms, learnt = self.upper_ms(state), state.learnt
        above = t_x_ms > upper_ms
        inside = ~np.isnan(t_x_ms) & ~above
        held_back_ms = state.held_back_ms
        if learn:
            # A full run was a detection, not noise.
            noise = inside & (_lengths(held_back_ms) < self.successive)
            for noise_ms in held_back_ms.T:
                state = self._learn(state, noise_ms, noise & ~np.isnan(noise_ms))
            state = self._learn(state, t_x_ms, inside)
        held_back_ms = hold_back(held_back_ms, t_x_ms, above, at_most=self.successive)
        detected = above & (_lengths(held_back_ms) >= self.successive)
        state = state.but(held_back_ms=forget(held_back_ms, inside))
        return state, Signal(upper_ms, above, detected, detected, calm=~above, learnt=learnt)

    def _learn(self, state: BandState, t_x_ms: Floats, where: Bools) -> BandState:
        weight, mean_ms, m2_ms2 = with_one_more(
            state.weight,
            state.mean_ms,
            state.m2_ms2,
            t_x_ms,
            memory_intervals=self.memory_intervals,
        )
        return state.changed(
            where, learnt=state.learnt + 1, weight=weight, mean_ms=mean_ms, m2_ms2=m2_ms2
        )


def _lengths(runs: Floats) -> Ints:
    lengths: Ints = np.count_nonzero(~np.isnan(runs), axis=1)
    return lengths
