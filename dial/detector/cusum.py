r"""Evidence summed up over intervals: T_x against what the backend's own load explains.

Problem
    Of 100 requests T90 is off by 13 %, and a neighbour that takes a third of a machine with
    little load makes it half as long again: some of its intervals are above any band that
    keeps quiet, and the next is not.  A rule that asks for successive exceedances forgets
    the first; one that counts a single one accuses every twentieth quiet interval.

Formula
    The residual of an interval is what is left of T_x when its own load is taken out, by
    M/M/1's T_x ~ 1/(1 - rho_fg):

        x = ln( T_x (1 - rho_fg) )

    With n quiet intervals of mean m and standard deviation d, (x - m)/(d sqrt(1 + 1/n)) is
    Student's t with n - 1 degrees of freedom; z is the normal deviate of the same
    probability.  Evidence is summed up, and never falls below 0 (Page's test):

        S <- max(0, S + min(z, k + 0.49 h) - k),        detection while S >= h

    After quiet intervals two are not enough, and three that are far above are.  S >= h/2, for which
    two are enough, is *likely*: it takes another witness.

Regimes
    quiet
        S is 0 nearly always.  For normal z, k = 1 and h = 6 give a false alarm in 800,000
        intervals (Siegmund's approximation: (exp(2 b) - 1 - 2 b)/2 with b = h + 1.166), which is
        one in three days of a fleet of three at a second each, before the classifier, the
        estimate and the siblings have their say; h/2 one in 2,000.
    few quiet intervals
        t's wide tails make z small: a detector that knows little is slow to accuse.
    few requests
        Of fewer requests than usual T_x is less sure: d grows with sqrt(usual / now).
    contended
        While S > 0 intervals are held back: learnt when S is 0 again, and forgotten if it came
        to a detection.  (Leaving out for good what is slow would narrow the band with every
        such interval: 25 times the false alarms.)  What is more than three deviations above is
        learnt as three: a burst of 260 ms raised an edge of 14 to 188.
    another normal
        A detection that lasts for ``memory_intervals`` and moved no load is no neighbour's: a
        new release, another kind of machine.  Then learning begins anew; and also when it
        becomes known how much load is the backend's own.

Source
    Page, "Continuous inspection schemes", Biometrika 41, 1954; Siegmund, "Sequential Analysis",
    1985.  The paper (2.3.1) has a band (:mod:`dial.detector.band`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.special import ndtri, stdtr, stdtrit

from dial.detector.signal import Signal
from dial.queueing import LEAST_T_X_MS, idle_fraction
from dial.types import Measured, NoData

_LEAST_DEVIATION = 0.05
"""Of x, so 5 % of T_x.

A log of whole milliseconds shows six intervals of exactly 5 ms, and a band without width
would then be left by 5.001.
"""

_LARGEST_PROBABILITY = 1.0 - 1e-15
"""Beyond it the normal deviate is infinite."""

_MOST_AT_ONCE = 0.49
_MOST = 1.25
"""Of h: what one interval adds at most, and all of them together."""

_LIKELY, _CALM = 0.5, 0.25
"""Of h: where a slow backend is likely, and below which the interval may be learnt from."""

_NOISE_DEVIATIONS = 3.0
"""Normal noise is above it once in 740 intervals, so that the cut takes next to nothing of it."""

_MOST_HELD_BACK = 50
"""A run without detection is over after a handful; this only bounds a recording's lines."""


