"""Shares to the integer weights that make a balancer hand them out.

Problem
    A share is a fraction of requests.  What a weight does depends on the balancer's
    policy, and weights are small integers.

Formula, by :class:`~dial.types.WeightKind`
    REQUESTS (round robin), DRAW (random)
        weight ~ share.
    REQUESTS with a bias b (Envoy's least request with unequal weights)
        Shares go by weight / (requests in flight + 1)^b, so weight ~ share x (in flight + 1)^b.
        By M/M/1 rho / (1 - rho) requests are in flight, rho = a p / r; each of k balancers counts
        its own k-th part.  Two things keep this from doing harm.  rho counts up to
        ``_MOST_RHO`` only: near 1 the formula is singular, and a throughput that is slightly
        wrong would give the slowest backend the largest weight.  And p is the share that is
        *aimed at*, not that of a step on the way, where the backend that is to be relieved is
        still the fullest: its weight would rise first.  As Envoy discounts a backend that falls
        behind what is reckoned here, its share falls by itself.
    CONCURRENCY (least connections)
        The policy equalises (requests in flight + 1) / weight.  By Little's law and M/M/1
        backend i holds a p_i / (r_i - a p_i) requests, and one more is
        r_i / (r_i - a p_i): that is the weight.  With Lemma 1's shares it comes to
        sqrt(r_i), whatever the load.  Here, too, p is the share that is aimed at.
    SERVICE_RATE (shortest expected delay)
        A request goes where (requests in flight + 1) / weight is least.  With weight ~ r_i it is
        served soonest there.  But a weight of ``LEAST_RATE`` is as good, or better, for a
        backend that has less: it takes a request when all others have one, and a second one when
        they have three.  So

            weight = s c_i max(1 - rho_bg,i, LEAST_RATE),

        with c_i as configured, and s = 1 unless that is too coarse: of a weight of 1 nothing can
        be taken.  The others keep their weights; the first
        estimate of a strong neighbour need not be right; and the victim has requests enough to
        show when its neighbour is gone, of a few backends.  Beyond what all can serve r_i counts.

    Integers, but for SERVICE_RATE, by the method of largest remainders: each gets the whole part
    of its quota, and the units left over go to the largest fractions.  The error of a weight is
    below one unit, and the order of shares is never reversed.

Source
    Balinski and Young, "Fair Representation" (largest remainders); HAProxy's and Envoy's
    documentation for what a weight means.  ``LEAST_RATE`` is our own: simulated for 2, 3, 5 and 10
    backends, one at 0.1 to 0.65 of its pace, at loads of 0.25 to 0.97 (decision 43).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dial.types import WeightKind, WeightMeaning

_UNITS_PER_BACKEND = 100
"""Weight units handed out per backend: an even share of 100 can be set to within 1 %."""

_FINE_ENOUGH = 10
"""``LEAST_RATE`` of it is a whole number to within a tenth; throughputs are not known better."""

LEAST_RATE = 0.55
"""Above a half: who is idle then takes a request as soon as all others have one.  0.7 and 0.95 do
nearly the same, 0.4 waits until they have two: 4 % better where 0.2 is left, 9 % worse where 0.65
is, and the victim is seldom seen."""

_MOST_RHO = 0.8
"""The relative error of 1 / (1 - rho) is rho / (1 - rho) times that of the throughput: here four
times, and an estimate that is 10 % wrong is the most that can be hoped for."""


def concurrency_weights(
    shares: NDArray[np.float64], throughput_per_s: NDArray[np.float64], arrival_per_s: float
) -> NDArray[np.float64]:
    """Requests in flight plus one, (n,), when each backend gets its share.

    Raises
    ------
    ValueError
        If a share is at least what its backend can serve: then nothing is in balance.
    """
    spare_per_s = throughput_per_s - arrival_per_s * shares
    if np.any(spare_per_s <= 0.0):
        raise ValueError("a share exceeds its backend's throughput: requests in flight diverge")
    return np.asarray(throughput_per_s / spare_per_s, dtype=np.float64)


def rate_units(configured: Sequence[int] | NDArray[np.int64], meaning: WeightMeaning) -> float:
    """Units of weight that one of a configured weight is worth, for all backends of a service.

    It is 1 where weights are fine enough.  It must not depend on who can be used just now: the
    weights of backends that come and go have to be in one scale.

    Parameters
    ----------
    configured : the weights in the balancer's own configuration, of every backend.
    meaning : range of weights.

    Examples
    --------
    >>> haproxy = WeightMeaning(WeightKind.SERVICE_RATE, 1, 256, zero_drains=True)
    >>> rate_units([50, 100], haproxy), rate_units([1, 1, 2], haproxy)
    (1.0, 100.0)
    """
    weights = np.asarray(configured, dtype=np.float64)
    positive = weights[weights > 0.0]
    if not positive.size or positive.min() >= _FINE_ENOUGH:
        return 1.0
    finer = min(_UNITS_PER_BACKEND / positive.min(), meaning.maximum / positive.max())
    return max(1.0, float(finer))


def rate_weights(
    left: NDArray[np.float64],
    meaning: WeightMeaning,
    configured: Sequence[int],
    units: float,
) -> list[int]:
    """Integer weights in proportion to the service rates that backends have left.

    Parameters
    ----------
    left : (n,) part of its service rate that is left of each backend, in [0, 1]; 0 drains.
    meaning : range of weights.
    configured : (n,) the weights in the balancer's own configuration: what a backend has of which
        all is left, in units of 1.
    units : by :func:`rate_units`.

    Examples
    --------
    >>> haproxy = WeightMeaning(WeightKind.SERVICE_RATE, 1, 256, zero_drains=True)
    >>> rate_weights(np.array([0.5, 1.0, 1.0]), haproxy, [100, 100, 200], 1.0)
    [50, 100, 200]
    >>> rate_weights(np.array([0.5, 1.0, 0.0]), haproxy, [1, 1, 1], 100.0)
    [50, 100, 0]
    """
    rates = units * np.asarray(configured, dtype=np.float64) * left
    weights = np.clip(np.rint(rates), meaning.minimum, meaning.maximum).astype(np.int64)
    found: list[int] = np.where(rates > 0.0, weights, 0).tolist()
    return found


def ideal_weights(
    shares: NDArray[np.float64],
    meaning: WeightMeaning,
    throughput_per_s: NDArray[np.float64] | None,
    arrival_per_s: float,
    aim: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Real-valued weights, (n,), in any scale, that hand out ``shares``.

    Without throughputs requests in flight cannot be foreseen, nor, for a concurrency weight,
    beyond capacity.  Then a concurrency weight is the share itself, which is right where all
    response times are equal; and a bias is left to do what it does.

    Parameters
    ----------
    shares : (n,) of the requests, summing to 1.
    meaning : of a weight.
    throughput_per_s : (n,) r_i, or ``None`` where they are not known.
    arrival_per_s : requests/s of the whole service.
    aim : (n,) shares that ``shares`` are a step towards; ``shares`` themselves if not given.
    """
    is_plain = meaning.kind is not WeightKind.CONCURRENCY and meaning.in_flight_bias == 0.0
    if is_plain or throughput_per_s is None:
        return shares
    settled = shares if aim is None else aim
    if meaning.kind is WeightKind.CONCURRENCY:
        if np.any(arrival_per_s * settled >= throughput_per_s):
            return shares
        in_flight_plus_1 = concurrency_weights(settled, throughput_per_s, arrival_per_s)
        return np.where(shares <= 0.0, 0.0, in_flight_plus_1)
    rho = np.minimum(arrival_per_s * settled / throughput_per_s, _MOST_RHO)
    in_flight_here = rho / (1.0 - rho) / meaning.balancers
    return np.asarray(shares * (in_flight_here + 1.0) ** meaning.in_flight_bias, dtype=np.float64)


