r"""rho_bg followed over time: steady while the neighbour is, quick when it changes.

Problem
    T_x of one interval is noisy: of 25 requests P90 has a relative error of 26 %.  Weights
    that follow every estimate waver; an average that is slow enough not to waver hands
    load back long after the neighbour has left.

Formula
    To the sampling error of T_x (:func:`dial.queueing.t_x_error`: successive response times of a
    busy queue are alike, so that it is two to four times that of independent ones) Eq. 1's own
    error is added.  An error in ln T_x is one in rho by the steepness of Eq. 1, d ln T_x / d rho,
    which is 1/(1 - rho) for M/M/1.  The running estimate is a scalar Kalman filter: its variance
    grows by ``drift``^2 a tick, and a new value counts

        gain = variance / (variance + (sd(ln T_x) / steepness)^2).

Regimes
    steady
        The gain settles where drift and sampling error balance; few requests count little.
    flat
        Where the curve hardly rises (a disk with little load) an interval says little of rho, and
        the estimate stays where steeper ones have put it.
    jump
        A T_x that lies more than 2.5 deviations from the predicted one, twice in a row and on
        the same side, is no noise: the neighbour came, grew or left.  The past is dropped
        and the newest value stands alone.  Once is not enough: of ordinary intervals one
        in eighty lies as far out.

    Values are signed, and corrected for the bias of 1/T: an estimate of -0.1 is sampling
    error, and cutting it off at 0 before averaging would leave a mean above 0 for a
    neighbour that has gone.  It is cut off where it is used.

    cache
        A neighbour in the last-level cache takes no CPU time but makes each request need more
        of it: with s times the quiet CPU time a request, 1 - 1/s of the capacity is lost, which
        is M/M/1's own curve at rho_fg = 0 (:data:`SLOWDOWN`).  That is measured, where T_x only
        lets it be inferred, so it takes the place of T_x there.

Source
    Kalman filter: Welch and Bishop, "An Introduction to the Kalman Filter".  Error of a sample
    quantile: David and Nagaraja, "Order Statistics", 10.2.  The paper (2.3.3) takes each
    interval's estimate as it is, with intervals of 10 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dial.queueing import LEAST_T_X_MS, MM1, Number, TailCurve, relaxations, t_x_error

_JUMP_DEVIATIONS = 2.5
"""Two-sided 1.2 % per interval, so 0.008 % for two in a row on one side."""

_LEAST_IDLE = 0.02
"""Least 1 - rho at which errors are scaled: at saturation T_x says little more than "full"."""


SLOWDOWN = MM1
"""CPU time a request over the quiet one, as a function of rho_bg in the cache."""


@dataclass(frozen=True, slots=True)
class RhoBg:
    """A running estimate.

    Attributes
    ----------
    mean
        Signed; negative values are sampling error.
    sd
        Standard deviation of the mean.
    surprise
        +1 or -1 when the last T_x was surprisingly high or low and was set aside, else 0.
    """

    mean: float
    sd: float
    surprise: int = 0

    @property
    def value(self) -> float:
        """The estimate as a fraction of the resource, in [0, 1]."""
        return min(max(self.mean, 0.0), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What one interval says of rho_bg: ``curve.t_x_ms(rho_fg + rho_bg)`` is ``t_x_ms``.

    Attributes
    ----------
    curve
        Eq. 1, or :data:`SLOWDOWN`.
    t_x_ms
        Measured; over the quiet one where the curve is a shape.
    rho_fg
        The tenant's own utilisation.
    requests
        How many it rests on.
    percentile
        x of T_x, in percent; ``None`` where it is a mean of service times, which neither depend
        on each other nor have to be corrected for 1/T.

    Notes
    -----
    Of many backends at once ``t_x_ms``, ``rho_fg`` and ``requests`` are (n,), and so is what
    follows from them.
    """

    curve: TailCurve
    t_x_ms: Number
    rho_fg: Number
    requests: Number
    percentile: float | None = 90.0

    def error(self, rho_bg: Number) -> Number:
        """Standard deviation of ln ``t_x_ms`` by sampling, beside a neighbour that takes rho_bg."""
        if self.percentile is None:
            # They vary by about their mean.
            varies: Number = 1.0 / np.sqrt(np.maximum(self.requests, 1))
            return varies
        return t_x_error(self.requests, self._busy(rho_bg), self.percentile)

    def relaxations(self, rho_bg: Number) -> Number:
        """How long the interval is, in relaxation times of the queue beside such a neighbour."""
        if self.percentile is None:
            return math.inf
        return relaxations(self.requests, self._busy(rho_bg))

    def _busy(self, rho_bg: Number) -> Number:
        """What is left of the server is busy for rho_fg / (1 - rho_bg) of the time."""
        busy: Number = self.rho_fg / np.maximum(1.0 - rho_bg, _LEAST_IDLE)
        return busy

    def rho_bg(self, error: Number) -> Number:
        """By Eq. 1 backwards; signed.

        1 - rho goes with 1/T, which over noisy T is too large by 1 + error^2.
        """
        idle = 1.0 - self.curve.utilisation(self.t_x_ms)
        skew = 1.0 if self.percentile is None else 1.0 + error**2
        return 1.0 - idle / skew - self.rho_fg


@dataclass(frozen=True, slots=True)
class Tracker:
    """Parameters of the filter; see the module.

    Parameters
    ----------
    model_error : standard deviation of ln T_x about Eq. 1, beside sampling.
    drift : standard deviation of the change of rho_bg in one tick, when it is no jump.
    """

    model_error: float = 0.2
    drift: float = 0.03

    def alone(self, reading: Reading) -> tuple[Number, Number]:
        """Mean and standard deviation of rho_bg by one interval alone."""
        error = reading.error(reading.rho_bg(error=0.0))
        rho_bg = reading.rho_bg(error)
        return rho_bg, self._noise(reading, reading.rho_fg + rho_bg, error)

    def begin(self, reading: Reading) -> RhoBg:
        """The estimate of one interval of one backend."""
        mean, sd = self.alone(reading)
        return RhoBg(float(mean), float(sd))

    def step(self, past: RhoBg, reading: Reading) -> RhoBg:
        """The estimate after one more interval of that backend."""
        expected_rho = float(_possible(reading.rho_fg + past.mean))
        error = float(reading.error(past.mean))
        sd = math.hypot(past.sd, self.drift)
        expected_error = math.hypot(
            error, self.model_error, sd * float(reading.curve.steepness(expected_rho))
        )
        ratio = max(float(reading.t_x_ms), LEAST_T_X_MS) / reading.curve.t_x_ms(expected_rho)
        deviations = math.log(ratio) / expected_error
        if abs(deviations) > _JUMP_DEVIATIONS:
            side = 1 if deviations > 0.0 else -1
            if past.surprise == side:
                return self.begin(reading)
            return RhoBg(past.mean, sd, surprise=side)
        variance, noise = sd**2, float(self._noise(reading, expected_rho, error)) ** 2
        gain = variance / (variance + noise)
        newest = float(reading.rho_bg(error))
        return RhoBg(past.mean + gain * (newest - past.mean), math.sqrt((1.0 - gain) * variance))

    def _noise(self, reading: Reading, rho: Number, error: Number) -> Number:
        """Of one interval's rho_bg."""
        noise: Number = np.hypot(error, self.model_error) / reading.curve.steepness(_possible(rho))
        return noise


def _possible(rho: Number) -> Number:
    possible: Number = np.minimum(np.maximum(rho, 0.0), 1.0 - _LEAST_IDLE)
    return possible
