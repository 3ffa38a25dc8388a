"""The timeline: P_x against time for every policy, and where the victim's share went.

Drawn to be understood from the last row: direct labels instead of a legend, a logarithmic
axis because good and bad lie a hundred times apart, colours that stay apart for the colour
blind (Okabe and Ito), and a title that says what was found, with numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from dial_lab.reaction import changes, share
from dial_lab.report import BlockResult

WINDOW_S = 4.0
"""Length of the sliding window: some 600 requests at usual rates, 60 of them above P90."""

_STEP_S = 0.5

_COLOURS = {
    "roundrobin": "#D55E00",
    "leastconn": "#0072B2",
    "random2": "#CC79A7",
    "dial": "#009E73",
    "dial-leastconn": "#882255",
    "dial-roundrobin": "#56B4E9",
    "dial-paper": "#E69F00",
}
_NAMES = {
    "roundrobin": "round robin",
    "leastconn": "least connections",
    "random2": "random of two",
    "dial": "DIAL",
    "dial-leastconn": "DIAL on least connections",
    "dial-roundrobin": "DIAL on round robin",
    "dial-paper": "DIAL (paper, 10 s)",
}
_INK = "#222222"
_FAINT = "#8A8A8A"
_SHADE = "#F3E3D3"
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def sliding(
    block: BlockResult, x: float, window_s: float = WINDOW_S
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The x-th percentile in a sliding window, by intended moment.

    Returns
    -------
    at_s, t_x_ms
        float64[n] each; the window's end (a centred one would show the neighbour before it
        comes), and NaN where it holds no answer.
    """
    kept = block.results.ok
    intended_s = block.results.intended_s[kept]
    latency_ms = block.results.latency_ms[kept]
    at_s = np.arange(0.0, block.phases.end_s + _STEP_S / 2, _STEP_S)
    first = np.searchsorted(intended_s, at_s - window_s)
    last = np.searchsorted(intended_s, at_s)
    t_x_ms = [
        float(np.percentile(latency_ms[a:b], x)) if b > a else np.nan
        for a, b in zip(first, last, strict=True)
    ]
    return at_s, np.array(t_x_ms)


def draw(
    report: Mapping[str, Any], blocks: Mapping[str, Sequence[BlockResult]], path: Path
) -> None:
    """Draw the first round of every policy to a PNG file.

    Parameters
    ----------
    report
        The JSON report of the run.
    blocks
        Its blocks by policy.
    path
        Of the picture.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(12.8, 7.2), dpi=150, facecolor="white")
        weighted = any(block[0].reaction is not None for block in blocks.values())
        heights = [3.6, 1.0] if weighted else [1.0]
        axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[
            :, 0
        ]
        figure.subplots_adjust(left=0.075, right=0.87, top=0.815, bottom=0.085, hspace=0.24)
        _latencies(axes[0], report, blocks)
        if weighted:
            _shares(axes[1], report, blocks)
        axes[-1].set_xlabel("time (s)")
        _title(figure, report)
        figure.savefig(path)


def finding(report: Mapping[str, Any]) -> tuple[str, str]:
    """Title and the line below it, from the measured numbers."""
    x = report["percentile"]
    contended = {
        name: policy["contended"].get(f"p{x:g}_ms") for name, policy in report["policies"].items()
    }
    circumstances = (
        f"three machines behind HAProxy, {report['rate_per_s']:.0f} requests/s, "
        f"{report['load']:.0%} of what they can serve during contention"
    )
    ours = next((name for name in ("dial", "dial-paper") if contended.get(name)), None)
    others = {n: v for n, v in contended.items() if v and not n.startswith("dial")}
    if report["severity"] is None:
        return "No neighbour: what each policy does when there is nothing to do", circumstances
    taken = f"{policy_rho(report):.0%}"
    if ours is None or not others:
        return f"A hidden neighbour takes {taken} of one machine's CPU", circumstances
    worst = max(others, key=lambda name: others[name])
    title = (
        f"A hidden neighbour takes {taken} of one machine: "
        f"P{x:g} {_ms(contended[ours])} with {_NAMES[ours]}, "
        f"{_ms(others[worst])} with {_NAMES.get(worst, worst)}"
    )
    return title, circumstances


def policy_rho(report: Mapping[str, Any]) -> float:
    """True rho_bg of the run."""
    return float(next(iter(report["policies"].values()))["rho_bg"]["true"])


def _title(figure: Figure, report: Mapping[str, Any]) -> None:
    title, circumstances = finding(report)
    figure.text(0.022, 0.945, title, fontsize=15, fontweight="bold", va="center")
    figure.text(0.022, 0.895, circumstances, fontsize=12, color="#555555", va="center")


def _latencies(
    axes: Axes, report: Mapping[str, Any], blocks: Mapping[str, Sequence[BlockResult]]
) -> None:
    x = report["percentile"]
    _frame(axes, report)
    labels = []
    for name, of in blocks.items():
        at_s, t_x_ms = sliding(of[0], x)
        colour = _COLOURS.get(name, _INK)
        axes.plot(at_s, t_x_ms, color=colour, linewidth=2.6, solid_capstyle="round")
        labels.append((name, colour, _label_height(report, at_s, t_x_ms)))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _ms(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    _caption(axes, f"P{x:g} of response time")
    for name, colour, height_ms in _apart(labels, axes):
        value = report["policies"][name]["contended"].get(f"p{x:g}_ms")
        axes.annotate(
            f"{_NAMES.get(name, name)}\nP{x:g} {_ms(value)}",
            xy=(1.012, height_ms),
            xycoords=("axes fraction", "data"),
            color=colour,
            fontsize=12.5,
            fontweight="bold",
            va="center",
            annotation_clip=False,
        )
    first_s, last_s = report["phases_s"]["contended"]
    if report["severity"] is not None:
        axes.annotate(
            "hidden neighbour beside machine 1",
            xy=((first_s + last_s) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color="#8C5A2B",
            fontsize=12,
        )


def _label_height(
    report: Mapping[str, Any], at_s: NDArray[np.float64], t_x_ms: NDArray[np.float64]
) -> float:
    """A line's label stands at its usual height during contention."""
    first_s, last_s = report["phases_s"]["contended"]
    inside = t_x_ms[(at_s >= first_s) & (at_s < last_s)]
    return float(np.nanmedian(inside)) if np.isfinite(inside).any() else 1.0


