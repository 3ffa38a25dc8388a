"""A service of up to ten thousand backends with neighbours, simulated under each policy.

``backends``, ``requests``, ``wall_s``
    Of the largest run: ten thousand backends, 5 requests/s each, an hour, DIAL's own step once in
    30 s; elsewhere once in 10 s, the paper's interval.  ``tick_ms`` is the median of what the
    controller took of it, which is most of the time at the larger interval too.
``policies``
    The same hour, neighbours and load for each policy at each size: percentiles in ms, reaction,
    moves for nothing, weights written.
``traffic``
    What agents, readers and plans send in bytes a second at each size, by the real encoders.
``balancers``
    ``leastconn`` behind two balancers over behind one: P90, without and with DIAL.
``lab_gap``
    Median relative error of P90 against the lab's committed recordings, nothing fitted: of quiet
    machines and of contended ones (``lab_gap_quiet``, ``lab_gap_cpu``).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from benchmarks.support.harness import machine, report, versions
from benchmarks.support.sim_lab import compared, median_error
from benchmarks.support.traffic import traffic
from dial.types import Cause
from dial_sim.run import POLICIES, Outcome, Scenario, simulate

_SIZES = (10, 100, 1_000)
_LARGEST = 10_000
_LARGEST_INTERVAL_S = 30.0
_SEED = 1


def main() -> None:
    """Simulate and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sim", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--backends", type=int, default=_LARGEST, help="of the largest run")
    parser.add_argument("--hours", type=float, default=1.0, help="simulated time of each run")
    parser.add_argument(
        "--all", action="store_true", help="the largest size under every policy as well"
    )
    arguments = parser.parse_args()

    def told(servers: int, policy: str, balancers: int = 1) -> Outcome:
        scenario = _scenario(servers, balancers, 3600.0 * arguments.hours)
        outcome = simulate(scenario, policy)
        sys.stderr.write(f"{_line(servers, policy, balancers, outcome)}\n")
        return outcome

    gaps = compared()
    largest = told(arguments.backends, "dial")
    found = {
        str(servers): {policy: told(servers, policy) for policy in POLICIES} for servers in _SIZES
    }
    others = [policy for policy in POLICIES if policy != "dial"] if arguments.all else []
    found[str(arguments.backends)] = {"dial": largest} | {
        policy: told(arguments.backends, policy) for policy in others
    }
    two = {
        policy: told(_SIZES[1], policy, balancers=2) for policy in ("leastconn", "dial+leastconn")
    }
    one = found[str(_SIZES[1])]
    lab = {label: median_error(gaps, label) for label in (Cause.NONE, Cause.CPU)}
    result = {
        "benchmark": "sim",
        "backends": arguments.backends,
        "requests": largest.requests,
        "wall_s": largest.wall_s,
        "tick_ms": largest.tick_ms,
        "lab_gap": max(lab.values()),
        "lab_gap_quiet": lab[Cause.NONE],
        "lab_gap_cpu": lab[Cause.CPU],
        "lab_cases": len(gaps),
        "policies": {
            size: {policy: asdict(outcome) for policy, outcome in of_size.items()}
            for size, of_size in found.items()
        },
        "balancers": {policy: asdict(outcome) for policy, outcome in two.items()},
        "two_balancers_over_one": {
            policy: outcome.p90_ms / one[policy].p90_ms for policy, outcome in two.items()
        },
        "traffic": {str(n): asdict(traffic(n)) for n in (*_SIZES, arguments.backends)},
        "scenario": asdict(_scenario(arguments.backends, 1, 3600.0 * arguments.hours)),
        "machine": machine(),
        "versions": versions("dial-lb", "dial-sim", "numba", "numpy"),
    }
    quiet, beside = lab[Cause.NONE], lab[Cause.CPU]
    lines = [
        f"{arguments.backends:,} backends, {largest.requests:,} requests in {largest.wall_s:.0f} s",
        f"P90 of {len(gaps)} cases in the lab: off by {quiet:.0%} quiet, {beside:.0%} contended",
    ]
    report(lines, result, as_json=arguments.json)


def _scenario(servers: int, balancers: int, length_s: float) -> Scenario:
    interval_s = 10.0 if servers < _LARGEST else _LARGEST_INTERVAL_S
    return Scenario(servers, balancers, length_s=length_s, interval_s=interval_s, seed=_SEED)


def _line(servers: int, policy: str, balancers: int, outcome: Outcome) -> str:
    reaction = "" if outcome.reaction_s is None else f", reacts in {outcome.reaction_s:.0f} s"
    behind = "" if balancers == 1 else f" behind {balancers} balancers"
    return (
        f"{servers:6,} backends{behind}, {policy:15}: P50 {outcome.p50_ms:5.0f}, P90 "
        f"{outcome.p90_ms:6.0f}, P99 {outcome.p99_ms:8.0f} ms{reaction}; {outcome.wall_s:.1f} s"
    )


if __name__ == "__main__":
    main()
