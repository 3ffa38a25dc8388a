"""docs/matrix.md: its figures, and the picture that it shows, from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.support import matrix_picture
from benchmarks.support.matrix_cells import cells
from benchmarks.support.matrix_criteria import Measured, of_all, of_cell, unsteady
from benchmarks.support.page import table, with_blocks
from dial_lab.resources.lines import TAKER

NOT_MEASURED = "not measured"

_PERCENTILES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "mean_ms")


def write_page(page: Path, measured: Mapping[str, Measured]) -> None:
    """Put the figures into the page, and draw the picture that it shows.

    Parameters
    ----------
    page
        Where it is.
    measured
        By cell.

    Raises
    ------
    ValueError
        If the page lacks a block, or has one of an unknown name.
    """
    page.write_text(with_figures(page.read_text(encoding="utf-8"), measured), encoding="utf-8")
    matrix_picture.draw(measured, page.parent / "images" / "matrix.png")


def with_figures(text: str, measured: Mapping[str, Measured]) -> str:
    """The page's text with these figures in its blocks."""
    return with_blocks(text, _BLOCKS, measured)


def _state(measured: Mapping[str, Measured]) -> str:
    text = f"{len(measured)} of {len(list(cells()))} cells are measured."
    if measured:
        each: list[Any] = list(measured.values())
        late = [name for name, cell in measured.items() if not cell["generator_kept_up"]]
        where = [cell["machine"] for cell in each]
        computers = {f"{one['cores']} cores of {one['cpu']}" for one in where}
        kernels = {f"Linux {one['kernel']}" for one in where}
        days = sorted(cell["at"][:10] for cell in each)
        took_min = sum(cell["took_s"] for cell in each) / 60.0
        text += (
            f" From {days[0]} to {days[-1]}, {took_min:.0f} minutes in all, on "
            f"{' and '.join(sorted(computers))} ({', '.join(sorted(kernels))})."
        )
        if late:
            text += f" The load generator was late in {', '.join(late)}."
        taken = [name for name, cell in measured.items() if TAKER in cell.get("neighbours", ())]
        if taken:
            text += (
                f" In {', '.join(taken)} the neighbour takes the victim's cache lines one by one, "
                "as the last level is too large there to be swept by one core."
            )
        changed = [f"{name} ({by})" for name, cell in measured.items() if (by := unsteady(cell))]
        if changed:
            text += (
                " Between the rounds of a cell, what a machine serves was not the same in "
                f"{', '.join(changed)}."
            )
    return text + "\n"


def _overall(measured: Mapping[str, Measured]) -> str:
    found = of_all(list(measured.values()), list(cells()))
    rows = [[one.what, one.figure, "holds" if one.holds else "**short**"] for one in found]
    return table(["asked over all", "found", ""], rows)


def _cells(measured: Mapping[str, Measured]) -> str:
    columns = ("shipped", "paper", "oracle", "no harm")
    about = ("repeats", "measured", "commit", "computer")
    rows = []
    for cell in cells():
        if str(cell) not in measured:
            rows.append([str(cell), NOT_MEASURED, *[""] * len((*columns, *about))])
            continue
        of = measured[str(cell)]
        found = {one.what: one for one in of_cell(of)}
        short = [what for what, one in found.items() if not one.holds]
        verdict = f"**short**: {', '.join(short)}" if short else "holds"
        figures = [found[name].figure if name in found else "" for name in columns]
        facts = [f"{of['repeats']}", of["at"][:10], f"{of['commit']}", of["machine"]["cpu"]]
        rows.append([str(cell), verdict, *figures, *facts])
    return table(["cell", "", *columns, *about], rows)


def _latencies(measured: Mapping[str, Measured]) -> str:
    rows = []
    for cell in cells():
        if str(cell) not in measured:
            continue
        for name, figures in measured[str(cell)]["policies"].items():
            times = [_ms(figures[key]) for key in _PERCENTILES]
            rows.append([str(cell), name, *times, f"{figures['requests']}", f"{figures['errors']}"])
    if not rows:
        return f"{NOT_MEASURED}\n"
    return table(["cell", "policy", "P50", "P90", "P95", "P99", "mean", "requests", "errors"], rows)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


_BLOCKS = {"state": _state, "overall": _overall, "cells": _cells, "latencies": _latencies}
