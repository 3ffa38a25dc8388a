"""The queueing formulas that several parts share: M/M/1 percentiles, Eq. 1 and Eq. 2.

Problem
    Tie a backend's tail latency to how much of its bottleneck resource is in use, so that
    one can be computed from the other in both directions.

Formulas
    Eq. 1   T_x = c0 + c1 u + c2 u^2,     u = 1 / (1 - rho),  rho = rho_fg + rho_bg
    Eq. 2   T_x ~ sum_i p_i L / (r_i - a p_i),                L = -ln(1 - x/100)

    with ``a`` the arrival rate of the service, ``p_i`` the share and ``r_i`` the
    throughput of backend i.

Regimes
    At low load u is near 1 and Eq. 1 is flat; the linear term is M/M/1's own
    (T_x = L s / (1 - rho) for a mean service time s); the quadratic one takes over near
    saturation, where real traffic is burstier than Poisson.

Source
    Javadi and Gandhi, "DIAL", IEEE TCC 2019: Eq. 1 (2.3.3), Eq. 2 (2.4.1).

Departures
    The paper fits c0, c1, c2 freely.  Here they are non-negative, which makes Eq. 1
    monotone in u and gives its inverse in closed form; a negative coefficient would let
    one latency mean two utilisations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

Number = float | NDArray[np.float64]
"""Of one backend, or (n,) of as many."""


def percentile_factor(percentile: float) -> float:
    """L = -ln(1 - x/100): how many mean sojourn times the x-th percentile of M/M/1 is.

    >>> round(percentile_factor(90.0), 4)
    2.3026
    """
    if not 0.0 < percentile < 100.0:
        raise ValueError(f"percentile = {percentile}: must lie between 0 and 100, both excluded")
    return -math.log1p(-percentile / 100.0)


def t_x_error(requests: Number, utilisation: Number, percentile: float) -> Number:
    """Standard deviation of ln T_x of an interval, by sampling.

    Independent exponential times would give sqrt(p / ((1 - p) n)) / L.  But those of a queue are
    alike, the longer the busier it is: who waits long, waits behind who waited long.  The variance
    of their mean is 1 + f times as large in the long run,

        f = rho (2 + 5 rho - 4 rho^2 + rho^3) / (1 - rho)^2,

    and in an interval too short for that it levels off.

    Parameters
    ----------
    requests : n, that T_x rests on.
    utilisation : rho of the queue, in [0, 1].
    percentile : x, in percent.

    Notes
    -----
    Against simulated M/M/1 queues (30, 85 and 300 requests an interval, rho 0.2 to 0.9: 0.11 to
    0.70) it is within 15 %, where the independent error is a half to a seventh.

    Source: Daley, "The serial correlation coefficients of waiting times in a stationary single
    server queue", J. Austral. Math. Soc. 8, 1968; Whitt, "Planning queueing simulations",
    Management Science 35, 1989.

    >>> print(f"{t_x_error(85, 0.0, 90.0):.3f}")
    0.138
    >>> print(f"{t_x_error(85, 0.5, 90.0):.3f}")
    0.336
    """
    p = percentile / 100.0
    alone = np.sqrt(p / ((1.0 - p) * np.maximum(requests, 1))) / percentile_factor(percentile)
    rho = np.minimum(np.maximum(utilisation, 0.0), RHO_MAX)
    alike = rho * (2.0 + 5.0 * rho - 4.0 * rho**2 + rho**3) / (1.0 - rho) ** 2
    long_run = alone * np.sqrt(1.0 + alike)
    error: Number = long_run * _LARGEST_ERROR / np.hypot(long_run, _LARGEST_ERROR)
    return error


def relaxations(requests: Number, utilisation: Number) -> Number:
    """How long an interval is, in relaxation times of its queue.

    What is left of a long queue after t is e^(-t/r) of it at the most, with

        r = 1 / (mu (1 - sqrt(rho))^2),

    in which lambda r = rho / (1 - sqrt(rho))^2 requests arrive: 6 at rho = 0.5, 342 at 0.9.

    Parameters
    ----------
    requests : that came in the interval.
    utilisation : rho of the queue, in [0, 1].

    Notes
    -----
    Source: Morse, "Stochastic properties of waiting lines", Operations Research 3, 1955.

    >>> print(f"{relaxations(58, 0.5):.1f}")
    10.0
    """
    rho = np.minimum(np.maximum(utilisation, 0.0), RHO_MAX)
    busy = np.where(rho == 0.0, 1.0, rho)
    found: Number = np.where(rho == 0.0, np.inf, requests * (1.0 - np.sqrt(busy)) ** 2 / busy)[()]
    return found


def tail_latency_s(
    shares: NDArray[np.float64],
    throughput_per_s: NDArray[np.float64],
    arrival_per_s: float,
    percentile: float,
) -> float:
    """Eq. 2: the service's approximate T_x in seconds for a split of its load.

    Parameters
    ----------
    shares : (n,) fractions p_i of the service's requests.
    throughput_per_s : (n,) r_i, requests/s, of each backend as it is now.
    arrival_per_s : a, requests/s, of the whole service.
    percentile : x, in percent.

    Returns
    -------
    float
        Seconds; infinite when a backend with a share gets at least what it can serve.
    """
    spare_per_s = throughput_per_s - arrival_per_s * shares
    used = shares > 0.0
    if np.any(spare_per_s[used] <= 0.0):
        return math.inf
    mean_s = float(np.sum(shares[used] / spare_per_s[used]))
    return percentile_factor(percentile) * mean_s


_LARGEST_ERROR = 0.6
"""Where :func:`t_x_error` levels off: the best fit to the simulations named there."""

RHO_MAX = 0.95
"""Largest rho_fg + rho_bg that Eq. 1 is fitted at: beyond, an error of 0.02 in rho is one of
40 % and more in T_x."""


def idle_fraction(rho_fg: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - rho_fg, held away from 0; 1 where rho_fg is NaN: nothing is corrected then."""
    return np.where(np.isnan(rho_fg), 1.0, 1.0 - np.minimum(rho_fg, RHO_MAX))


