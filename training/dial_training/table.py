"""The table that the tree is taught from: one row for each interval that it would be asked of.

Which intervals are rows
    The product asks its tree only of intervals whose T_x is above the detector's band: in
    all others there is nothing to explain.  So these are the rows, of every case, with the
    case's label: of a neighbour's cases nearly all intervals, of quiet ones the few that
    chance lifts above the band, of load changes those that the load makes slower.  An
    interval of a neighbour too weak to leave the band is no row, in training or in
    cross-validation; how many neighbours are missed so is measured on whole cases.

What is the right answer
    The case's label; but ``unknown`` where none of the signals is there by which its class
    could be told (:data:`SIGNALS`).  A tree that is taught to name what it cannot see learns
    the noise of something else.  Less load than in learning makes nothing slower: its answer is
    ``none``.  Stages with heavier requests are left out: one backend alone cannot tell them from
    a neighbour in the cache, and in the product its siblings do.  So are neighbours that took
    next to nothing (:func:`dial_training.truth.too_weak`).

Missing features
    NaN here, ``NoData`` in the product.  Each interval is a row in every capability tier,
    so the tree learns at each branch what to do where the feature is missing.  What is
    missing for other reasons is :mod:`dial_training.missing`'s concern.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dial.classifier import FEATURES
from dial.types import Cause, NoData
from dial_training.errors import DatasetError
from dial_training.replay import JudgedTick, Studied
from dial_training.tiers import PROBE
from dial_training.truth import too_weak

SIGNALS: dict[Cause, tuple[str, ...]] = {
    Cause.CPU: ("cpu_wait_excess",),
    Cause.NET: ("t_c_ratio", "retransmit_fraction"),
    Cause.DISK: ("io_pressure_odds_ratio", "disk_busy_odds_ratio", "iowait_ratio"),
    Cause.LLC: ("cpu_time_ratio", "memory_reload_ratio"),
    Cause.SELF_LIMITED: ("throttled_excess",),
}
"""What a class can be told by, by its nature; any one of them will do."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for the tree.

    Attributes
    ----------
    x
        (n, features) in the order of :data:`dial.classifier.FEATURES`; NaN where missing.
    y
        (n,) the right answer: the value of a :class:`dial.types.Cause`.
    session, stage, tier
        (n,) where the row is from; a stage is named with its session.
    quiet
        (m, features) of all intervals of quiet cases, above the band or not, as recorded: what
        a signal reads while nobody disturbs its resource.
    """

    x: NDArray[np.float64]
    y: NDArray[np.str_]
    session: NDArray[np.str_]
    stage: NDArray[np.str_]
    tier: NDArray[np.str_]
    quiet: NDArray[np.float64]

    def of_tier(self, name: str) -> Table:
        """The rows of one tier."""
        return self.where(self.tier == name)

    def where(self, kept: NDArray[np.bool_]) -> Table:
        """Some rows, by a mask (n,)."""
        of_rows = ("x", "y", "session", "stage", "tier")
        return replace(self, **{name: getattr(self, name)[kept] for name in of_rows})

    def without(self, feature: str) -> Table:
        """The same rows with one feature missing everywhere."""
        x = self.x.copy()
        x[:, list(FEATURES).index(feature)] = np.nan
        return replace(self, x=x)


def tabulate(studied: Iterable[Studied]) -> Table:
    """All rows of some sessions, each in the tiers it was studied in.

    Raises
    ------
    DatasetError
        If no interval of theirs is above its band.
    """
    rows: list[list[float]] = []
    quiet: list[list[float]] = []
    origins: list[tuple[str, str, str, str]] = []
    for each in studied:
        for judged in each.cases:
            truth, name = judged.case.truth, each.session.session
            if truth.cost_factor != 1.0 or too_weak(each, judged):
                continue
            less_load = truth.label is Cause.LOAD and truth.rate_factor < 1.0
            label = Cause.NONE if less_load else truth.label
            origin = (label.value, name, f"{name}/{truth.stage}", each.tier.name)
            for tick in judged.ticks:
                if tick.above:
                    rows.append(_row(tick))
                    origins.append(origin)
                if truth.label is Cause.NONE and each.tier is PROBE:
                    quiet.append(_row(tick))
    if not rows:
        raise DatasetError("no interval is above its band: there is nothing to learn from")
    y, session, stage, tier_name = (np.array(column) for column in zip(*origins, strict=True))
    pool = np.array(quiet) if quiet else np.empty((0, len(FEATURES)))
    x = np.array(rows)
    return Table(x, right_answers(x, y), session, stage, tier_name, pool)


def right_answers(x: NDArray[np.float64], labels: NDArray[np.str_]) -> NDArray[np.str_]:
    """The labels (n,), but ``unknown`` where x (n, features) has no signal of the class."""
    # Wide enough for every class: NumPy would cut a longer word short.
    answers = labels.astype(f"<U{max(len(cause.value) for cause in Cause)}")
    for cause, signals in SIGNALS.items():
        columns = [list(FEATURES).index(name) for name in signals]
        untold = np.isnan(x[:, columns]).all(axis=1)
        answers[(labels == cause.value) & untold] = Cause.UNKNOWN.value
    return answers


def _row(tick: JudgedTick) -> list[float]:
    return [np.nan if isinstance(value, NoData) else value for value in tick.features.values()]
