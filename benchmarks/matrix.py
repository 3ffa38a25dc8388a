"""Every policy against every other one: resources, loads and severities, cell by cell.

A cell is a resource, a load (of what is left during contention) and a severity (what is left of
the victim).  Its policies take turns in short blocks on the same emulated machines, with the same
arrivals and the same costs of requests.  Controllers learn once, before the first block.  Ratios
have bootstrap 95 % intervals over pieces of five seconds, the same ones of both policies.

``python -m benchmarks.matrix --json`` measures what ``benchmarks/results/matrix.json`` lacks until
``--minutes`` are over, and goes on where it ended; ``--cell cpu/0.5/0.5`` measures that one anew
and prints its ratios.  Root, and nothing else on the computer, please.

``cells``
    By cell: P50 to P99 and the mean of each policy during contention, ratios of P90, requests and
    errors, how often the generator was late, and the commit.
``left``
    Cells that are not measured yet.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.support.harness import machine, report, versions
from dial.errors import LabError
from dial_lab import report as figures
from dial_lab.live import View
from dial_lab.policies import policy
from dial_lab.report import BlockResult
from dial_lab.run import MACHINES, Outcome, Request, execute
from dial_lab.scenarios import scenario

RESULTS = Path(__file__).parent / "results" / "matrix.json"

RESOURCES = ("cpu", "net", "disk", "llc", "two-victims")
CALM = ("none", "load", "mix")
LOADS = (0.25, 0.5, 0.75)
SEVERITY = 0.5
STRONG = 0.2
"""At load 0.5 too."""

SHIPPED = ("roundrobin", "leastconn", "random2")
OURS = ("dial", "dial-roundrobin", "dial-paper")
RIVALS = ("oracle", "peak-ewma", "prequal")

REPEATS = 5
CONTENDED_S = 20.0
"""Blocks are short, for hours fill up quickly; reacting is a tenth of them."""
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured together."""

    resource: str
    load: float
    severity: float

    def __str__(self) -> str:
        return f"{self.resource}/{self.load:g}/{self.severity:g}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Read ``resource/load/severity``.

        Raises
        ------
        ValueError
            If it is none of the matrix; lists those there are.
        """
        for cell in cells():
            if str(cell) == text:
                return cell
        raise ValueError(f"--cell {text}: no such cell; allowed: {', '.join(map(str, cells()))}")

    @property
    def policies(self) -> tuple[str, ...]:
        """The balancers' own, ours, and at the middle load the rivals."""
        return SHIPPED + OURS + (RIVALS if self.load == 0.5 else RIVALS[:1])


def cells() -> Iterator[Cell]:
    """All of the matrix, what is asked most first."""
    for load in (0.5, 0.25, 0.75):
        for resource in RESOURCES + CALM:
            yield Cell(resource, load, SEVERITY)
        if load == 0.5:
            yield from (Cell(resource, load, STRONG) for resource in RESOURCES)


def measure(cell: Cell, repeats: int, seed: int, view: View) -> dict[str, Any]:
    """Measure one cell.

    Raises
    ------
    LabError
        If the lab cannot run here or now.
    """
    request = Request(
        scenario=scenario(cell.resource),
        policies=tuple(map(policy, cell.policies)),
        load=cell.load,
        rate_per_s=None,
        severity=cell.severity,
        contended_s=CONTENDED_S,
        rounds=repeats,
        percentile=90.0,
        seed=seed,
        learn_once=True,
    )
    with tempfile.TemporaryDirectory(prefix="dial-matrix-") as directory:
        return as_cell(cell, execute(request, Path(directory), view), repeats)


def as_cell(cell: Cell, outcome: Outcome, repeats: int) -> dict[str, Any]:
    """What is kept of a run."""
    document = outcome.report
    return {
        "resource": cell.resource,
        "load": cell.load,
        "severity": cell.severity,
        "repeats": repeats,
        "offered_load": document["load"],
        "rate_per_s": document["rate_per_s"],
        "calibration": document["calibration"],
        "policies": {name: contended(blocks) for name, blocks in outcome.blocks.items()},
        "ratios": document["ratios"],
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
    return found


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON, last on stdout")
    parser.add_argument("--cell", type=Cell.parse, help="one cell, such as cpu/0.5/0.5")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no cell after these")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    kept = load(arguments.results)
    wanted = [arguments.cell] if arguments.cell else [c for c in cells() if str(c) not in kept]
    until_s = time.monotonic() + 60.0 * arguments.minutes
    for number, cell in enumerate(wanted, 1):
        if time.monotonic() > until_s:
            break
        console.print(f"[{number}/{len(wanted)}] {cell}: {', '.join(cell.policies)}")
        try:
            with View(console, 90.0, MACHINES[0]) as view:
                kept[str(cell)] = measure(cell, arguments.repeats, arguments.seed, view)
        except LabError as error:
            # A neighbour of this computer's own in the cache, say: the next cell may do.
            console.print(f"{cell}: not measured: {error}", markup=False)
            continue
        save(arguments.results, kept)
        if arguments.cell:
            console.print_json(data=kept[str(cell)]["ratios"])
    left = [str(cell) for cell in cells() if str(cell) not in kept]
    document = {"cells": list(kept.values()), "left": left, "machine": machine()}
    lines = [f"{len(kept)} cells measured, {len(left)} left"]
    report(lines, document | {"versions": versions("dial-lb")}, as_json=arguments.json)
    return 0


def load(path: Path) -> dict[str, Any]:
    """Cells that are there, by name."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {str(Cell(c["resource"], c["load"], c["severity"])): c for c in kept}


def save(path: Path, kept: dict[str, Any]) -> None:
    """Write all cells, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = {str(cell): number for number, cell in enumerate(cells())}
    ranked = sorted(kept.items(), key=lambda item: order.get(item[0], len(order)))
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"cells": [c for _, c in ranked]}, indent=1) + "\n", "utf-8")
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
