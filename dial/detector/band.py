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

import math
from dataclasses import dataclass, replace

from scipy.special import stdtrit

from dial.detector.signal import Signal
from dial.types import Measured, NoData

_LEAST_RELATIVE_DEVIATION = 0.05
"""A deviation below 5 % of the mean is not believed.

A log of whole milliseconds shows six intervals of exactly 5 ms, and a band without width
would then be left by 5.001.  The band becomes 10 % wide: less than that nobody would move
load for.
"""


@dataclass(frozen=True, slots=True)
class BandState:
    """What is remembered of one backend's quiet past.

    Attributes
    ----------
    learnt
        Number of intervals learnt.
    weight, mean_ms, m2_ms2
        The same number fading, their mean and sum of squared deviations.
    held_back_ms
        Exceedances of the present run, not learnt yet.
    """

    learnt: int = 0
    weight: float = 0.0
    mean_ms: float = 0.0
    m2_ms2: float = 0.0
    held_back_ms: tuple[float, ...] = ()


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

    def upper_ms(self, state: BandState) -> Measured:
        """Upper edge of the band in milliseconds."""
        # Not the fading number: it never gets past memory_intervals.
        if state.learnt < self.learn_intervals:
            return NoData(f"{state.learnt} of {self.learn_intervals} quiet intervals learnt")
        freedom = state.weight - 1.0
        deviation_ms = max(
            math.sqrt(state.m2_ms2 / freedom), _LEAST_RELATIVE_DEVIATION * state.mean_ms
        )
        quantile = float(stdtrit(freedom, (1.0 + self.confidence) / 2.0))
        return state.mean_ms + quantile * deviation_ms * math.sqrt(1.0 + 1.0 / state.weight)

    def step(self, state: BandState, t_x_ms: Measured, *, learn: bool) -> tuple[BandState, Signal]:
        """Look at one interval.

        Parameters
        ----------
        state : of this backend, as the last step left it.
        t_x_ms : tail latency of the interval; ``NoData`` leaves the run as it is.
        learn : whether this interval may be quiet (no load is shifted at present).
        """
        upper_ms = self.upper_ms(state)
        if isinstance(t_x_ms, NoData):
            return state, Signal(upper_ms, above=False, likely=False, detected=False, calm=True)
        if isinstance(upper_ms, NoData) or t_x_ms <= upper_ms:
            if learn:
                # A full run was a detection, not noise.
                noise_ms = state.held_back_ms if len(state.held_back_ms) < self.successive else ()
                for quiet_ms in (*noise_ms, t_x_ms):
                    state = self._learn(state, quiet_ms)
            return replace(state, held_back_ms=()), Signal(
                upper_ms, above=False, likely=False, detected=False, calm=True
            )
        run = (*state.held_back_ms, t_x_ms)[-self.successive :]
        detected = len(run) >= self.successive
        return replace(state, held_back_ms=run), Signal(
            upper_ms, above=True, likely=detected, detected=detected, calm=False
        )

    def _learn(self, state: BandState, t_x_ms: float) -> BandState:
        """Welford's update, with the past fading at rate 1/memory_intervals."""
        fade = 1.0 - 1.0 / self.memory_intervals
        weight = state.weight * fade + 1.0
        delta_ms = t_x_ms - state.mean_ms
        mean_ms = state.mean_ms + delta_ms / weight
        m2_ms2 = state.m2_ms2 * fade + delta_ms * (t_x_ms - mean_ms)
        return replace(
            state, learnt=state.learnt + 1, weight=weight, mean_ms=mean_ms, m2_ms2=m2_ms2
        )
