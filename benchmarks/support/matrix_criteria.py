"""What is asked of the matrix, and what was found: in each cell, and over all of them.

=============  ===============================================================  =============
criterion      figure                                                           asked
=============  ===============================================================  =============
shipped        ratio of P90 to that of the best policy that a balancer ships,   at most 1.02
               upper end of the 95 % interval
paper          ratio of P90 to that of the paper's strategies                   below 1
oracle         ratio of P90 to that of the oracle                               at most 1.08
no harm        without contention: ratio of P90 to that of least connections,   at most 1.02
               lower end of the 95 % interval
means          geometric mean of the ratios to the best of the shipped ones,    at most 0.87,
               and to the best of the re-implemented rivals                     at most 1.03
=============  ===============================================================  =============
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from benchmarks.support.matrix_cells import CALM, OURS, RIVALS, SHIPPED, Cell

Measured = Mapping[str, Any]
"""A cell as it is kept."""

REPEATS = 5
MOST_TO_SHIPPED = 1.02
MOST_TO_ORACLE = 1.08
MOST_HARM = 1.02
MEAN_TO_SHIPPED = 0.87
MEAN_TO_RIVALS = 1.03

_STEADY = 1.15
"""Most to least that a machine serves, from round to round.  At half load the P90 of an M/M/1 queue
is 1.35 times as long where it serves 0.87 of what it did."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One criterion.

    Attributes
    ----------
    what
        Against whom.
    figure
        What was found, in words.
    holds
        Whether it is what is asked.
    """

    what: str
    figure: str
    holds: bool

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'SHORT'}  {self.what}: {self.figure}"


def of_cell(cell: Measured) -> list[Finding]:
    """Every criterion of one cell; one whose policy was not measured is left out."""
    found = []
    if cell["repeats"] < REPEATS:
        found.append(Finding("repeats", str(cell["repeats"]), holds=False))
    if cell["resource"] in CALM:
        if "leastconn" in cell["policies"]:
            low = _interval(cell, "leastconn")[0]
            found.append(Finding("no harm", _ratio(cell, "leastconn"), holds=low <= MOST_HARM))
        return found
    shipped = best(cell, SHIPPED)
    if shipped is not None:
        high = _interval(cell, shipped)[1]
        found.append(Finding("shipped", _ratio(cell, shipped), holds=high <= MOST_TO_SHIPPED))
    if "dial-paper" in cell["policies"]:
        beats = p90_ratio(cell, "dial-paper") < 1.0
        found.append(Finding("paper", _ratio(cell, "dial-paper"), holds=beats))
    if "oracle" in cell["policies"]:
        near = p90_ratio(cell, "oracle") <= MOST_TO_ORACLE
        found.append(Finding("oracle", _ratio(cell, "oracle"), holds=near))
    return found


def of_all(measured: Sequence[Measured], wanted: Collection[Cell]) -> list[Finding]:
    """Every criterion over the cells that are measured, of those that are ``wanted``."""
    contended = [cell for cell in measured if cell["resource"] not in CALM]
    all_there = len(measured) >= len(wanted)
    found = [Finding("cells measured", f"{len(measured)} of {len(wanted)}", holds=all_there)]
    for what, names, most in (
        ("geometric mean, shipped", SHIPPED, MEAN_TO_SHIPPED),
        ("geometric mean, rivals", RIVALS, MEAN_TO_RIVALS),
    ):
        to_best = [
            p90_ratio(cell, name) for cell in contended if (name := best(cell, names)) is not None
        ]
        if to_best:
            mean = geometric_mean(to_best)
            figure = f"{mean:.3f} in {len(to_best)} cells, asked {most:g}"
            found.append(Finding(what, figure, holds=mean <= most))
    for what in ("shipped", "paper", "oracle", "no harm"):
        each = [one.holds for cell in measured for one in of_cell(cell) if one.what == what]
        if each:
            figure = f"{sum(each)} of {len(each)} cells"
            found.append(Finding(f"in each cell, {what}", figure, holds=all(each)))
    return found


def unsteady(cell: Measured) -> str:
    """What this computer's machines served in each round, in words, where it was not the same.

    Empty where it was, and of cells that were calibrated once only.
    """
    rounds = cell["calibration"].get("rounds", ())
    for what in ("peak_rps", "contended_rps"):
        served = [each[what] for each in rounds]
        if served and max(served) > _STEADY * min(served):
            return f"{what.removesuffix('_rps')} {', '.join(f'{rps:.0f}' for rps in served)} req/s"
    return ""


def best(cell: Measured, names: Collection[str]) -> str | None:
    """Which of the policies has the lowest P90 in this cell; ``None`` if none is there."""
    there = {n: p["p90_ms"] for n, p in cell["policies"].items() if n in names and p["p90_ms"]}
    return min(there, key=lambda name: there[name]) if there else None


def p90_ratio(cell: Measured, other: str) -> float:
    """Ours to the other's."""
    ratio: float = cell["ratios"][f"{OURS[0]}/{other}"]["p90"]
    return ratio


def _interval(cell: Measured, other: str) -> tuple[float, float]:
    low, high = cell["ratios"][f"{OURS[0]}/{other}"]["ci95"]
    return low, high


def _ratio(cell: Measured, other: str) -> str:
    low, high = _interval(cell, other)
    return f"{p90_ratio(cell, other):.2f} ({low:.2f} to {high:.2f}) to {other}"