def _apart(labels: Sequence[tuple[str, str, float]], axes: Axes) -> list[tuple[str, str, float]]:
    """Move labels up until none covers another."""
    low, high = axes.get_ylim()
    least = (high / low) ** 0.13
    placed: list[tuple[str, str, float]] = []
    for name, colour, height in sorted(labels, key=lambda label: label[2]):
        floor = placed[-1][2] * least if placed else low * least**0.5
        placed.append((name, colour, max(height, floor)))
    return placed


def _shares(
    axes: Axes, report: Mapping[str, Any], blocks: Mapping[str, Sequence[BlockResult]]
) -> None:
    _frame(axes, report)
    victim = report["victim"]
    axes.axhline(100 / 3, color=_FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.annotate(
        "even",
        xy=(1.012, 100 / 3),
        xycoords=("axes fraction", "data"),
        color=_FAINT,
        va="center",
        annotation_clip=False,
    )
    for name, of in blocks.items():
        if of[0].reaction is None:
            continue
        series = changes(of[0].reaction.weights)
        at_s = [max(0.0, entry[0]) for entry in series] + [of[0].phases.end_s]
        shares = [100 * share(weights, victim) for _, weights in series]
        colour = _COLOURS.get(name, _INK)
        axes.step(at_s, [*shares, shares[-1]], where="post", color=colour, linewidth=2.6)
    axes.set_ylim(0, 42)
    axes.set_yticks([0, 20, 40])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
    _caption(axes, "machine 1's share of requests")


def _caption(axes: Axes, text: str) -> None:
    """Above the axis and upright: nobody reads a talk with the head on one side."""
    axes.annotate(
        text,
        xy=(-0.068, 1.0),
        xycoords="axes fraction",
        xytext=(0, 9),
        textcoords="offset points",
        annotation_clip=False,
    )


def _frame(axes: Axes, report: Mapping[str, Any]) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0)
    axes.set_xlim(0, report["phases_s"]["recovered"][1])
    if report["severity"] is not None:
        axes.axvspan(*report["phases_s"]["contended"], color=_SHADE, linewidth=0, zorder=0)


def _ms(value: float | None) -> str:
    if value is None:
        return "no answers"
    if value >= 1000:
        return f"{value / 1000:.2g} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"
