"""The figures of docs/pbox.md, from the JSON of ``benchmarks.pbox``.

The page is written by hand but for its blocks.  The JSON that they are of lies beside the page,
and a test holds them together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.support.page import table, with_blocks

Result = Mapping[str, Any]


def write_page(page: Path, result: Result) -> None:
    """Put the figures into the page, and the JSON beside it.

    Raises
    ------
    ValueError
        If the page lacks a block, or has one of an unknown name.
    """
    text = with_figures(page.read_text(encoding="utf-8"), result)
    page.write_text(text, encoding="utf-8")
    beside = json.dumps(result, indent=2) + "\n"
    page.with_suffix(".json").write_text(beside, encoding="utf-8")


def with_figures(text: str, result: Result) -> str:
    """The page's text with these figures in its blocks."""
    return with_blocks(text, _BLOCKS, result)


def _machine(result: Result) -> str:
    machine = result["machine"]
    return (
        f"Figures of `python -m benchmarks.pbox` on {machine['cores']} cores ({machine['cpu']}, "
        f"{machine['system']} {machine['kernel']}).\n"
    )


def _cases(result: Result) -> str:
    columns = ["case", "", "paper: level", "T_s", "here: level", "T_o", "T_i", "T_s", "r"]
    columns += ["r of P95", "a noisy request takes", "penalties", "of victims"]
    rows = []
    for case in result["per_case"]:
        paper = case["paper"]
        noisy_i_ms, noisy_s_ms = case["noisy_ms"]
        row = [
            case["case"],
            case["title"],
            f"{paper['level']:g}",
            f"{paper['t_s_ms']:g}" if "t_s_ms" in paper else "",
            _short(case["level"]),
            _short(case["t_o_ms"]),
            _short(case["t_i_ms"]),
            _short(case["t_s_ms"]),
            f"**{case['reduction']:.3f}**",
            f"{case['p95_reduction']:.2f}",
            f"{_short(noisy_i_ms)} to {_short(noisy_s_ms)}",
            f"{case['penalties']} of {_short(case['penalty_ms'])}",
            str(case["victims_penalties"]),
        ]
        rows.append(row)
    mean, least = result["mean_reduction"], result["min_reduction"]
    return f"{table(columns, rows)}\nr is {mean:.3f} on average and {least:.3f} at least.\n"


def _calls(result: Result) -> str:
    rows = [
        ("`update_pbox`, mean of the four events", _ns(result["update_ns"]), "420 to 500"),
        ("PREPARE and ENTER together, two clock readings in it", _ns(result["wait_pair_ns"]), ""),
        ("HOLD and UNHOLD together, one in it", _ns(result["hold_pair_ns"]), ""),
        ("activate and freeze together", _ns(result["activity_ns"]), ""),
        ("`create_pbox`, a slot used before", _ns(result["create_ns"]), "8,800"),
        ("`create_pbox`, fresh memory", _ns(result["create_first_ns"]), ""),
        (
            "unbind and bind together; lazily",
            f"{_ns(result['rebind_ns'])}; {_ns(result['rebind_lazy_ns'])}",
            "",
        ),
        (
            "shim: added to a lock and unlock, mutex; rwlock",
            f"{result['shim_lock_ns']:.1f}; {result['shim_rwlock_ns']:.1f}",
            "",
        ),
        ("one reading of the clock", _ns(result["clock_ns"]), ""),
    ]
    return table(("uncontended, median", "ns", "the paper's"), rows)


def _server(result: Result) -> str:
    what = f"the shim before memcached, {result['server_lives']} pairs of servers"
    rows = [
        ("takes of its throughput", _percent(result, "server_overhead"), "3.6 % of latency"),
        ("adds to its processor time", _percent(result, "server_cpu_overhead"), ""),
    ]
    return table((what, "median (95 %)", "the paper's"), rows)


def _percent(result: Result, name: str) -> str:
    low, high = result[f"{name}_ci95"]
    return f"{100 * result[name]:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"


def _ns(value: float) -> str:
    return f"{value:.0f}"


def _short(value: float) -> str:
    """To three figures: 0.234, 2.34, 23.4."""
    return f"{value:.3g}"


_BLOCKS: Mapping[str, Callable[[Result], str]] = {
    "machine": _machine,
    "cases": _cases,
    "calls": _calls,
    "server": _server,
}
