"""Accuracy as pictures: confusion matrix, Eq. 1 over the points it was fitted to, the tree.

Drawn to be understood from the last row: titles that say what was found, labels beside what
they name, colours that stay apart for the colour blind (Okabe and Ito).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from dial.classifier import Branch, Leaf, Tree
from dial.model import ModelDocument
from dial.queueing import RHO_MAX, TailCurve
from dial.types import Cause
from dial_training.accuracy import HELDOUT
from dial_training.fit import TRAIN
from dial_training.measure import Evaluation
from dial_training.tree import leaves
from dial_training.windows import Point

COLOURS = {
    Cause.NONE: "#8A8A8A",
    Cause.LOAD: "#56B4E9",
    Cause.CPU: "#D55E00",
    Cause.NET: "#0072B2",
    Cause.DISK: "#009E73",
    Cause.LLC: "#CC79A7",
    Cause.SELF_LIMITED: "#E69F00",
    Cause.UNKNOWN: "#4D4D4D",
}
_INK = "#222222"
_FAINT = "#8A8A8A"
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_DPI = 130


def draw_all(found: Evaluation, model: ModelDocument, directory: Path) -> list[Path]:
    """Draw every picture there is data for; returns their paths."""
    drawn = [directory / "tree.png"]
    draw_tree(model.decision_tree, drawn[0])
    if found.accuracy["per_class"]:
        drawn.append(directory / "confusion.png")
        draw_confusion(found.accuracy, drawn[-1])
    if model.tail_shapes:
        drawn.append(directory / "eq1.png")
        draw_curves(model.tail_shapes, found.points, drawn[-1])
    return drawn


def draw_confusion(accuracy: Mapping[str, Any], path: Path) -> None:
    """What was the matter in the unseen cases (rows), and what was found (columns)."""
    per_class = accuracy["per_class"]
    labels = list(per_class)
    answers = [
        c.value
        for c in Cause
        if c in per_class or any(c in r["answers"] for r in per_class.values())
    ]
    counts = np.array(
        [[per_class[label]["answers"].get(a, 0) for a in answers] for label in labels]
    )
    parts = counts / counts.sum(axis=1, keepdims=True)
    with mpl.rc_context(_STYLE):
        figure = Figure(
            figsize=(3.0 + 1.15 * len(answers), 2.4 + 0.75 * len(labels)),
            dpi=_DPI,
            layout="constrained",
        )
        axes = figure.subplots()
        axes.imshow(parts, cmap="Greens", vmin=0.0, vmax=1.25, aspect="auto")
        for (row, column), count in np.ndenumerate(counts):
            if count:
                dark = parts[row, column] > 0.6
                right = labels[row] == answers[column]
                axes.text(
                    column,
                    row,
                    str(count),
                    ha="center",
                    va="center",
                    color="white" if dark else _INK,
                    fontweight="bold" if right else "normal",
                    fontsize=14,
                )
        axes.set_xticks(range(len(answers)), answers)
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("what DIAL found")
        axes.set_ylabel("what was the matter")
        axes.set_title(
            f"Programs never trained on: {accuracy['unseen_accuracy']:.0%} "
            f"of {accuracy['unseen_n']} cases right",
            loc="left",
            fontsize=14,
            fontweight="bold",
        )
        figure.savefig(path)


def draw_curves(
    curves: Mapping[Cause, TailCurve], points: Mapping[str, list[Point]], path: Path
) -> None:
    """Eq. 1 of each resource over training and held-out stages (the paper's Fig. 5)."""
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.2 * columns, 4.1 * rows + 0.6), dpi=_DPI, layout="constrained")
        figure.suptitle(
            "Eq. 1 through whole stages: dots were fitted, rings are held-out intensities",
            x=0.01,
            ha="left",
            fontsize=14,
            fontweight="bold",
        )
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, (resource, curve) in zip(grid.flat, curves.items(), strict=False):
            _curve(axes, resource, curve, points)
        for axes in list(grid.flat)[len(curves) :]:
            axes.set_visible(False)
        figure.savefig(path)


