"""How long the optimizer takes, and how far from the optimum it ends.

``ms_1000``, ``ms_10000``
    Median time of ``tail_optimal_shares`` for 1,000 and 10,000 unequal backends at
    moderate load with the controller's floor.
``ms_weights_1000``, ``ms_weights_10000``
    The same with the integer weights that follow.
``max_relative_gap``
    Largest relative difference of T_x, in either direction, from a general convex solver's
    on random cases.
``max_relative_gap_bound``
    Largest distance from the optimum that convexity alone leaves open on the same cases.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.convex import cost, random_cases, relative_gap_bound, solve
from benchmarks.support.harness import machine, median_ms, report, versions
from dial.optimizer import integer_weights, tail_optimal_shares
from dial.types import WeightKind, WeightMeaning

_SEED = 1
_CASES = 1_000
_LOAD = 0.45
_FLOOR_OF_EVEN = 0.1
_MEANING = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimizer", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--runs", type=int, default=300, help="timed calls per figure")
    arguments = parser.parse_args()

    times_ms = {n: time_ms(n, runs=arguments.runs) for n in (1_000, 10_000)}
    gap, bound = largest_gaps()
    lines = [
        f"{n:,} backends: shares {shares_ms:.3f} ms, with integer weights {weights_ms:.3f} ms"
        for n, (shares_ms, weights_ms) in times_ms.items()
    ]
    lines.append(
        f"{_CASES:,} random cases: T_x within {gap:.1e} of SLSQP's, "
        f"within {bound:.1e} of the optimum by convexity"
    )
    result: dict[str, object] = {"benchmark": "optimizer"}
    for n, (shares_ms, weights_ms) in times_ms.items():
        result |= {f"ms_{n}": shares_ms, f"ms_weights_{n}": weights_ms}
    result |= {
        "max_relative_gap": gap,
        "max_relative_gap_bound": bound,
        "cases": _CASES,
        "runs": arguments.runs,
        "seed": _SEED,
        "machine": machine(),
        "versions": versions("dial-lb", "numpy", "scipy"),
    }
    report(lines, result, as_json=arguments.json)


def time_ms(n: int, *, runs: int) -> tuple[float, float]:
    """Median milliseconds for n backends: shares alone, shares and integer weights."""
    rng = np.random.default_rng(_SEED)
    throughput_per_s = 10.0 ** rng.uniform(1.0, 3.0, n)
    arrival_per_s = _LOAD * float(throughput_per_s.sum())
    configured = [100] * n

    def shares() -> NDArray[np.float64]:
        floor = _FLOOR_OF_EVEN / n
        return tail_optimal_shares(throughput_per_s, arrival_per_s, floor=floor).shares

    def weights() -> list[int]:
        return integer_weights(shares(), _MEANING, configured)

    return median_ms(shares, runs=runs), median_ms(weights, runs=runs)


def largest_gaps() -> tuple[float, float]:
    """Over the random cases: the distance from the solver, and the bound by convexity."""
    gap = bound = 0.0
    for case in random_cases(_CASES, _SEED):
        split = tail_optimal_shares(case.throughput_per_s, case.arrival_per_s, floor=case.floor)
        ours, solvers = cost(case, split.shares), cost(case, solve(case))
        gap = max(gap, abs(ours - solvers) / min(ours, solvers))
        bound = max(bound, relative_gap_bound(case, split.shares))
    return gap, bound


if __name__ == "__main__":
    main()
