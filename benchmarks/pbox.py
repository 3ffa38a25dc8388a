"""What pBoxes cost, and what they do for those who are kept waiting.

``update_ns``
    One ``update_pbox``, uncontended: the mean over the four events of a pass, median of batches.
``create_ns``
    One ``create_pbox`` in a slot used before; ``create_first_ns`` in fresh memory.
``shim_lock_ns``, ``shim_rwlock_ns``
    What the shim adds to an uncontended lock and unlock: median of paired runs.
``server_overhead``, ``server_cpu_overhead``
    What the shim takes of memcached's throughput, and adds to its processor time for a request, as
    fractions: two servers, one with it, loaded in turn, and two new ones for each of ``lives``;
    medians over lives, with 95 % intervals.
``mean_reduction``, ``min_reduction``, ``cases``
    Interference reduction ratio (T_i - T_s) / (T_i - T_o) of the programs in ``pbox/cases``, each
    a small model of a case of the paper's.  ``per_case`` has all figures of each, and the paper's.

No figure is reported where what it is of was not there: a shim that the loader passed over, a call
that was refused, a case without interference or in which nobody was penalised.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.harness import machine, report
from benchmarks.support.pbox import CASES, SHIM, build, run_json, shim_environment
from benchmarks.support.pbox_page import write_page
from benchmarks.support.pbox_server import server_overhead

_LOCK_PAIRS = 5

_LEAST_LEVEL = 0.5
"""Of an interference that there is something to reduce of: the isolation rule's own goal."""

PAPER: dict[str, dict[str, float]] = {
    "c5": {"level": 15.35, "t_s_ms": 3.29},
    "2.1": {"level": 9.0},
    "c3": {"level": 10.70, "t_s_ms": 0.35},
    "c7": {"level": 1204.28, "t_s_ms": 0.65},
    "c11": {"level": 1621.12},
}
"""What the paper prints of each case: T_i / T_o - 1 (Table 3; of 2.1, the tenfold drop that its
text tells), and T_s in ms (Table 4, adaptive).  A case's own ratio is in its figures only."""


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pbox",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each block of a case")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each kind in a case")
    parser.add_argument("--lives", type=int, default=60, help="pairs of servers that are loaded")
    parser.add_argument("--page", type=Path, help="docs/pbox.md: write its tables")
    parser.add_argument("--figures", type=Path, help="JSON of an earlier run: do not measure again")
    arguments = parser.parse_args()
    if arguments.lives < 1:
        parser.error("--lives: at least 1")

    if arguments.figures:
        result = json.loads(arguments.figures.read_text(encoding="utf-8"))
    else:
        result = measured(arguments.seconds, arguments.rounds, arguments.lives)
    if arguments.page:
        write_page(arguments.page, result)
    report(lines(result), result, as_json=arguments.json)


def measured(seconds: float, rounds: int, lives: int) -> dict[str, Any]:
    """All figures; seven minutes with the defaults."""
    say("building")
    tree = build()
    say("calls, uncontended")
    calls = run_json(tree / "bench" / "bench_events")
    say("locks with and without the shim")
    locks = lock_overhead(tree)
    say(f"memcached with and without the shim, {lives} lives")
    server = server_overhead(tree, lives)
    options = ("--seconds", str(seconds), "--rounds", str(rounds))
    cases = []
    for name in CASES:
        say(f"case {name}")
        cases.append(checked(run_json(tree / "cases" / f"case_{name}", *options)))
    reductions = [case["reduction"] for case in cases]
    return {
        "benchmark": "pbox",
        **calls,
        "shim_lock_ns": locks["mutex_ns"],
        "shim_rwlock_ns": locks["rwlock_ns"],
        "server_overhead": server["throughput"].value,
        "server_overhead_ci95": server["throughput"][1:],
        "server_cpu_overhead": server["cpu"].value,
        "server_cpu_overhead_ci95": server["cpu"][1:],
        "server_lives": lives,
        "mean_reduction": sum(reductions) / len(reductions),
        "min_reduction": min(reductions),
        "cases": len(cases),
        "per_case": cases,
        "machine": machine(),
    }


def say(what: str) -> None:
    """What is being done, to standard error."""
    print(f"pbox: {what}", file=sys.stderr, flush=True)


def lock_overhead(tree: Path) -> dict[str, float]:
    """Nanoseconds that the shim adds to a pair of calls, by kind of lock; runs take turns.

    Raises
    ------
    SystemExit
        If the calls did not lead to the shim in each run with it, and in no other.
    """
    program = tree / "bench" / "bench_locks"
    shim = shim_environment(tree, "/dev/shm/pbox-%p.page")  # noqa: S108 - the page's usual place
    pairs = [(run_json(program), run_json(program, environment=shim)) for _ in range(_LOCK_PAIRS)]
    for plain, shimmed in pairs:
        if SHIM in plain["calls_lead_to"] or SHIM not in shimmed["calls_lead_to"]:
            raise SystemExit(
                f"the shim did not take effect where it should alone: without it calls lead to "
                f"{plain['calls_lead_to']}, with it to {shimmed['calls_lead_to']}"
            )
    return {
        kind: median(after[kind] - before[kind] for before, after in pairs)
        for kind in ("mutex_ns", "rwlock_ns")
    }


def checked(case: dict[str, Any]) -> dict[str, Any]:
    """A case's figures with the paper's, if they are of an interference that pBox has met.

    Raises
    ------
    SystemExit
        Saying what was missing.
    """
    name = f"case {case['case']}"
    if not min(case["noisy_requests"]):
        raise SystemExit(f"{name}: the noisy one did nothing in a block")
    if not case["level"] > _LEAST_LEVEL:
        raise SystemExit(f"{name}: an interference of {case['level']} is none to reduce")
    if not case["penalties"]:
        raise SystemExit(f"{name}: nobody was penalised, so what was reduced was not by pBox")
    return case | {"paper": PAPER[case["case"]]}


def lines(result: dict[str, Any]) -> list[str]:
    """What a person wants to know first."""
    low, high = result["server_overhead_ci95"]
    return [
        f"update_pbox {result['update_ns']:.0f} ns, create_pbox {result['create_ns']:.0f} ns",
        f"shim: {result['shim_lock_ns']:.0f} ns more for a lock and unlock",
        f"shim: memcached gives {result['server_overhead']:.1%} less ({low:.1%} to {high:.1%})",
        f"shim: memcached spends {result['server_cpu_overhead']:.1%} more processor time a request "
        "({:.1%} to {:.1%})".format(*result["server_cpu_overhead_ci95"]),
        *(
            f"{case['case']:>4} {case['title']}: {case['t_o_ms']:.2f} ms alone, "
            f"{case['t_i_ms']:.2f} disturbed, {case['t_s_ms']:.2f} with pBox, "
            f"r = {case['reduction']:.3f}"
            for case in result["per_case"]
        ),
        f"r {result['mean_reduction']:.3f} on average, {result['min_reduction']:.3f} at least",
    ]


if __name__ == "__main__":
    main()
