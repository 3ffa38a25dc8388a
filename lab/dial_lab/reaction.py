"""What a recording tells of one block: how soon, how steadily, how rightly.

Times are seconds from the start of the quiet phase.  Everything here is arithmetic on
weights read back from the balancer, not on what was planned.
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from dial.controller.recording import Recording, Tick
from dial.types import Action, ApplyReport, NoData, Plan

Weights = Mapping[str, int]
Series = Sequence[tuple[float, Weights]]
"""Weights in effect from a moment on, ascending."""

_EVEN = 0.05
"""Weights count as even again when each share is this near to the even one (COMMANDS.md)."""

_SWING = 0.2
"""A turn counts when the share moved back by this fraction of the even share."""

_REPORT = TypeAdapter(ApplyReport)


@dataclass(frozen=True, slots=True)
class Phases:
    """Where the phases of a block begin, seconds; the quiet one begins at 0."""

    quiet_s: float
    contended_s: float
    recovered_s: float

    @property
    def end_of_contention_s(self) -> float:
        """When the neighbour goes."""
        return self.quiet_s + self.contended_s

    @property
    def end_s(self) -> float:
        """When the block ends."""
        return self.end_of_contention_s + self.recovered_s

    def bounds(self) -> dict[str, tuple[float, float]]:
        """First and last moment of each phase by name."""
        return {
            "quiet": (0.0, self.quiet_s),
            "contended": (self.quiet_s, self.end_of_contention_s),
            "recovered": (self.end_of_contention_s, self.end_s),
        }


@dataclass(frozen=True, slots=True)
class Reaction:
    """One controlled block; ``None`` where the event did not come about."""

    reaction_s: float | None
    recovery_s: float | None
    direction_changes: int
    weight_changes_quiet: int
    verdicts: dict[str, int]
    rho_bg_estimated: float | None
    weights: tuple[tuple[float, dict[str, int]], ...]
    load_moved: bool
    """Whether any of the weights did more than to say who is taken last of idle servers."""


def weights_in_effect(
    ticks: Sequence[Tick], reports: Sequence[ApplyReport], start_s: float
) -> list[tuple[float, dict[str, int]]]:
    """Weights as read back, at every tick and after every write, ascending in time.

    Parameters
    ----------
    ticks, reports
        Of one recording.
    start_s
        Wall clock at the start of the quiet phase.
    """
    seen: list[tuple[float, dict[str, int]]] = [
        (
            tick.observation.now_s - start_s,
            {backend.name: backend.server.weight for backend in tick.observation.backends},
        )
        for tick in ticks
    ]
    seen += [(report.at_s - start_s, dict(report.in_effect)) for report in reports]
    series: list[tuple[float, dict[str, int]]] = []
    for at_s, weights in sorted(seen, key=lambda entry: entry[0]):
        # A report tells of the backends that were asked for; the others stay as they were.
        known = {**(series[-1][1] if series else {}), **weights}
        series.append((at_s, known))
    return series


def changes(series: Series) -> list[tuple[float, Weights]]:
    """The entries that differ from the one before, the first one included."""
    return [
        entry
        for i, entry in enumerate(series)
        if i == 0 or dict(entry[1]) != dict(series[i - 1][1])
    ]


def share(weights: Weights, name: str) -> float:
    """Share of ``name`` in round robin."""
    total = sum(weights.values())
    return weights[name] / total if total else 0.0


def is_even(weights: Weights) -> bool:
    """Whether every share is within 5 % of the even one."""
    return all(abs(share(weights, name) * len(weights) - 1.0) <= _EVEN + 1e-9 for name in weights)


def as_load_moved(series: Series, ticks: Sequence[Tick], start_s: float) -> Series:
    """The same with even weights where they only say who is taken last of idle servers.

    That is no reaction: it moves no load, and nobody is blamed.  The plan before a moment tells.
    """
    plans = [tick.plan for tick in ticks]
    begins_s = [plan.now_s - start_s for plan in plans]

    def moved(at_s: float, weights: Weights) -> Weights:
        number = bisect_left(begins_s, at_s) - 1
        if number < 0 or _moves_load(plans[number]):
            return weights
        return dict.fromkeys(weights, max(weights.values()))

    return [(at_s, moved(at_s, weights)) for at_s, weights in series]


def _moves_load(plan: Plan) -> bool:
    blamed = any(not backend.verdict.cause.blames_nobody for backend in plan.backends)
    return plan.action is Action.RELEASE or (blamed and plan.action is not Action.PREFER)


def recovery_s(series: Series, after_s: float, until_s: float) -> float | None:
    """From ``after_s`` to the moment since which the weights are even; ``None`` if not.

    Zero if they were even when the neighbour went and stayed so.
    """
    if not series:
        return None
    uneven = [
        i for i, (at_s, weights) in enumerate(series) if at_s < until_s and not is_even(weights)
    ]
    if not uneven:
        return 0.0
    following = [at_s for at_s, _ in series[uneven[-1] + 1 :] if at_s < until_s]
    return max(0.0, following[0] - after_s) if following else None


def direction_changes(shares: Sequence[float], even: float) -> int:
    """How often a share turns round by more than a fifth of the even share.

    Follows the share to each extreme; a turn is counted when it has come back from there by
    more than the threshold, so that small steps in one direction add up and small
    trembling does not count.

    Examples
    --------
    >>> direction_changes([0.33, 0.20, 0.05, 0.06, 0.05], even=1 / 3)
    0
    >>> direction_changes([0.33, 0.05, 0.30, 0.05], even=1 / 3)
    2
    """
    threshold = _SWING * even
    turns, direction = 0, 0
    lowest = highest = shares[0] if shares else 0.0
    for value in shares:
        lowest, highest = min(lowest, value), max(highest, value)
        if direction >= 0 and value < highest - threshold:
            turns += direction > 0
            direction, lowest = -1, value
            highest = value
        elif direction <= 0 and value > lowest + threshold:
            turns += direction < 0
            direction, highest = 1, value
            lowest = value
    return turns


def read_reports(path: Path) -> list[ApplyReport]:
    """The writes to the balancer in a recording, in order."""
    reports = []
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # cut short by a crash
            document = json.loads(line)
            if document.get("kind") == "applied":
                reports.append(_REPORT.validate_python(document["report"]))
    return reports


def read(
    path: Path, victim: str, start_s: float, phases: Phases, *, quiet_s: float | None = None
) -> Reaction:
    """Judge one block by its recording.

    Parameters
    ----------
    path
        Of the recording.
    victim
        Name of the backend with the neighbour.
    start_s
        Wall clock at the start of the quiet phase.
    phases
        Of the block.
    quiet_s
        For how long nobody contends, from the start on; the quiet phase if ``None``.

    Raises
    ------
    RecordingError
        If it is no recording.
    """
    ticks = list(Recording(path).ticks())
    reports = read_reports(path)
    return judge(ticks, reports, victim, start_s, phases, quiet_s=quiet_s)


def judge(
    ticks: Sequence[Tick],
    reports: Sequence[ApplyReport],
    victim: str,
    start_s: float,
    phases: Phases,
    *,
    quiet_s: float | None = None,
) -> Reaction:
    """The arithmetic of :func:`read`."""
    series = weights_in_effect(ticks, reports, start_s)
    # What the controller does when it is stopped belongs to no phase.
    series = [entry for entry in series if entry[0] < phases.end_s]
    begins_s, ends_s = phases.quiet_s, phases.end_of_contention_s
    quiet_s = phases.quiet_s if quiet_s is None else quiet_s
    moved = as_load_moved(series, ticks, start_s)
    uneven_s = [at_s for at_s, weights in changes(moved) if not is_even(weights)]
    reacted = [at_s for at_s in uneven_s if begins_s <= at_s < ends_s]
    planned = [
        backend
        for tick in ticks
        if begins_s <= tick.plan.now_s - start_s < ends_s
        for backend in tick.plan.backends
        if backend.name == victim
    ]
    verdicts = [backend.verdict for backend in planned]
    estimates = [v.rho_bg for v in verdicts if not isinstance(v.rho_bg, NoData)]
    # A probe changes the weight for a moment, not the share that is wanted: it is no turn.
    wanted = [backend.share for backend in planned]
    return Reaction(
        reaction_s=reacted[0] - begins_s if reacted else None,
        recovery_s=recovery_s(moved, ends_s, phases.end_s),
        direction_changes=direction_changes(wanted, 1.0 / len(series[0][1])) if series else 0,
        weight_changes_quiet=sum(0.0 <= at_s < quiet_s for at_s, _ in changes(series)[1:]),
        verdicts=dict(Counter(str(v.cause) for v in verdicts)),
        rho_bg_estimated=statistics.median(estimates) if estimates else None,
        weights=tuple((round(at_s, 3), dict(weights)) for at_s, weights in changes(series)),
        load_moved=bool(uneven_s),
    )