def integer_weights(
    ideal: NDArray[np.float64], meaning: WeightMeaning, configured: Sequence[int]
) -> list[int]:
    """Integer weights in proportion to ``ideal``, by largest remainders.

    Parameters
    ----------
    ideal : (n,) non-negative, not all zero, in any scale.
    meaning : range of weights, and whether 0 drains.
    configured : (n,) the weights in the balancer's own configuration.  Their sum is kept
        as the number of units handed out where it is fine enough, so that an admin who
        wrote 100, 100, 100 reads 24, 138, 138.

    Returns
    -------
    list of int
        0 for an ideal of 0 where the balancer drains at 0, else ``meaning.minimum`` to
        ``meaning.maximum``.
    """
    total = float(np.sum(ideal))
    if not (np.all(ideal >= 0.0) and 0.0 < total < math.inf):
        raise ValueError(f"ideal weights {ideal[:8]}: must be finite, >= 0 and not all 0")
    wanted = max(sum(configured), _UNITS_PER_BACKEND * len(ideal))
    units = min(wanted, int(meaning.maximum * total / float(np.max(ideal))))
    quota = ideal / total * units
    weights = np.floor(quota).astype(np.int64)
    left = units - int(weights.sum())
    # A stable sort: equal fractions are served in the order of the backends, so the same
    # shares always give the same weights.
    weights[np.argsort(weights - quota, kind="stable")[:left]] += 1
    weights = np.minimum(np.maximum(weights, meaning.minimum), meaning.maximum)
    if meaning.zero_drains:
        weights[ideal == 0.0] = 0
    found: list[int] = weights.tolist()
    return found


def shares_of_weights(weights: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
    """What share of requests a round robin would give, (n,); even when all weights are 0."""
    array = np.asarray(weights, dtype=np.float64)
    total = float(array.sum())
    if total <= 0.0:
        return np.full(array.size, 1.0 / max(array.size, 1))
    return array / total