@dataclass(frozen=True, slots=True)
class CusumState:
    """What is remembered of one backend.

    Attributes
    ----------
    learnt
        Number of intervals learnt.
    weight, mean, m2
        The same number fading, and of x the mean and the sum of squared deviations.
    requests
        Mean number of requests that T_x rested on.
    evidence
        S.
    conditioned
        Whether the own load was taken out: with it x is another quantity than without.
    detected_for
        Intervals in a row of the present detection.
    held_back
        x of intervals that are not learnt yet, the newest of them.
    """

    learnt: int = 0
    weight: float = 0.0
    mean: float = 0.0
    m2: float = 0.0
    requests: float = 0.0
    evidence: float = 0.0
    conditioned: bool = False
    detected_for: int = 0
    held_back: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Cusum:
    """The detector's parameters; see the module for the rule.

    Parameters
    ----------
    slack : k, in standard deviations: what an interval may be above the mean for nothing.
    threshold : h, in standard deviations.
    confidence : two-sided; of the upper edge.
    learn_intervals : quiet intervals before anything is said.
    memory_intervals : intervals after which a learnt one counts 1/e.
    """

    slack: float = 1.0
    threshold: float = 6.0
    confidence: float = 0.95
    learn_intervals: int = 6
    memory_intervals: int = 300

    def step(
        self,
        state: CusumState,
        t_x_ms: Measured,
        rho_fg: Measured,
        requests: int,
        *,
        learn: bool,
    ) -> tuple[CusumState, Signal]:
        """Look at one interval.

        Parameters
        ----------
        state : of this backend, as the last step left it.
        t_x_ms : tail latency of the interval; ``NoData`` leaves the evidence as it is.
        rho_fg : the backend's own utilisation; without it T_x is taken as it is.
        requests : how many ``t_x_ms`` rests on.
        learn : whether this interval may be quiet (no load is shifted at present).
        """
        conditioned = not isinstance(rho_fg, NoData)
        if conditioned != state.conditioned:
            state = CusumState(conditioned=conditioned)
        idle = idle_fraction(rho_fg)
        x = t_x_ms if isinstance(t_x_ms, NoData) else _residual(t_x_ms, idle)
        state, signal = self.watch(state, x, requests, learn=learn)
        if isinstance(signal.upper_ms, NoData):
            return state, signal
        return state, replace(signal, upper_ms=math.exp(signal.upper_ms) / idle)

    def watch(
        self, state: CusumState, x: Measured, requests: int, *, learn: bool
    ) -> tuple[CusumState, Signal]:
        """Look at one residual, of whichever witness; ``upper_ms`` is what x was to be at most.

        Parameters
        ----------
        state : of this backend and witness.
        x : the residual; ``NoData`` leaves the evidence as it is.
        requests : how many it rests on.
        learn : whether this interval may be quiet.
        """
        if state.detected_for >= self.memory_intervals:
            state = CusumState(conditioned=state.conditioned)
        if state.learnt < self.learn_intervals:
            why = NoData(f"{state.learnt} of {self.learn_intervals} quiet intervals learnt")
            if learn and not isinstance(x, NoData):
                state = self._learn(state, x, requests)
            return state, Signal(why, above=False, likely=False, detected=False, calm=True)

        deviation = self._deviation(state, requests)
        freedom = state.weight - 1.0
        edge = state.mean + float(stdtrit(freedom, (1.0 + self.confidence) / 2.0)) * deviation
        if isinstance(x, NoData):
            return state, self._signal(state, edge, above=False)

        probability = min(float(stdtr(freedom, (x - state.mean) / deviation)), _LARGEST_PROBABILITY)
        z = min(float(ndtri(probability)), self.slack + _MOST_AT_ONCE * self.threshold)
        # What is far above the threshold would only take longer to be forgotten.
        evidence = min(max(0.0, state.evidence + z - self.slack), _MOST * self.threshold)
        state = replace(state, evidence=evidence)
        above = x > edge
        noise = min(x, state.mean + _NOISE_DEVIATIONS * deviation)
        held_back = (*state.held_back, noise)[-_MOST_HELD_BACK:] if learn else ()
        if evidence == 0.0:
            for quiet_x in held_back:
                state = self._learn(state, quiet_x, requests)
        if evidence == 0.0 or evidence >= self.threshold:
            held_back = ()
        # A neighbour would have been found meanwhile, and load shifted: then this stands still.
        detected_for = state.detected_for + learn if evidence >= self.threshold else 0
        state = replace(state, held_back=held_back, detected_for=detected_for)
        return state, self._signal(state, edge, above=above)

    def _signal(self, state: CusumState, upper_ms: float, *, above: bool) -> Signal:
        likely = state.evidence >= _LIKELY * self.threshold
        detected = state.evidence >= self.threshold
        # To learn only while S is 0 would be to learn the faster four fifths of all intervals.
        calm = not above and state.evidence < _CALM * self.threshold
        return Signal(upper_ms, above or likely, likely, detected, calm)

    def _deviation(self, state: CusumState, requests: int) -> float:
        """Standard deviation of the next x about the mean learnt."""
        learnt = max(math.sqrt(state.m2 / (state.weight - 1.0)), _LEAST_DEVIATION)
        fewer = max(1.0, state.requests / max(requests, 1))
        return learnt * math.sqrt((1.0 + 1.0 / state.weight) * fewer)

    def _learn(self, state: CusumState, x: float, requests: int) -> CusumState:
        """Welford's update, with the past fading at rate 1/memory_intervals."""
        fade = 1.0 - 1.0 / self.memory_intervals
        weight = state.weight * fade + 1.0
        delta = x - state.mean
        mean = state.mean + delta / weight
        return replace(
            state,
            learnt=state.learnt + 1,
            weight=weight,
            mean=mean,
            m2=state.m2 * fade + delta * (x - mean),
            requests=state.requests + (requests - state.requests) / weight,
        )


def _residual(t_x_ms: float, idle: float) -> float:
    return math.log(max(t_x_ms, LEAST_T_X_MS) * idle)
