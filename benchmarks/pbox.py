"""What pBoxes cost, and what they do for those who are kept waiting.

``update_ns``
    One ``update_pbox``, uncontended: the mean over the four events of a pass, median of batches.
``create_ns``
    One ``create_pbox`` in a slot used before; ``create_first_ns`` in fresh memory.
``shim_lock_ns``
    What the shim adds to an uncontended lock and unlock of a mutex: median of paired runs.
``server_overhead``
    What the shim takes of memcached's throughput, as a fraction: two servers, one with it, loaded
    in turn; the median over pairs, with its 95 % interval.
``mean_reduction``, ``min_reduction``, ``cases``
    Interference reduction ratio (T_i - T_s) / (T_i - T_o) of the programs in ``pbox/cases``, each
    a small model of a case of the paper's.  ``per_case`` has all figures of each.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.support.harness import machine, report
from benchmarks.support.pbox import CASES, build, run_json, shim_environment

_LOCK_PAIRS = 5
_CONNECTIONS = 4
_BLOCK_S = 0.4
_START_S = 10.0
"""Longest time until a server answers."""


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pbox", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each block of a case")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each kind in a case")
    parser.add_argument("--pairs", type=int, default=30, help="paired blocks of the server's load")
    arguments = parser.parse_args()

    tree = build()
    calls = run_json(tree / "bench" / "bench_events")
    locks = lock_overhead(tree)
    overhead, interval = server_overhead(tree, arguments.pairs)
    options = ("--seconds", str(arguments.seconds), "--rounds", str(arguments.rounds))
    cases = [run_json(tree / "cases" / f"case_{name}", *options) for name in CASES]
    reductions = [case["reduction"] for case in cases]
    lines = [
        f"update_pbox {calls['update_ns']:.0f} ns, create_pbox {calls['create_ns']:.0f} ns",
        f"shim: {locks['mutex_ns']:.0f} ns more for a lock and unlock",
        f"shim: memcached gives {overhead:.1%} less ({interval[0]:.1%} to {interval[1]:.1%})",
        *(
            f"{case['case']:>4} {case['title']}: {case['t_o_ms']:.2f} ms alone, "
            f"{case['t_i_ms']:.2f} disturbed, {case['t_s_ms']:.2f} with pBox, "
            f"r = {case['reduction']:.3f}"
            for case in cases
        ),
        f"r {sum(reductions) / len(reductions):.3f} on average, {min(reductions):.3f} at least",
    ]
    result = {
        "benchmark": "pbox",
        **calls,
        "shim_lock_ns": locks["mutex_ns"],
        "shim_rwlock_ns": locks["rwlock_ns"],
        "server_overhead": overhead,
        "server_overhead_ci95": interval,
        "server_pairs": arguments.pairs,
        "mean_reduction": sum(reductions) / len(reductions),
        "min_reduction": min(reductions),
        "cases": len(cases),
        "per_case": cases,
        "machine": machine(),
    }
    report(lines, result, as_json=arguments.json)


def lock_overhead(tree: Path) -> dict[str, float]:
    """Nanoseconds that the shim adds to a pair of calls, by kind of lock; runs take turns."""
    program = tree / "bench" / "bench_locks"
    shim = shim_environment(tree, "/dev/shm/pbox-%p.page")  # noqa: S108 - the page's usual place
    pairs = [(run_json(program), run_json(program, environment=shim)) for _ in range(_LOCK_PAIRS)]
    return {
        kind: median(after[kind] - before[kind] for before, after in pairs) for kind in pairs[0][0]
    }


def server_overhead(tree: Path, pairs: int) -> tuple[float, tuple[float, float]]:
    """Fraction of a server's throughput that the shim takes, and its 95 % interval.

    Both servers run all the time and are loaded in turn, in an order that changes with each pair,
    so that a drift of the machine's speed meets both.  The interval is the median's, by ranks.
    """
    load = tree / "bench" / "bench_kv_load"
    shim = shim_environment(tree, "/dev/shm/pbox-%p.page")  # noqa: S108 - the page's usual place
    with ExitStack() as servers:
        ports = [servers.enter_context(memcached(variables)) for variables in ({}, shim)]
        ratios = []
        for pair in range(pairs + 1):
            rates = {}
            for port in ports if pair % 2 else reversed(ports):
                figures = run_json(load, str(port), str(_CONNECTIONS), str(_BLOCK_S))
                rates[port] = figures["requests_per_s"]
            if pair:  # the first one warms up
                ratios.append(1 - rates[ports[1]] / rates[ports[0]])
    ratios.sort()
    spread = round(0.98 * pairs**0.5)  # ranks n/2 -+ 1.96 sqrt(n)/2: the binomial, as a normal
    low, high = max(0, pairs // 2 - spread), min(pairs - 1, pairs // 2 + spread)
    return median(ratios), (ratios[low], ratios[high])


@contextmanager
def memcached(environment: dict[str, str]) -> Iterator[int]:
    """A memcached with two workers; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "2", "-m", "64"]
    if os.geteuid() == 0:
        command += ["-u", "root"]  # or it refuses; it serves the loopback alone
    process = subprocess.Popen(command, env=os.environ | environment)
    try:
        wait_until_it_answers(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_until_it_answers(port: int) -> None:
    """Return once somebody listens on the port."""
    give_up_s = time.monotonic() + _START_S
    while time.monotonic() < give_up_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"memcached does not answer on port {port} within {_START_S:g} s")


if __name__ == "__main__":
    main()
