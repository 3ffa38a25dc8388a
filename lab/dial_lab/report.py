"""From latencies to the JSON report: percentiles per phase, ratios with their uncertainty."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dial_lab.loadgen import Results
from dial_lab.one_cache import Apart
from dial_lab.reaction import Phases, Reaction

BLOCK_S = 5.0
"""Length of the pieces that are resampled: longer than the busy periods they must keep whole."""

RESAMPLES = 1000

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
"""Those that are reported, whatever the x of T_x is."""

LATE_MS = 5.0
"""Lateness of the generator at P99 above which a run's figures are marked."""


@dataclass(frozen=True, slots=True)
class BlockResult:
    """One policy in one round."""

    policy: str
    phases: Phases
    results: Results
    """``intended_s`` counts from the start of the quiet phase; what is before is warm-up."""
    reaction: Reaction | None
    """``None`` without a controller."""
    apart: Apart | None = None
    """For how long a neighbour in the cache had none in common with its victim; ``None`` where the
    neighbour is none there."""
    victim_cpu_s: float | None = None
    """CPU time that the victim's VM used from the start of the quiet phase to the end, s."""
    stolen: float = 0.0
    """Part of that time that somebody outside the lab had one of its cores."""
    slowdown: float | None = None
    """How many times as long a piece of work took on the machines' cores as in the quickest moment
    of the run; where requests are work, as machines were given time for.  ``None`` where nobody
    measured it."""


def phase_figures(blocks: Sequence[BlockResult], phase: str) -> dict[str, float | int | None]:
    """Requests, errors and percentiles of one phase, over all rounds."""
    asked, failed = 0, 0
    latency_ms = []
    for block in blocks:
        begins_s, ends_s = block.phases.bounds()[phase]
        intended_s = block.results.intended_s
        inside = (intended_s >= begins_s) & (intended_s < ends_s)
        asked += int(inside.sum())
        failed += int((inside & ~block.results.ok).sum())
        latency_ms.append(block.results.latency_ms[inside & block.results.ok])
    joined = together(latency_ms)
    return {
        "requests": asked,
        "errors": failed,
        **{f"p{x:g}_ms": percentile_ms(joined, x) for x in PERCENTILES},
    }


def percentile_ms(latency_ms: NDArray[np.float64], x: float) -> float | None:
    """The x-th percentile; ``None`` of nothing."""
    return round(float(np.percentile(latency_ms, x)), 3) if len(latency_ms) else None


