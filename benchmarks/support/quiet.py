"""The ticks of recorded sessions in which no neighbour was anywhere near.

``quiet``
    The tenant's own load is that of the learning phase.
``load``
    The same ticks, and those in which it was changed: another arrival rate, or heavier requests.

Ticks between two such times count too; those beside a neighbour's stage do not, because a
neighbour was partly there, or what it left in the queues.  Nor does what follows once somebody
outside the lab was in the cache (:func:`dial_training.truth.disturbed_from`): that is not known to
be quiet, and queues of a thousand requests were seen to take minutes to run empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.bootstrap import autocorrelation, autocorrelation_time
from dial.controller.state import State
from dial.controller.step import step
from dial.queueing import RHO_MAX
from dial.types import Cause, NoData, Observation
from dial_training.dataset import LEARN, STAGE, Dataset, LabelledTick, Session, merge
from dial_training.replay import blind
from dial_training.truth import disturbed_from

Kind = Literal["quiet", "load"]
KINDS: tuple[Kind, ...] = ("quiet", "load")

Level = tuple[float, float]
"""Arrival rate and mean cost of a request, each over that of the learning phase."""

LEAST_S = 60.0
"""Less of a session is left out: of half a minute, what is drawn anew is always the same."""

_LAGS = 10
"""In ticks; how far autocorrelation is looked for."""

_LABELS: dict[Kind, tuple[Cause, ...]] = {
    "quiet": (Cause.NONE,),
    "load": (Cause.NONE, Cause.LOAD),
}
_LEARNING: Level = (1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Stratum:
    """What one session has of one kind: blocks are joined within it, never across.

    Machines, and how fast they were that day, differ from session to session.

    Attributes
    ----------
    kind, session, set, resource
        What it is, and where it is from.
    observations
        (n,) in recorded order, of all backends together: what disturbs them, disturbs them
        together.
    levels
        (n,) ``None`` between two levels.
    goes_on
        (n,) whether the next one was recorded right after it.
    """

    kind: Kind
    session: str
    set: str
    resource: str
    observations: tuple[Observation, ...]
    levels: tuple[Level | None, ...]
    goes_on: tuple[bool, ...]

    @property
    def seconds(self) -> float:
        """Of distinct recorded time."""
        return sum(seen.interval_s for seen in self.observations)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is drawn from.

    Attributes
    ----------
    strata
        Of both kinds.
    left_out
        Sessions that are too short, by kind.
    tau_ticks
        Autocorrelation time of the residual at even load.
    percentile
        x of T_x.
    """

    strata: tuple[Stratum, ...]
    left_out: dict[Kind, int]
    tau_ticks: float
    percentile: float


def read(paths: Sequence[Path]) -> Recorded:
    """The strata of some data sets that are long enough.

    Raises
    ------
    SystemExit
        If there is none of one of the kinds.
    """
    data = merge(Dataset.load(path) for path in paths)
    kept: list[Stratum] = []
    left_out: dict[Kind, int] = {}
    for kind in KINDS:
        found = list(strata(data, kind))
        long = [stratum for stratum in found if stratum.seconds >= LEAST_S]
        if not long:
            where = ", ".join(map(str, paths))
            raise SystemExit(f"{where}: no session has {LEAST_S:g} s of {kind} without a neighbour")
        kept += long
        left_out[kind] = len(found) - len(long)
    percentile = data.setting.percentile
    return Recorded(tuple(kept), left_out, _tau_ticks(kept, percentile), percentile)


def strata(data: Dataset, kind: Kind) -> Iterator[Stratum]:
    """Of each session that has some of a kind, the shortest included."""
    for session in data.sessions:
        found = stratum(session, kind, disturbed_from(session))
        changes = len({level for level in found.levels if level is not None}) > 1
        if found.observations and (kind == "quiet" or changes):
            yield found


def stratum(session: Session, kind: Kind, known_until: int | None = None) -> Stratum:
    """A session's ticks of a kind; from tick ``known_until`` on nothing is known to be quiet."""
    known = session.ticks[:known_until]
    levels = [_level(tick, kind) for tick in known] + ["not quiet"] * (
        len(session.ticks) - len(known)
    )
    kept = [at for at in range(len(levels)) if _is_quiet(levels, at)]
    kept_too = set(kept)
    return Stratum(
        kind=kind,
        session=session.session,
        set=session.set,
        resource=session.resource,
        observations=tuple(session.ticks[at].observation for at in kept),
        levels=tuple(level if isinstance(level := levels[at], tuple) else None for at in kept),
        goes_on=tuple(at + 1 in kept_too for at in kept),
    )


def _tau_ticks(found: Sequence[Stratum], percentile: float) -> float:
    """Autocorrelation time of the residual over all backends at even load."""
    series, goes_on = [], []
    for stratum in found:
        if stratum.kind == "quiet":
            of_each = _residuals(stratum, percentile)
            series += of_each
            goes_on += [np.array(stratum.goes_on)] * len(of_each)
    return autocorrelation_time(autocorrelation(series, goes_on, _LAGS))


def _residuals(found: Stratum, percentile: float) -> list[NDArray[np.float64]]:
    """ln(T_x (1 - rho_fg)) of each backend, each (n,): what the detector sums up evidence of.

    NaN where T_x or rho_fg is missing.
    """
    product, state = blind(percentile), State()
    values: dict[str, list[float]] = {}
    for seen in found.observations:
        state, plan = step(product, state, seen)
        for backend, planned in zip(seen.backends, plan.backends, strict=True):
            t_x_ms, rho_fg = backend.window.t_x_ms, planned.verdict.rho_fg
            if isinstance(t_x_ms, NoData) or isinstance(rho_fg, NoData):
                x = math.nan
            else:
                x = math.log(t_x_ms * (1.0 - min(rho_fg, RHO_MAX)))
            values.setdefault(backend.name, []).append(x)
    return [np.array(of_one) for of_one in values.values()]


_Mark = Level | Literal["between", "not quiet"]


def _level(tick: LabelledTick, kind: Kind) -> _Mark:
    truths = list(tick.truths.values())
    first = truths[0]
    if first.phase == LEARN:
        return _LEARNING
    if first.phase != STAGE or first.stage is None:
        return "between"
    if any(truth.label not in _LABELS[kind] for truth in truths):
        return "not quiet"
    return (first.rate_factor, first.cost_factor)


def _is_quiet(marks: list[_Mark], at: int) -> bool:
    """Whether it is, or whether what comes before and after a tick in between is."""
    before, after = at, at
    while before >= 0 and marks[before] == "between":
        before -= 1
    while after < len(marks) and marks[after] == "between":
        after += 1
    return (
        before >= 0
        and after < len(marks)
        and marks[before] != "not quiet"
        and marks[after] != "not quiet"
    )
