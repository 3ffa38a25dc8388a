"""The matrix as a picture: how our P90 compares with everybody's, cell by cell.

One square for each policy and cell: the ratio of P90, blue where ours is lower.  What a cell is not
measured against stays empty; a cell that is not measured says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from benchmarks.support.matrix_cells import CALM, OURS, RIVALS, SHIPPED, Cell, cells
from benchmarks.support.matrix_criteria import Measured

_INK, _FAINT, _NOTHING = "#222222", "#8A8A8A", "#F2F2F2"
_NAMES = {
    "roundrobin": "round robin",
    "leastconn": "least connections",
    "random2": "random of two",
    "leastrequest": "least request (Envoy)",
    "cswrr": "load reports (Envoy)",
    "dial-leastconn": "DIAL on least conn.",
    "dial-roundrobin": "DIAL on round robin",
    "dial-paper": "DIAL (paper)",
    "oracle": "oracle: true capacities",
    "peak-ewma": "peak EWMA",
    "prequal": "Prequal",
    "knapsack": "KnapsackLB",
    "ice": "ICE",
    "wrr-proportional": "by capacity, round robin",
    "wlc-proportional": "by capacity, least conn.",
}
_WORST = 4.0
"""Ratios beyond it and its inverse have the strongest colour."""

_STYLE: Any = {"font.size": 10, "text.color": _INK, "xtick.color": _INK, "ytick.color": _INK}


def draw(measured: Mapping[str, Measured], path: Path) -> None:
    """Write a PNG file of the cells that are ``measured``, by name."""
    columns = sorted(cells(), key=lambda cell: (cell.load, -cell.severity, cell.app != "lab"))
    rows = policies(columns)
    places = _places(columns)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(16.0, 2.6 + 0.4 * len(rows)), dpi=110, facecolor="white")
        inch = 1.0 / figure.get_figheight()
        axes = figure.subplots()
        figure.subplots_adjust(left=0.125, right=0.99, top=1.0 - 1.75 * inch, bottom=0.45 * inch)
        for cell, x in zip(columns, places, strict=True):
            if str(cell) in measured:
                _column(axes, x, measured[str(cell)], rows)
            else:
                _no_column(axes, x, len(rows))
        _furnish(axes, columns, places, rows)
        figure.text(0.01, 1.0 - 0.4 * inch, _title(measured, columns), fontsize=16)
        figure.text(0.01, 1.0 - 0.7 * inch, _below(measured, columns), color=_FAINT, fontsize=11)
        figure.savefig(path)


def policies(columns: Sequence[Cell]) -> list[str]:
    """Whom ours is compared with, the balancers' own first."""
    named = dict.fromkeys(name for cell in columns for name in cell.policies)
    order = [*SHIPPED, *RIVALS]
    rest = [name for name in named if name not in order and name != OURS[0]]
    return [name for name in (*order, *rest) if name in named]


def _places(columns: Sequence[Cell]) -> list[float]:
    """Where each column stands: a gap between groups of the same load and severity."""
    groups = [(cell.load, cell.severity) for cell in columns]
    gaps = np.cumsum([0.0] + [0.5 * (a != b) for a, b in pairwise(groups)])
    return [at + float(gap) for at, gap in enumerate(gaps)]


def _no_column(axes: Axes, x: float, rows: int) -> None:
    axes.add_patch(Rectangle((x - 0.5, -0.5), 1.0, rows, facecolor=_NOTHING, edgecolor="white"))
    said = {"rotation": 90, "ha": "center", "va": "center", "color": _FAINT}
    axes.text(x, (rows - 1) / 2, "not measured", said)


def _column(axes: Axes, x: float, found: Measured, rows: Sequence[str]) -> None:
    norm = LogNorm(1.0 / _WORST, _WORST, clip=True)
    colours = mpl.colormaps["RdBu_r"]
    for y, name in enumerate(rows):
        ratio = found["ratios"].get(f"{OURS[0]}/{name}")
        if ratio is None or ratio["p90"] is None:
            continue
        red, green, blue, _ = colours(float(norm(ratio["p90"])))
        square = Rectangle((x - 0.5, y - 0.5), 1.0, 1.0, facecolor=(red, green, blue))
        square.set_edgecolor("white")
        axes.add_patch(square)
        low, high = ratio["ci95"]
        # By the luminance of sRGB, so that a figure can be read on any of the colours.
        dark = 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5
        look = {
            "ha": "center",
            "va": "center",
            "color": "white" if dark else _INK,
            "fontweight": "bold" if low > 1.0 or high < 1.0 else "normal",
        }
        axes.text(x, y, _short(ratio["p90"]), look)


def _furnish(
    axes: Axes, columns: Sequence[Cell], places: Sequence[float], rows: Sequence[str]
) -> None:
    axes.set_xlim(places[0] - 0.6, places[-1] + 0.6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(places, labels=[_label(cell) for cell in columns], rotation=45, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), labels=[_NAMES.get(name, name) for name in rows])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    standing = zip(columns, places, strict=True)
    for (load, severity), group in groupby(standing, lambda one: (one[0].load, one[0].severity)):
        within = [x for _, x in group]
        text = f"load {load:g}, victim left {severity:g}"
        middle = (within[0] + within[-1]) / 2
        axes.text(middle, len(rows) - 0.2, text, ha="center", va="top", fontsize=11)
    for names in (SHIPPED, RIVALS):
        last = max((rows.index(name) for name in names if name in rows), default=None)
        if last is not None and last + 1 < len(rows):
            axes.axhline(last + 0.5, color=_INK, linewidth=0.8)


def _label(cell: Cell) -> str:
    return cell.resource if cell.app == "lab" else f"{cell.resource}, {cell.app}"


def _title(measured: Mapping[str, Measured], columns: Sequence[Cell]) -> str:
    there = sum(str(cell) in measured for cell in columns)
    return f"DIAL's P90 over everybody else's: {there} of {len(columns)} cells measured"


def _below(measured: Mapping[str, Measured], columns: Sequence[Cell]) -> str:
    repeats = {measured[str(cell)]["repeats"] for cell in columns if str(cell) in measured}
    often = f"{min(repeats)} repeats a cell at least; " if repeats else ""
    return (
        f"below 1 (blue) DIAL's is lower; {often}bold: the 95 % interval excludes 1; "
        f"nobody contends in {', '.join(CALM)}"
    )


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"
