"""How a benchmark measures and reports."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median

_CPUINFO = Path("/proc/cpuinfo")


def median_ms(call: Callable[[], object], *, runs: int, warm_up: int = 10) -> float:
    """Median wall time of one call in milliseconds.

    The median, because other programs only ever add time, now and then and a lot.
    """
    for _ in range(warm_up):
        call()
    times_ns = []
    for _ in range(runs):
        start_ns = time.perf_counter_ns()
        call()
        times_ns.append(time.perf_counter_ns() - start_ns)
    return median(times_ns) / 1e6


def machine() -> dict[str, object]:
    """What a figure depends on beside the code."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "kernel": platform.release(),
    }


def versions(*distributions: str) -> dict[str, str]:
    """Of Python and of the distributions named."""
    return {"python": platform.python_version()} | {name: version(name) for name in distributions}


def report(lines: list[str], result: Mapping[str, object], *, as_json: bool) -> None:
    """Text to standard error; the result, where asked for, as the last line of output."""
    print("\n".join(lines), file=sys.stderr)
    if as_json:
        print(json.dumps(result))


def _cpu_model() -> str:
    """Linux tells it in /proc only; elsewhere the architecture must do."""
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