def together(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """All parts as one column."""
    return np.concatenate(parts) if parts else np.empty(0)


def pieces(blocks: Sequence[BlockResult], phase: str) -> list[NDArray[np.float64]]:
    """Latencies of ``phase`` in pieces of :data:`BLOCK_S`, by round and arrival time.

    All policies are offered the same arrivals, so piece k of one policy holds the very
    requests of piece k of another.
    """
    found = []
    for block in blocks:
        begins_s, ends_s = block.phases.bounds()[phase]
        count = max(1, round((ends_s - begins_s) / BLOCK_S))
        edges = np.linspace(begins_s, ends_s, count + 1)
        for first_s, last_s in itertools.pairwise(edges):
            intended_s = block.results.intended_s
            inside = (intended_s >= first_s) & (intended_s < last_s) & block.results.ok
            found.append(block.results.latency_ms[inside])
    return found


@dataclass(frozen=True, slots=True)
class Drawn:
    """Percentiles and mean of one policy's latencies.

    Attributes
    ----------
    measured
        By name (p90, mean), ms.
    resampled
        The same of as many resamples as could be drawn, float64[RESAMPLES] each; NaN where a
        resample held nothing.
    """

    measured: Mapping[str, float]
    resampled: Mapping[str, NDArray[np.float64]]


def draw(parts: Sequence[NDArray[np.float64]], x: float, seed: int) -> Drawn | None:
    """Measure and resample; ``None`` of nothing.

    Latencies of neighbouring requests hang together (busy periods), so whole pieces are drawn,
    and with the same seed the same pieces of every policy, because all saw the same arrivals.

    Parameters
    ----------
    parts
        Pieces as of :func:`pieces`.
    x
        A percentile beside those of :data:`PERCENTILES`.
    seed
        Of the resampling.
    """
    if not sum(map(len, parts)):
        return None
    levels = sorted({*PERCENTILES, x})
    random = np.random.default_rng(seed)
    table = np.full((RESAMPLES, len(levels) + 1), np.nan)
    for row in table:
        picked = random.integers(len(parts), size=len(parts))
        latency_ms = np.concatenate([parts[i] for i in picked])
        if len(latency_ms):
            row[:] = [*np.percentile(latency_ms, levels), np.mean(latency_ms)]
    names = [*(f"p{level:g}" for level in levels), "mean"]
    joined = together(parts)
    measured = [*np.percentile(joined, levels), np.mean(joined)]
    return Drawn(
        dict(zip(names, map(float, measured), strict=True)), dict(zip(names, table.T, strict=True))
    )


def ratio(ours: Drawn | None, theirs: Drawn | None, x: float) -> dict[str, Any]:
    """Ratios of two policies' percentiles and means, with bootstrap 95 % intervals.

    Returns
    -------
    dict
        ``p90`` and ``ci95``, its interval, if ``x`` is 90; further ``p50``, ``p50_ci95``, ...,
        ``mean``, ``mean_ci95``.
    """
    if ours is None or theirs is None:
        return {f"p{x:g}": None, "ci95": None}
    found: dict[str, Any] = {}
    for name in sorted(ours.measured, key=lambda name: name != f"p{x:g}"):
        drawn = ours.resampled[name] / theirs.resampled[name]
        interval = np.nanpercentile(drawn, [2.5, 97.5])
        found[name] = round(ours.measured[name] / theirs.measured[name], 4)
        key = "ci95" if name == f"p{x:g}" else f"{name}_ci95"
        found[key] = [round(float(end), 4) for end in interval]
    return found


def ratios(
    by_policy: Mapping[str, Sequence[BlockResult]], x: float, seed: int
) -> dict[str, dict[str, Any]]:
    """Each policy against each other one, in the contended phase."""
    drawn = {name: draw(pieces(blocks, "contended"), x, seed) for name, blocks in by_policy.items()}
    return {
        f"{one}/{other}": ratio(drawn[one], drawn[other], x)
        for one, other in itertools.permutations(by_policy, 2)
    }


def policy_figures(blocks: Sequence[BlockResult], rho_bg_true: float | None) -> dict[str, Any]:
    """The report of one policy; what only a controller can have is null without one."""
    reactions = [block.reaction for block in blocks if block.reaction is not None]
    figures: dict[str, Any] = {
        phase: phase_figures(blocks, phase) for phase in blocks[0].phases.bounds()
    }
    verdicts: Counter[str] = Counter()
    for one in reactions:
        verdicts.update(one.verdicts)
    estimated = [r.rho_bg_estimated for r in reactions if r.rho_bg_estimated is not None]
    return figures | {
        "reaction_s": _over(statistics.median, [r.reaction_s for r in reactions]),
        "recovery_s": _over(statistics.median, [r.recovery_s for r in reactions]),
        "direction_changes": _over(max, [r.direction_changes for r in reactions]),
        "weight_changes_quiet": _over(sum, [r.weight_changes_quiet for r in reactions]),
        "verdicts": dict(verdicts) if reactions else None,
        "rho_bg": {
            "true": rho_bg_true,
            "estimated": round(statistics.median(estimated), 4) if estimated else None,
        },
        "weights": [list(entry) for entry in reactions[0].weights] if reactions else None,
        "rounds": [
            {
                "reaction_s": r.reaction_s,
                "recovery_s": r.recovery_s,
                "direction_changes": r.direction_changes,
                "weight_changes_quiet": r.weight_changes_quiet,
            }
            for r in reactions
        ],
        "generator_late_p99_ms": max(lateness_ms(block.results) for block in blocks),
        "cores_apart": [
            None
            if block.apart is None
            else [round(block.apart.part, 4), round(block.apart.at_first, 4)]
            for block in blocks
        ],
        "stolen": [round(block.stolen, 4) for block in blocks],
        "slowdown": [
            None if block.slowdown is None else round(block.slowdown, 3) for block in blocks
        ],
    }


def lateness_ms(results: Results) -> float:
    """P99 of how late the generator was."""
    sent = results.late_ms[~np.isnan(results.late_ms)]
    return round(float(np.percentile(sent, 99)), 3) if len(sent) else 0.0


def _over(
    summary: Callable[[list[float]], float], values: Sequence[float | None]
) -> float | int | None:
    """Summary over rounds; ``None`` as soon as one round lacks the value."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return round(summary(known), 3)
