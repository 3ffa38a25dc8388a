"""How much more T_x and CPU times vary than by sampling, as a backend's own quiet past has it.

Problem
    Backends are compared by few requests, with the error that costs would make that vary by about
    their mean (:mod:`dial.controller.control_groups`).  Those of many a service vary more: let one
    request of fifty cost twenty times as much as the mean.  Its backend is then slow for some
    seconds, the CPU time of a request is a multiple, and by the errors of sampling both are sure.
    Simulated so, three backends had 25 and 65 mitigations an hour for nothing (decision 47).

Formula
    The standard errors of both witnesses are multiplied by

        sqrt(max(1, (p v0 + S) / (p v0 + w v0)))

    with S the fading sum of squared deviations in quiet times, of w intervals, v0 the variance by
    sampling alone, and p = 30 intervals that are assumed to have had it: of six intervals a
    variance is off by a half, and half a minute of strangers is no habit.

    T_x: S is the detector's, of its residual (:mod:`dial.detector.cusum`), and v0 that of
    :func:`dial.queueing.t_x_error` at the usual load.  CPU time of a request: summed up
    is (s' - s)^2 / (1/n' + 1/n), s and s' being that over the expected one in two intervals
    (:data:`dial.controller.history.SPACING_INTERVALS` apart) and n and n' the requests that each
    rests on, so that v0 is 1.  Dear requests make intervals differ from each other, and a neighbour
    makes them all alike: of their mean nothing is to be learnt.

Regimes
    costs that vary by about their mean
        Both are 1, or little more.
    one interval far out
        Counts at most three deviations as they are known.
    a neighbour has come
        Two differences are large, and the others are as before: the intervals in which it is
        suspected do not make it less sure.
    a load has just begun
        An agent's sample is partly of the time without it, and of the CPU time of a request a third
        is seen.  Nothing is learnt then (:meth:`dial.controller.history.History.has_load`): in the
        first two seconds of four recorded blocks it widened the error from 1.04 to 1.3 times and
        more, and load left a neighbour that came with it 1.5 to 2.5 s later.
    a controller has just begun
        An agent's first sample may be of a time without requests, and requests then seem eight
        times as dear as "usual".  Until it is known what is usual nothing counts as far out.
    a stranger comes and goes in quiet times
        What it does to T_x is noise as well: who always has one is slower to see another.

Source
    Own; differences in place of deviations from a mean that may move are von Neumann's (1941).
    What the balancer gives a backend, and the wait for the CPU, are treated alike where they
    are read (:mod:`dial.controller.passed_over`, :mod:`dial.controller.look`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dial.columns import Bools, Columns, Floats
from dial.detector import CusumState
from dial.queueing import t_x_error

_ASSUMED_INTERVALS = 30.0
"""p."""

_ASSUMED_OF_RATES = 10.0
"""The same of what the balancer gives: Poisson arrivals are what a policy that evens out stays well
below, so that with more of them it says less than it knows."""

_LEAST_OF_RATES = 0.5
"""Of the deviation of Poisson arrivals: idle backends take turns, and busy ones do not."""

_FEWEST_INTERVALS = 15.0
"""In which CPU times were seen; of an exponential cost's variation a third is chance then."""

_MOST_NOISE = 1.5
"""By how much more than assumed costs may vary.  In the lab, where they are exponential, it is 1.0
to 1.4 in quiet times, and up to 2 where strangers were in the cache."""

