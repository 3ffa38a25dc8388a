"""Every policy against every other one: resources, loads and severities, cell by cell.

A cell is a resource, a load (of what is left during contention) and a severity (what is left of
the victim).  Its policies take turns in short blocks on the same emulated machines, with the same
arrivals and the same costs of requests.  A block is 3 s of warm-up and 15 s beside the neighbour.
Controllers learn once a sitting, before its first block, and begin each with what they learnt
then.  Ratios have bootstrap 95 % intervals over pieces of five seconds, the same ones of both
policies.

``python -m benchmarks.matrix --json`` measures what ``benchmarks/results/matrix.json`` lacks until
``--minutes`` are over, and goes on where it ended; ``--cell cpu/0.5/0.5`` measures that one anew
and prints its ratios and what of them is asked, with exit code 1 where it could not be measured.
Root, and nothing else on the computer, please.
``--page docs/matrix.md`` measures nothing, and writes the page and its picture.

A round that is done is kept beside the results: whoever ends a cell before its ``--repeats`` goes
on with it by the same command, and nothing of it counts before the last (``--afresh`` begins anew).

``cells``
    By cell: P50 to P99 and the mean of each policy during contention, our ratios of all of them to
    every other policy, requests and errors, whether the generator kept up, and the commit.
``left``
    Cells that are not measured yet.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.support import matrix_page
from benchmarks.support.harness import machine, report, versions
from benchmarks.support.matrix_cells import OURS, Cell, cells
from benchmarks.support.matrix_criteria import REPEATS, of_all, of_cell
from dial.errors import LabError
from dial_lab import report as figures
from dial_lab.live import View
from dial_lab.policies import anywhere
from dial_lab.processes import clean_up_when_told_to_end
from dial_lab.report import BlockResult
from dial_lab.request import MACHINES, Request
from dial_lab.rounds import Kept, plan_of
from dial_lab.run import Outcome, execute
from dial_lab.scenarios import scenario

RESULTS = Path(__file__).parent / "results" / "matrix.json"

CONTENDED_S = 15.0
PAPER_INTERVAL_S = 2.0
"""The paper's own interval is 10 s, and a signal takes it two of them: it would never act in a
block.  At 2 s its rules act as soon as ours can, which is kinder to them."""
PERCENTILE = 90.0
"""The x of T_x."""


def asked(cell: Cell, repeats: int, seed: int) -> Request:
    """The run that measures a cell.

    Raises
    ------
    LabError
        If such a run cannot be asked for.
    """
    return Request(
        scenario=scenario(cell.resource),
        policies=tuple(
            anywhere(name, PAPER_INTERVAL_S if name == "dial-paper" else None)
            for name in cell.policies
        ),
        load=cell.load,
        rate_per_s=None,
        severity=cell.severity,
        contended_s=CONTENDED_S,
        rounds=repeats,
        percentile=PERCENTILE,
        seed=seed,
        app=cell.app,
        learn_once=True,
    )


def measure(cell: Cell, request: Request, kept: Kept, view: View) -> dict[str, Any]:
    """Measure one cell, or go on with it.

    Raises
    ------
    LabError
        If the lab cannot run here or now.
    """
    with tempfile.TemporaryDirectory(prefix="dial-matrix-") as directory:
        return as_cell(cell, execute(request, Path(directory), view, kept))


def as_cell(cell: Cell, outcome: Outcome) -> dict[str, Any]:
    """What is kept of a run."""
    document = outcome.report
    return {
        "resource": cell.resource,
        "load": cell.load,
        "severity": cell.severity,
        "app": cell.app,
        "repeats": document["rounds"],
        "contended_s": CONTENDED_S,
        "took_s": document["took_s"],
        "offered_load": document["load"],
        "rate_per_s": document["rate_per_s"],
        "calibration": document["calibration"],
        "policies": {name: contended(blocks) for name, blocks in outcome.blocks.items()},
        "settings": {
            name: figures["setting"]
            for name, figures in document["policies"].items()
            if "setting" in figures
        },
        "ratios": {
            pair: ratio
            for pair, ratio in document["ratios"].items()
            if pair.partition("/")[0] in OURS
        },
        "neighbours": document["neighbours"],
        "generator_kept_up": document["generator_kept_up"],
        "machine": document["machine"],
        "commit": document["commit"],
        "at": document["at"],
    }


def contended(blocks: Sequence[BlockResult]) -> dict[str, float | int | None]:
    """Percentiles and mean of the contended phase, over all repeats."""
    found: dict[str, float | int | None] = dict(figures.phase_figures(blocks, "contended"))
    latency_ms = figures.together(figures.pieces(blocks, "contended"))
    found["mean_ms"] = round(float(np.mean(latency_ms)), 3) if len(latency_ms) else None
    apart = [block.apart.worst for block in blocks if block.apart is not None]
    if apart:
        # Of the neighbour's time, or of its first seconds, in the worst block.
        found["cores_apart"] = round(max(apart), 4)
    found["stolen"] = round(max(block.stolen for block in blocks), 4)
    slowdowns = [block.slowdown for block in blocks if block.slowdown is not None]
    if slowdowns:
        found["slowdown"] = round(max(slowdowns), 3)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write; ``argv`` is the command line's where it is not given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON, last on stdout")
    parser.add_argument("--cell", help="one cell, such as cpu/0.5/0.5")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no cell after these")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--afresh", action="store_true", help="without the rounds that are kept")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, help="docs/matrix.md: write it, measure nothing")
    arguments = parser.parse_args(argv)
    console = Console(stderr=True)
    kept = load(arguments.results)
    try:
        one = None if arguments.cell is None else Cell.parse(arguments.cell)
    except LabError as error:
        parser.exit(2, f"matrix: {error}\n")
    wanted = [one] if one else [c for c in cells() if str(c) not in kept]
    if arguments.page:
        wanted = []
        matrix_page.write_page(arguments.page, kept)
    until_s = time.monotonic() + 60.0 * arguments.minutes
    failed = False
    for number, cell in enumerate(wanted, 1):
        if time.monotonic() > until_s:
            break
        console.print(f"[{number}/{len(wanted)}] {cell}: {', '.join(cell.policies)}")
        try:
            request = asked(cell, arguments.repeats, arguments.seed)
            where = rounds_of(cell, arguments.results)
            if arguments.afresh:
                shutil.rmtree(where, ignore_errors=True)
            rounds = Kept(where, plan_of(request))
            with View(console, PERCENTILE, MACHINES[0]) as view:
                kept[str(cell)] = measure(cell, request, rounds, view)
        except LabError as error:
            # A neighbour of this computer's own in the cache, say: the next cell may do.
            console.print(f"{cell}: not measured: {error}", markup=False, soft_wrap=True)
            failed = True
            continue
        save(arguments.results, kept)
        shutil.rmtree(where)
        if one:
            console.print_json(data=kept[str(cell)]["ratios"])
        console.print("\n".join(map(str, of_cell(kept[str(cell)]))), markup=False)
    left = [str(cell) for cell in cells() if str(cell) not in kept]
    document = {"cells": list(kept.values()), "left": left, "machine": machine()}
    lines = [str(finding) for finding in of_all(list(kept.values()), list(cells()))]
    report(lines, document | {"versions": versions("dial-lb")}, as_json=arguments.json)
    # Cells that are left are for the next time; one that was asked for by name is missing.
    return 1 if one and failed else 0


def rounds_of(cell: Cell, results: Path) -> Path:
    """Where the rounds of a cell are kept that has not all of them yet."""
    return results.with_suffix(".rounds") / str(cell).replace("/", "-")


def load(path: Path) -> dict[str, Any]:
    """Cells that are there, by name."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {str(Cell(c["resource"], c["load"], c["severity"], c["app"])): c for c in kept}


def save(path: Path, kept: dict[str, Any]) -> None:
    """Write all cells, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = {str(cell): number for number, cell in enumerate(cells())}
    ranked = sorted(kept.items(), key=lambda item: order.get(item[0], len(order)))
    document = {"percentile": PERCENTILE, "cells": [cell for _, cell in ranked]}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    partial.replace(path)


if __name__ == "__main__":
    clean_up_when_told_to_end()
    sys.exit(main())
