r"""The split of load that minimises Eq. 2, exactly, for every load.

Problem
    minimise  sum_i p_i / (r_i - a p_i)   subject to   sum_i p_i = 1,  p_i >= f_i

    with throughput r_i, arrival rate a and a floor share f_i, so that even the slowest
    backend still gives samples.

Formula
    The objective is convex and separable.  Where the floor does not bind, its derivative
    r_i / (r_i - a p_i)^2 is the same for all backends, so with one unknown s > 0

        a p_i = max(a f_i, r_i - s sqrt(r_i)).

    At low load r_i - s sqrt(r_i) is a small difference of large numbers (for a = 1e-16 sum r
    nothing is left of it), so the unknown is the depth d = max sqrt(r) - s instead:

        a p_i = max(a f_i, sqrt(r_i) (d - g_i)),     g_i = max sqrt(r) - sqrt(r_i).

    Backend i leaves its floor where d > d_i = g_i + a f_i / sqrt(r_i).  The sum of the right
    side is convex, piecewise linear and grows with d, so Newton's method from above finds where
    it is a, and needs no sort: solve for d as if all backends were above their floor, leave out
    those that are not at this d, solve again, until none is left out.  Whoever is left out once
    stays out, for d only falls; of 10,000 backends it takes some five rounds.

    At high load it is the other way round.  What counts there is the rest, r_i - a p_i =
    s sqrt(r_i), which is small beside r_i, and d - g_i says it to no more digits than it says
    the largest root.  So once it is known who is above the floor, s is asked instead where
    they serve more than half of what they can, and nothing is divided by a sum that is a but
    for its rounding.

Regimes
    * Moderate load: no floor binds, s = (sum r - a) / sum sqrt(r), which is Lemma 1.
    * Low load, unequal backends: Lemma 1 would be negative; here the slow ones are at
      their floor and the rest is solved again.
    * a >= sum r: nothing stays bounded.  The answer says so and splits by throughput,
      which keeps all backends equally overloaded.

Source
    Javadi and Gandhi, IEEE TCC 2019, Eq. 2 and Lemma 1 (2.4.1).

Departures
    The active set (the paper stops at the unconstrained optimum), the floor inside the
    optimum rather than clamped after it, and the overload answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MAX_FLOOR_UTILISATION = 0.5
"""A floor may not fill more than half of a backend.

At utilisation 1/2 an M/M/1 backend's response time is twice its service time: a probe
that costs more than that has become the problem it looks for.
"""


@dataclass(frozen=True, slots=True)
class Split:
    """Shares of the load.

    Attributes
    ----------
    shares
        (n,) fractions, each >= 0, summing to 1.
    overload
        True when the arrival rate is at least what all backends together can serve.
    """

    shares: NDArray[np.float64]
    overload: bool


def tail_optimal_shares(
    throughput_per_s: NDArray[np.float64], arrival_per_s: float, *, floor: float = 0.0
) -> Split:
    """Minimise Eq. 2 over the shares.

    Parameters
    ----------
    throughput_per_s : (n,) r_i > 0, requests/s, of each backend as it is now.
    arrival_per_s : a >= 0, requests/s, of the service.
    floor : least share of each backend, 0 <= floor <= 1/n; lowered for a backend of which
        it would fill more than half.

    Raises
    ------
    ValueError
        If there is no backend, or an argument is out of its range.
    """
    r = np.asarray(throughput_per_s, dtype=np.float64)
    a = float(arrival_per_s)
    if r.ndim != 1 or r.size == 0:
        raise ValueError(f"throughput of shape {r.shape}: want (n,) with at least one backend")
    if not (np.all(r > 0.0) and math.isfinite(float(r.max()) * r.size)):
        raise ValueError(f"throughput {r[:8]}: each must be finite and positive (requests/s)")
    if not (math.isfinite(a) and a >= 0.0):
        raise ValueError(f"arrival rate {a}: must be finite and not negative (requests/s)")
    if not 0.0 <= floor <= 1.0 / r.size:
        raise ValueError(f"floor {floor}: must lie in [0, 1/{r.size}]")

    total = float(r.sum())
    if a >= total:
        return Split(r / total, overload=True)

    if a == 0.0:
        # Every split is optimal; the limit a -> 0 sends all above the floors to the fastest.
        fastest = (r == r.max()).astype(np.float64)
        shares = floor + max(0.0, 1.0 - floor * r.size) * fastest / fastest.sum()
        return Split(shares / shares.sum(), overload=False)

    root = np.sqrt(r)
    # (x - y) / (sqrt x + sqrt y), for sqrt x - sqrt y would cancel where rates are alike.
    largest = float(r.max())
    gap = (largest - r) / (math.sqrt(largest) + root)
    floor_per_s = np.minimum(a * floor, _MAX_FLOOR_UTILISATION * r)
    leaves_floor = gap + floor_per_s / root  # d_i
    above, n = np.ones(r.size, np.bool_), 0
    while n != (n := int(np.count_nonzero(above))):
        # Sums as they stand: a product of vectors may round otherwise from run to run.
        above_root = root * above
        d = (a + (above_root * gap).sum() - (floor_per_s * ~above).sum()) / above_root.sum()
        # The largest is always above its floor, whatever rounding says.
        above &= (leaves_floor < d) | (gap == 0.0)
    above_per_s = float((r * above).sum())
    rest_per_s = above_per_s - (a - float((floor_per_s * ~above).sum()))
    if rest_per_s > above_per_s / 2:
        load_per_s = np.maximum(floor_per_s, root * (d - gap))
        return Split(load_per_s / load_per_s.sum(), overload=False)
    s = rest_per_s / above_root.sum()
    return Split(np.maximum(floor_per_s, r - s * root) / a, overload=False)


def proportional_shares(capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares in proportion to what is left of each backend's capacity.

    What the paper calls the natural but sub-optimal choice (2.4): right for utilisation,
    wrong for latency.  Used when throughputs in requests/s are not known, so that only
    relative weights can be given.

    Parameters
    ----------
    capacity : (n,) non-negative, in any unit, not all zero.
    """
    total = float(np.sum(capacity))
    if not total > 0.0 or np.any(capacity < 0.0):
        raise ValueError(f"capacity {capacity[:8]}: must be non-negative and not all zero")
    return np.asarray(capacity / total, dtype=np.float64)