def draw_tree(tree: Tree, path: Path) -> None:
    """The tree from left to right: upper branch below the threshold, lower branch above."""
    with mpl.rc_context(_STYLE):
        figure = Figure(
            figsize=(1.9 * (_depth(tree) + 0.6) + 0.6, 0.75 * leaves(tree) + 0.9),
            dpi=_DPI,
            layout="constrained",
        )
        axes = figure.subplots()
        axes.set_axis_off()
        _node(axes, tree, depth=0, top=0)
        axes.set_xlim(-0.1, _depth(tree) + 0.55)
        axes.set_ylim(leaves(tree) - 0.4, -0.6)
        axes.set_title(
            "Which resource: the tree (dashed where the signal is missing)",
            loc="left",
            fontsize=14,
            fontweight="bold",
        )
        figure.savefig(path)


def _curve(
    axes: Axes, resource: Cause, curve: TailCurve, points: Mapping[str, list[Point]]
) -> None:
    colour = COLOURS[resource]
    lowest_ms = highest_ms = curve.t_x_ms(0.0)
    for name, face in ((TRAIN, colour), (HELDOUT, "none")):
        of = [p for p in points.get(name, []) if p.resource is resource and p.rho <= RHO_MAX]
        axes.scatter(
            [p.rho for p in of],
            [p.t_x_ms for p in of],
            s=26,
            facecolors=face,
            edgecolors=_INK if name == HELDOUT else "none",
            linewidths=0.9,
            alpha=0.9 if name == HELDOUT else 0.45,
            zorder=3 if name == HELDOUT else 2,
        )
        lowest_ms = min([lowest_ms, *(p.t_x_ms for p in of)])
        highest_ms = max([highest_ms, *(p.t_x_ms for p in of)])
    rho = np.linspace(0.0, RHO_MAX, 400)
    axes.plot(rho, [curve.t_x_ms(r) for r in rho], color=_INK, linewidth=2.0, zorder=4)
    # Latencies span two decades, and the error that was minimised is the relative one.
    axes.set_yscale("log")
    axes.set_ylim(0.7 * lowest_ms, 1.5 * highest_ms)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("rho_fg + rho_bg")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    terms = ((curve.c0_ms, ""), (curve.c1_ms, " u"), (curve.c2_ms, " u²"))
    formula = " + ".join(f"{c:.3g}{unit}" for c, unit in terms if c > 0.0)
    axes.set_title(f"{resource}: T_x / idle T_x = {formula}", loc="left", fontsize=12.5, color=_INK)


def _depth(tree: Tree) -> int:
    return 0 if isinstance(tree, Leaf) else 1 + max(_depth(tree.below), _depth(tree.above))


def _node(axes: Axes, tree: Tree, depth: int, top: int) -> float:
    """Draw a subtree whose leaves begin in row ``top``; returns the height of its root."""
    if isinstance(tree, Leaf):
        axes.text(
            depth,
            top,
            tree.cause.value,
            ha="left",
            va="center",
            color="white",
            fontweight="bold",
            bbox={"boxstyle": "round,pad=0.35", "facecolor": COLOURS[tree.cause], "linewidth": 0},
        )
        return float(top)
    below = _node(axes, tree.below, depth + 1, top)
    above = _node(axes, tree.above, depth + 1, top + leaves(tree.below))
    height = (below + above) / 2.0
    for side, at, sign in (("below", below, "<"), ("above", above, "≥")):
        axes.plot(
            [depth + 0.02, depth + 0.02, depth + 0.95],
            [height, at, at],
            color=_FAINT,
            linewidth=1.6,
            linestyle=(0, (3, 2)) if tree.missing == side else "-",
            zorder=1,
        )
        axes.text(
            depth + 0.45,
            at,
            _question(tree, side, sign),
            ha="center",
            va="bottom",
            fontsize=10.5,
        )
    axes.text(
        depth + 0.02,
        height,
        tree.feature.replace("_", " "),
        ha="left",
        va="center",
        fontsize=11,
        bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": _FAINT},
        zorder=2,
    )
    return height


def _question(branch: Branch, side: str, sign: str) -> str:
    """What has to hold to go to one side."""
    if branch.asks_whether_known:
        return "missing" if side == branch.missing else "known"
    return f"{sign} {branch.threshold:.3g}"
