"""False alarms as a picture: how rarely the step from noise to moved load is made.

One axis of time between events, from a second to a month, for everything: intervals that are
slower than expected, those that look like a neighbour, and load that is moved; and the last of
these for each session.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_NAMES = {"quiet": "even load", "load": "changing load"}
_COLOURS = {"quiet": "#0072B2", "load": "#D55E00"}
_INK, _FAINT = "#222222", "#8A8A8A"
_ASKED_H = 24.0

_TIMES_S = {
    1.0: "1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    6 * 3600.0: "6 h",
    86_400.0: "1 day",
    7 * 86_400.0: "1 week",
    30 * 86_400.0: "1 month",
}
_HOUR_S = 3600.0

_STYLE: Any = {
    "font.size": 12,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Write a PNG file of a result of :mod:`benchmarks.false_alarms`."""
    rows: list[tuple[str, float, float | None, float | None, str]] = []
    for kind, what in _NAMES.items():
        of_one = result[kind]
        colour = _COLOURS[kind]
        rows += [
            (f"{what}: slower than expected", of_one["above_s"], None, None, colour),
            (f"{what}: looks like a neighbour", of_one["suspected_s"], None, None, colour),
            (f"{what}: load is moved", *_mean_s(of_one), colour),
        ]
    by_session = sorted(result["sessions"], key=lambda one: (one["session"], one["kind"]))
    for one in by_session:
        name = f"{one['session'].rpartition('-')[0]}, {_NAMES[one['kind']]}"
        rows.append((name, *_mean_s(one), _COLOURS[one["kind"]]))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(12.8, 2.2 + 0.36 * len(rows)), dpi=150, facecolor="white")
        axes = figure.subplots()
        figure.subplots_adjust(left=0.3, right=0.97, top=1.0 - 1.15 / figure.get_figheight())
        for at, row in enumerate(rows):
            _row(axes, -at, row)
        _furnish(axes, [row[0] for row in rows], separator=-2 * 3 + 0.5)
        figure.text(0.02, 1.0 - 0.4 / figure.get_figheight(), _title(result), fontsize=16)
        figure.text(0.02, 1.0 - 0.75 / figure.get_figheight(), _below(result), color=_FAINT)
        figure.savefig(path)


def _mean_s(of_one: Mapping[str, Any]) -> tuple[float, float, float | None]:
    low, high = of_one["mtbf_hours_ci95"]
    return (
        _HOUR_S * of_one["mtbf_hours"],
        _HOUR_S * low,
        None if high is None else _HOUR_S * high,
    )


def _row(axes: Axes, y: float, row: tuple[str, float, float | None, float | None, str]) -> None:
    _, mean_s, low_s, high_s, colour = row
    if low_s is None:
        axes.plot([mean_s], [y], marker="o", markersize=8, color=colour)
    elif high_s is None:
        # None was seen: at least so long, and nobody knows how much longer.
        axes.annotate(
            "",
            (5.0 * low_s, y),
            (low_s, y),
            arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 2.0},
        )
        axes.plot([low_s], [y], marker="|", markersize=12, color=colour, markeredgewidth=2.0)
    else:
        axes.plot([low_s, high_s], [y, y], color=colour, linewidth=2.0)
        axes.plot([mean_s], [y], marker="o", markersize=8, color=colour)


def _furnish(axes: Axes, names: list[str], separator: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(1.0, 60 * 86_400.0)
    axes.set_xticks(list(_TIMES_S), labels=list(_TIMES_S.values()))
    axes.minorticks_off()
    axes.set_yticks([-at for at in range(len(names))], labels=names)
    axes.set_ylim(-len(names) + 0.5, 0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#E5E5E5", zorder=0)
    axes.set_axisbelow(True)
    axes.axhline(separator, color=_FAINT, linewidth=0.8)
    axes.axvline(_ASKED_H * _HOUR_S, color=_INK, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xlabel("mean time between (95 % interval; an arrow where none was seen)")


def _title(result: Mapping[str, Any]) -> str:
    quiet, load = result["quiet"], result["load"]
    return (
        f"{quiet['false_mitigations']} false mitigations in {quiet['hours']:.0f} h at even load, "
        f"{load['false_mitigations']} in {load['hours']:.0f} h of changing load"
    )


def _below(result: Mapping[str, Any]) -> str:
    return (
        f"three backends, drawn from {60.0 * result['distinct_hours']:.0f} minutes recorded "
        f"without a neighbour, in blocks of {result['block_ticks']:g} ticks; "
        f"dashed: what is asked, {_ASKED_H:g} h"
    )
