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
    gone
        Of what spoke for a neighbour h/4 is left when it has gone: too little for one more slow
        interval to be a detection, enough for nothing to be learnt before one was quiet.
    another normal
        A detection that lasts for ``memory_intervals`` and moved no load is no neighbour's: a
        new release, another kind of machine.  Then learning begins anew; and also when it
        becomes known how much load is the backend's own.

Source
    Page, "Continuous inspection schemes", Biometrika 41, 1954; Siegmund, "Sequential Analysis",
    1985.  The paper (2.3.1) has a band (:mod:`dial.detector.band`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from dial.columns import Bools, Columns, Floats, Ints
from dial.detector.held_back import forget, hold_back, none_held_back
from dial.detector.moments import with_one_more
from dial.detector.signal import Signal
from dial.queueing import LEAST_T_X_MS, idle_fraction

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

_FEW = 20
"""Quantiles that take no longer than to find out which of them are the same."""

_MOST_HELD_BACK = 50
"""A run without detection is over after a handful; this only bounds a recording's lines."""


@dataclass(frozen=True, slots=True, eq=False)
class CusumState(Columns):
    """What is remembered of each backend, (n,).

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
        (n, k) x of intervals that are not learnt yet (:mod:`dial.detector.held_back`).
    """

    learnt: Ints
    weight: Floats
    mean: Floats
    m2: Floats
    requests: Floats
    evidence: Floats
    conditioned: Bools
    detected_for: Ints
    held_back: Floats

    @classmethod
    def blank(cls, n: int) -> CusumState:
        """Nothing is known of n backends."""
        none, zero = np.zeros(n, np.int64), np.zeros(n)
        known = np.zeros(n, np.bool_)
        return cls(none, zero, zero, zero, zero, zero, known, none, none_held_back(n))

    def calmed(self, where: Bools) -> CusumState:
        """Without the present evidence ``where`` (n,) is true; the quiet past stays."""
        if not where.any():
            return self
        calm = self.changed(
            where, evidence=np.zeros(where.size), detected_for=np.zeros_like(self.learnt)
        )
        return calm.but(held_back=forget(self.held_back, where))

    def doubted(self, where: Bools, most: float) -> CusumState:
        """With no more than ``most`` of the present evidence ``where`` (n,) is true."""
        less = np.minimum(self.evidence, most)
        return self.changed(where, evidence=less, detected_for=np.zeros_like(self.learnt))


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
        t_x_ms: Floats,
        rho_fg: Floats,
        requests: Ints | Floats,
        *,
        learn: bool,
    ) -> tuple[CusumState, Signal]:
        """Look at one interval.

        Parameters
        ----------
        state : of the backends, as the last step left it.
        t_x_ms : (n,) tail latency of the interval; NaN leaves the evidence as it is.
        rho_fg : (n,) the backend's own utilisation; where it is NaN T_x is taken as it is.
        requests : (n,) how many ``t_x_ms`` rests on.
        learn : whether this interval may be quiet (no load is shifted at present).
        """
        conditioned = ~np.isnan(rho_fg)
        state = self._begin_anew(state, conditioned != state.conditioned)
        idle = idle_fraction(rho_fg)
        x = np.log(np.maximum(t_x_ms, LEAST_T_X_MS) * idle)
        state, signal = self.watch(state.but(conditioned=conditioned), x, requests, learn=learn)
        return state, signal.but(upper_ms=np.exp(signal.upper_ms) / idle)

    def watch(
        self, state: CusumState, x: Floats, requests: Ints | Floats, *, learn: bool
    ) -> tuple[CusumState, Signal]:
        """Look at one residual, of whichever witness; ``upper_ms`` is what x was to be at most.

        Parameters
        ----------
        state : of the backends and this witness.
        x : (n,) the residual; NaN leaves the evidence as it is.
        requests : (n,) how many it rests on.
        learn : whether this interval may be quiet.
        """
        state = self._begin_anew(state, state.detected_for >= self.memory_intervals)
        learnt, heard = state.learnt, ~np.isnan(x)
        trusted = learnt >= self.learn_intervals
        looked_at = heard & trusted
        deviation = self._deviation(state, trusted, requests)
        freedom = np.where(trusted, state.weight - 1.0, 1.0)
        edge = state.mean + self._quantile(freedom) * deviation

        likelihood = stdtr(freedom, (x - state.mean) / deviation)
        most_at_once = self.slack + _MOST_AT_ONCE * self.threshold
        z = np.minimum(ndtri(np.minimum(likelihood, _LARGEST_PROBABILITY)), most_at_once)
        # What is far above the threshold would only take longer to be forgotten.
        summed = np.minimum(
            np.maximum(0.0, state.evidence + z - self.slack), _MOST * self.threshold
        )
        evidence = np.where(looked_at, summed, state.evidence)
        above = looked_at & (x > edge)
        likely = trusted & (evidence >= _LIKELY * self.threshold)
        detected = trusted & (evidence >= self.threshold)
        # A neighbour would have been found meanwhile, and load shifted: then this stands still.
        lasts = np.where(detected, state.detected_for + learn, 0)
        noise = np.minimum(x, state.mean + _NOISE_DEVIATIONS * deviation)
        state = state.changed(looked_at, evidence=evidence, detected_for=lasts)
        if learn:
            state = self._learn(state, x, requests, heard & ~trusted)
            state = self._learn_quiet(state, noise, requests, looked_at)
        else:
            state = state.but(held_back=forget(state.held_back, looked_at))
        return state, Signal(
            np.where(trusted, edge, np.nan),
            above=above | likely,
            likely=likely,
            detected=detected,
            # To learn only while S is 0 would be to learn the faster four fifths of all intervals.
            calm=~trusted | (~above & (evidence < _CALM * self.threshold)),
            learnt=learnt,
        )

    def ended(self, state: CusumState, where: Bools) -> CusumState:
        """After a neighbour that was found has gone, ``where`` (n,) is true.

        What spoke for it speaks for nothing any more, or the next slow interval would do for
        another one.  Little is left, so that nothing is learnt before an interval is quiet.
        """
        return state.doubted(where, _CALM * self.threshold) if where.any() else state

    def _begin_anew(self, state: CusumState, anew: Bools) -> CusumState:
        """Forget what has become another quantity, or a detection that has become normal."""
        if not anew.any():
            return state
        held_back = forget(state.held_back, anew)
        blank = CusumState.blank(anew.size).but(held_back=held_back, conditioned=state.conditioned)
        return blank.where(anew, state.but(held_back=held_back))

    def _deviation(self, state: CusumState, trusted: Bools, requests: Ints | Floats) -> Floats:
        """Standard deviation of the next x about the mean learnt; any where it is not trusted."""
        weight = np.where(trusted, state.weight, 2.0)
        learnt = np.maximum(np.sqrt(state.m2 / (weight - 1.0)), _LEAST_DEVIATION)
        fewer = np.maximum(1.0, state.requests / np.maximum(requests, 1))
        deviation: Floats = learnt * np.sqrt((1.0 + 1.0 / weight) * fewer)
        return deviation

    def _quantile(self, freedom: Floats) -> Floats:
        """Of Student's t at the upper edge."""
        probability = (1.0 + self.confidence) / 2.0
        if freedom.size < _FEW:
            return np.asarray(stdtrit(freedom, probability), np.float64)
        # It is slow, and backends have learnt alike: once for all that have learnt as much.
        distinct, place = np.unique(freedom, return_inverse=True)
        return np.asarray(stdtrit(distinct, probability)[place], np.float64)

    def _learn_quiet(
        self, state: CusumState, noise: Floats, requests: Ints | Floats, where: Bools
    ) -> CusumState:
        """Hold an interval back; once there is no evidence all that was held back is learnt."""
        over = where & (state.evidence == 0.0)
        for x in state.held_back.T:
            state = self._learn(state, x, requests, over & ~np.isnan(x))
        state = self._learn(state, noise, requests, over)
        held_back = hold_back(state.held_back, noise, where & ~over, at_most=_MOST_HELD_BACK)
        ended = over | (where & (state.evidence >= self.threshold))
        return state.but(held_back=forget(held_back, ended))

    def _learn(
        self, state: CusumState, x: Floats, requests: Ints | Floats, where: Bools
    ) -> CusumState:
        if not where.any():
            return state
        weight, mean, m2 = with_one_more(
            state.weight, state.mean, state.m2, x, memory_intervals=self.memory_intervals
        )
        return state.changed(
            where,
            learnt=state.learnt + 1,
            weight=weight,
            mean=mean,
            m2=m2,
            requests=state.requests + (requests - state.requests) / weight,
        )
