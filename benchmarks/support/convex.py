r"""Two witnesses for the optimum of Eq. 2 that know nothing of Lemma 1.

Problem
    Show that :func:`dial.optimizer.tail_optimal_shares` minimises
    sum_i p_i / (r_i - a p_i) over p_i >= f_i, sum_i p_i = 1, to 1e-9 in T_x.

Witnesses
    :func:`solve`
        A general solver, SLSQP.  A general solver comes near 1e-9 only on a problem of
        decent scale, so it is given the utilisations x_i = a p_i / r_i:

            minimise  sum_i x_i / (1 - x_i)   subject to   sum_i r_i x_i = a,

        all of whose numbers lie between 0 and 1 whatever the rates.  The objective is a
        times that of Eq. 2.
    :func:`relative_gap_bound`
        No solver at all.  The objective F is convex, so for every feasible q

            F(q) >= F(p) + grad F(p) (q - p),

        and the least value of the right side over all feasible q (everything above the
        floors goes to the smallest component of the gradient) bounds the optimum from
        below.  The difference is what p can be wrong by at most.

Source
    Jaggi, "Revisiting Frank-Wolfe", ICML 2013, for the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, minimize


@dataclass(frozen=True, slots=True)
class Case:
    """One problem: throughputs (n,) in requests/s, arrival rate, floor share."""

    throughput_per_s: NDArray[np.float64]
    arrival_per_s: float
    floor: float

    @property
    def floors(self) -> NDArray[np.float64]:
        """Least share of each backend, (n,): the floor, but at most half of a backend."""
        return np.minimum(self.floor, 0.5 * self.throughput_per_s / self.arrival_per_s)


def random_cases(count: int, seed: int) -> Iterator[Case]:
    """Up to 20 backends, rates over three decades, load 1 % to 99 %, every second with a floor."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        n = int(rng.integers(1, 21))
        throughput_per_s = 10.0 ** rng.uniform(0.0, 3.0, n)
        load = rng.uniform(0.01, 0.99)
        floor = rng.uniform(0.0, 1.0 / n) if number % 2 else 0.0
        yield Case(throughput_per_s, float(load * throughput_per_s.sum()), float(floor))


def cost(case: Case, shares: NDArray[np.float64]) -> float:
    """Eq. 2 without its constant factor, in seconds."""
    return float(np.sum(shares / (case.throughput_per_s - case.arrival_per_s * shares)))


def solve(case: Case) -> NDArray[np.float64]:
    """Shares, (n,), by a general solver: as near the optimum as it comes.

    Asked for the last bit, it ends as often for want of a descending step as by its own
    criterion, so its verdict on itself is worth nothing; the caller compares.
    """
    r, a = case.throughput_per_s, case.arrival_per_s
    part = r / r.sum()
    load = a / float(r.sum())
    lower = case.floors * a / r
    start = np.clip(np.full(r.size, load), lower, None)
    scale = float(np.sum(start / (1.0 - start)))

    def objective(x: NDArray[np.float64]) -> float:
        return float(np.sum(x / (1.0 - x))) / scale

    def gradient(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(1.0 / (1.0 - x) ** 2 / scale, dtype=np.float64)

    found = minimize(
        objective,
        start,
        jac=gradient,
        bounds=Bounds(lower, np.full(r.size, 1.0 - 1e-9)),
        constraints=LinearConstraint(part[np.newaxis, :] / load, 1.0, 1.0),
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 200},
    )
    return np.asarray(found.x * r / a, dtype=np.float64)


def relative_gap_bound(case: Case, shares: NDArray[np.float64]) -> float:
    """Bound on (F(shares) - optimum) / F(shares), from convexity alone.

    Of a service that is nearly full r - a p has few of a double's digits left, and the bound
    would be of their rounding: it is computed in the widest floats that there are.
    """
    r, p, floors = (x.astype(np.longdouble) for x in (case.throughput_per_s, shares, case.floors))
    left = r - np.longdouble(case.arrival_per_s) * p
    gradient = r / left**2
    best = floors @ gradient + (1 - floors.sum()) * gradient.min()
    return float((gradient @ p - best) / (p / left).sum())