LEAST_T_X_MS = 1e-3
"""Finest resolution of a log; a log of whole milliseconds can say 0, which has no logarithm."""


@dataclass(frozen=True, slots=True)
class TailCurve:
    """Eq. 1 for one backend and one resource: T_x as a function of its utilisation.

    A *shape* is a curve whose coefficients add up to 1: T_x over that of the idle backend.

    Attributes
    ----------
    c0_ms, c1_ms, c2_ms
        Non-negative coefficients, in milliseconds; c1 and c2 are not both zero.
    """

    c0_ms: float
    c1_ms: float
    c2_ms: float

    def __post_init__(self) -> None:
        coefficients = (self.c0_ms, self.c1_ms, self.c2_ms)
        if not all(math.isfinite(c) and c >= 0.0 for c in coefficients):
            raise ValueError(f"Eq. 1 coefficients {coefficients}: each must be finite and >= 0")
        if self.c1_ms == 0.0 and self.c2_ms == 0.0:
            raise ValueError(f"Eq. 1 coefficients {coefficients}: c1 and c2 are both 0: no slope")

    def scaled(self, factor: float) -> TailCurve:
        """The same shape with T_x ``factor`` times as long."""
        return TailCurve(self.c0_ms * factor, self.c1_ms * factor, self.c2_ms * factor)

    def t_x_ms(self, rho: float) -> float:
        """T_x at utilisation ``rho`` = rho_fg + rho_bg; infinite from 1 on."""
        if rho >= 1.0:
            return math.inf
        u = 1.0 / (1.0 - rho)
        return self.c0_ms + self.c1_ms * u + self.c2_ms * u * u

    def steepness(self, rho: Number) -> Number:
        """By how much of itself T_x grows with a little more utilisation: d ln T_x / d rho.

        1/(1 - rho) on M/M/1's curve; less where the curve has a part that no load lengthens, and
        there an error of T_x is a large one of rho.
        """
        u = 1.0 / (1.0 - rho)
        t_x_ms = self.c0_ms + self.c1_ms * u + self.c2_ms * u * u
        return u * u * (self.c1_ms + 2.0 * self.c2_ms * u) / t_x_ms

    def utilisation(self, t_x_ms: Number) -> Number:
        """The inverse: the utilisation, in [0, 1], at which T_x would be ``t_x_ms``.

        The textbook root (-c1 + sqrt(...)) / (2 c2) cancels for small c2 and divides by
        zero for c2 = 0; its conjugate u = 2 d / (c1 + sqrt(c1^2 + 4 c2 d)) does neither.
        Below the curve's start (u < 1) the answer is 0: faster than an idle backend
        cannot mean a negative use.
        """
        # Not 0, at which u of a curve without a linear term would be 0/0.
        above_ms = np.maximum(t_x_ms - self.c0_ms, _NEXT_TO_NOTHING)
        root = np.sqrt(self.c1_ms * self.c1_ms + 4.0 * self.c2_ms * above_ms)
        u = 2.0 * above_ms / (self.c1_ms + root)
        utilisation: Number = 1.0 - 1.0 / np.maximum(u, 1.0)
        return utilisation


_NEXT_TO_NOTHING = 1e-300

MM1 = TailCurve(0.0, 1.0, 0.0)
"""The shape of M/M/1: T_x ~ 1/(1 - rho)."""


_TURNS = 20
"""Of the fit's weights: the coefficients stand still to four digits after ten."""


def fit_tail_curve(rho: ArrayLike, t_x_ms: ArrayLike, *, rho_max: float = RHO_MAX) -> TailCurve:
    """Fit Eq. 1 by non-negative least squares of the *relative* error.

    Relative, because the paper quotes its model error so and because tail latencies span
    two decades: an absolute fit would look at the last point only.  Relative to the curve, in a few
    turns, and not to the measured T_x: a point that is low by chance would weigh more than one
    that is high by chance, and the curve would lie too low (quasi-likelihood with a variance that
    goes with the square of the mean; McCullagh and Nelder, "Generalized Linear Models", 9).

    Parameters
    ----------
    rho : (n,) utilisation rho_fg + rho_bg.
    t_x_ms : (n,) tail latency, positive.
    rho_max : points above it are left out, where u is too steep for a measured rho.

    Raises
    ------
    ValueError
        If usable points at fewer than three utilisations remain, or they carry no slope.
    """
    rho_array = np.asarray(rho, dtype=np.float64)
    t_array = np.asarray(t_x_ms, dtype=np.float64)
    if rho_array.shape != t_array.shape or rho_array.ndim != 1:
        raise ValueError(f"rho {rho_array.shape} and t_x_ms {t_array.shape}: want two (n,) arrays")
    usable = (rho_array >= 0.0) & (rho_array <= rho_max) & (t_array > 0.0) & np.isfinite(t_array)
    distinct = np.unique(rho_array[usable]).size
    if distinct < 3:
        raise ValueError(f"usable points at {distinct} utilisations: Eq. 1 needs at least 3")
    u = 1.0 / (1.0 - rho_array[usable])
    t = t_array[usable]
    columns = np.column_stack([np.ones_like(u), u, u * u])
    expected = t
    for _ in range(_TURNS):
        coefficients, _ = nnls(columns / expected[:, np.newaxis], t / expected)
        expected = columns @ coefficients
    return TailCurve(*(float(c) for c in coefficients))
