r"""rho_bg followed over time: steady while the neighbour is, quick when it changes.

Problem
    T_x of one interval is noisy: of 25 requests P90 has a relative error of 26 %.  Weights
    that follow every estimate waver; an average that is slow enough not to waver hands
    load back long after the neighbour has left.

Formula
    The sampling error of the x-th percentile of n exponential response times is

        sd(ln T_x) = sqrt(p / ((1 - p) n)) / -ln(1 - p),     p = x/100

    to which Eq. 1's own error is added.  By Eq. 1 with T ~ 1/(1 - rho) an error in ln T_x is
    one of (1 - rho) times as much in rho.  The running estimate is a scalar Kalman filter:
    its variance grows by ``drift``^2 a tick, and a new value counts

        gain = variance / (variance + ((1 - rho) sd(ln T_x))^2).

Regimes
    steady
        The gain settles where drift and sampling error balance; few requests count little.
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

from dial.queueing import LEAST_T_X_MS, MM1, TailCurve, percentile_factor

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


@dataclass(frozen=True, slots=True)
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
    error
        Standard deviation of ln ``t_x_ms`` by sampling.
    skewed
        Whether the mean of 1/``t_x_ms`` has to be corrected for that error: 1 - rho goes with
        1/T, and over noisy T it is too large by 1 + sd^2.
    """

    curve: TailCurve
    t_x_ms: float
    rho_fg: float
    error: float
    skewed: bool = True

    @property
    def utilisation(self) -> float:
        """rho_fg + rho_bg by Eq. 1 backwards."""
        idle = 1.0 - self.curve.utilisation(self.t_x_ms)
        return 1.0 - idle / (1.0 + self.error**2 * self.skewed)


@dataclass(frozen=True, slots=True)
class Tracker:
    """Parameters of the filter; see the module.

    Parameters
    ----------
    percentile : x of T_x, in percent.
    model_error : standard deviation of ln T_x about Eq. 1, beside sampling.
    drift : standard deviation of the change of rho_bg in one tick, when it is no jump.
    """

    percentile: float = 90.0
    model_error: float = 0.2
    drift: float = 0.03

    def t_x_error(self, requests: int) -> float:
        """Standard deviation of ln T_x by sampling, of an interval of ``requests`` requests."""
        p = self.percentile / 100.0
        error = math.sqrt(p / ((1.0 - p) * max(requests, 1)))
        return error / percentile_factor(self.percentile)

    def begin(self, reading: Reading) -> RhoBg:
        """The estimate of one interval alone."""
        rho = reading.utilisation
        return RhoBg(rho - reading.rho_fg, self._rho_error(rho, reading))

    def step(self, past: RhoBg, reading: Reading) -> RhoBg:
        """The estimate after one more interval."""
        expected_rho = min(max(reading.rho_fg + past.mean, 0.0), 1.0 - _LEAST_IDLE)
        log_error = math.hypot(reading.error, self.model_error)
        sd = math.hypot(past.sd, self.drift)
        expected_error = math.hypot(log_error, sd / (1.0 - expected_rho))
        ratio = max(reading.t_x_ms, LEAST_T_X_MS) / reading.curve.t_x_ms(expected_rho)
        deviations = math.log(ratio) / expected_error
        if abs(deviations) > _JUMP_DEVIATIONS:
            side = 1 if deviations > 0.0 else -1
            if past.surprise == side:
                return self.begin(reading)
            return RhoBg(past.mean, sd, surprise=side)
        newest = reading.utilisation - reading.rho_fg
        variance, noise = sd**2, self._rho_error(expected_rho, reading) ** 2
        gain = variance / (variance + noise)
        return RhoBg(past.mean + gain * (newest - past.mean), math.sqrt((1.0 - gain) * variance))

    def _rho_error(self, rho: float, reading: Reading) -> float:
        return max(1.0 - rho, _LEAST_IDLE) * math.hypot(reading.error, self.model_error)