_MOST_DEVIATIONS = 3.0
"""As the detector's (:mod:`dial.detector.cusum`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise(Columns):
    """By how much standard errors are larger than those of sampling, (n,); 1 and more.

    Attributes
    ----------
    t_x, cpu_time
        Of T_x, and of the CPU time of a request.
    costs
        As ``cpu_time``, with intervals far out counting in full: one heavy request is enough.
    intervals
        In how many quiet ones CPU times were seen; older ones fade.
    """

    t_x: Floats
    cpu_time: Floats
    costs: Floats
    intervals: Floats

    @property
    def alike(self) -> Bools:
        """(n,) whether costs are known to be alike: no heavy request makes one seem slowed."""
        found: Bools = (self.intervals >= _FEWEST_INTERVALS) & (self.costs <= _MOST_NOISE)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Costs(Columns):
    """How much the CPU time of a request varied in quiet times, (n,).

    Attributes
    ----------
    weight
        Number of intervals, fading.
    squares
        Sum of (s' - s)^2 / (1/n' + 1/n), each bounded.
    far
        What the bound has taken off, since it was known what is expected: a first sample may be of
        a time before the first requests, and the next one is eight times as dear then.
    """

    weight: Floats
    squares: Floats
    far: Floats

    @classmethod
    def blank(cls, n: int) -> Costs:
        """Nothing is known of n backends."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(n))

    def variation(self, *, far: bool = False) -> Floats:
        """(n,) of one request, as a part of the mean, squared; with what is ``far`` out or not."""
        squares = self.squares + self.far if far else self.squares
        return _variance(squares, self.weight, 1.0, _ASSUMED_INTERVALS)

    def learn(
        self,
        slowdown: tuple[Floats, Floats],
        requests: tuple[Floats, Floats],
        trusted: Bools,
        *,
        memory_intervals: int,
    ) -> Costs:
        """One more interval.

        Parameters
        ----------
        slowdown : (n,) CPU time of a request over the expected one, in two intervals; where one
            is NaN nothing is learnt.
        requests : (n,) how many each of the two rests on.
        trusted : (n,) whether it is known what is expected.
        memory_intervals : after so many a learnt one counts 1/e.
        """
        fade = 1.0 - 1.0 / memory_intervals
        (before, now), (n_before, n_now) = slowdown, requests
        per_request = 1.0 / np.maximum(n_before, 1.0) + 1.0 / np.maximum(n_now, 1.0)
        square = (now - before) ** 2 / per_request
        known = ~np.isnan(square)
        bounded = np.minimum(square, _MOST_DEVIATIONS**2 * self.variation())

        def add(past: Floats, newest: Floats | float) -> Floats:
            return np.where(known, past * fade + newest, past)

        far = np.where(trusted, square - bounded, 0.0)
        return Costs(add(self.weight, 1.0), add(self.squares, bounded), add(self.far, far))


def noise(costs: Costs, residual: CusumState, usual_rho_fg: Floats, percentile: float) -> Noise:
    """The noise of both witnesses.

    Parameters
    ----------
    costs : of CPU time.
    residual : the detector's, of T_x.
    usual_rho_fg : (n,) the backends' own utilisation that it was learnt at; NaN is none.
    percentile : x of T_x.
    """
    n = np.maximum(residual.requests, 1.0)
    by_sampling = t_x_error(n, np.nan_to_num(usual_rho_fg), percentile) ** 2
    of_t_x = _variance(residual.m2, _freedom(residual), by_sampling, _ASSUMED_INTERVALS)
    return Noise(
        _larger(of_t_x / by_sampling),
        _larger(costs.variation()),
        _larger(costs.variation(far=True)),
        costs.weight,
    )


def rate_deviation(residual: CusumState, by_sampling: Floats, requests: Floats) -> Floats:
    """(n,) of what the balancer gives: as it was in quiet times, or by sampling at first.

    Parameters
    ----------
    residual : what was learnt of its residual (:mod:`dial.controller.passed_over`).
    by_sampling : (n,) its standard deviation, had the past been like that.
    requests : (n,) how many the next one rests on; of fewer than usual it is less sure.
    """
    fewer = np.maximum(1.0, residual.requests / np.maximum(requests, 1.0))
    squares, weight = residual.m2 * fewer, _freedom(residual)
    learnt = np.sqrt(_variance(squares, weight, by_sampling**2, _ASSUMED_OF_RATES))
    found: Floats = np.maximum(learnt, _LEAST_OF_RATES * by_sampling)
    return found


def _variance(
    squares: Floats, weight: Floats, by_sampling: Floats | float, assumed: float
) -> Floats:
    """(n,) as learnt, after so many ``assumed`` intervals that had it ``by_sampling``."""
    found: Floats = (assumed * by_sampling + squares) / (assumed + weight)
    return found


def _freedom(residual: CusumState) -> Floats:
    """(n,) Intervals that the squared deviations are of: the mean takes one."""
    found: Floats = np.maximum(residual.weight - 1.0, 0.0)
    return found


def _larger(variance: Floats) -> Floats:
    found: Floats = np.sqrt(np.maximum(variance, 1.0))
    return found
