"""How often, and how nearly, the product is right: on sets that nothing was learnt from.

What is counted
    cv_error
        Intervals of the training set that a tree which saw nothing of their session
        classifies wrong (:mod:`dial_training.table` says which intervals).
    unseen_accuracy
        Cases of the set ``unseen``, whose programs are in no other set.  A case is judged by
        the product's whole pipeline.  Its class is the one that most ticks have from the
        first verdict on: before that the product has not made up its mind, as the paper's has
        not in its first intervals.  A case without any verdict is ``none``: a miss, but for a
        load change, where nothing is to be explained if T_x stays in its band.  Cases whose
        neighbour took next to nothing are left out, and counted in ``unseen_too_weak_n``.
    false_positive_rate
        Cases without a neighbour in which load moves away in *any* tick, for a cause or before it
        is known; of all sets but the training set.  Cases in which somebody outside was in the
        cache are left out, and counted in ``disturbed_n``.
    model_error
        Mean of |T_x predicted - measured| / measured over the stages of the set ``heldout``,
        quiet and contended, where rho_fg + rho_bg <= 0.95; the curve is what the product would
        use, rho_fg is the product's.
    without_load_test
        The figures of the product, not those of its model, where it does not know the peaks.
    rho_bg_mae
        Mean of |rho_bg estimated - true| over contended windows of 30 s of ``heldout`` with
        rho_fg >= 0.3.  Each window is run through the product from the learnt state; its
        estimate at the end counts, and 0 where it has found no neighbour by then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dial.controller.policy import Policy
from dial.queueing import MM1, RHO_MAX, TailCurve
from dial.types import Cause, NoData
from dial_training.curves import curve_points, relative_errors
from dial_training.fit import TRAIN
from dial_training.replay import JudgedTick, Studied, judge_cases, judge_part
from dial_training.table import Table
from dial_training.tiers import PROBE, TIERS, Tier
from dial_training.tree import CrossValidation
from dial_training.truth import disturbed, too_weak, true_rho_bg
from dial_training.windows import Point, point, split

UNSEEN, HELDOUT = "unseen", "heldout"

_LEAST_RHO_FG = 0.3
"""Below it Eq. 1 is flat: a slow answer says little of what is taken (COMMANDS: rho_bg_mae)."""

_WITHOUT_LOAD_TEST = (
    "unseen_accuracy",
    "unseen_n",
    "false_positive_rate",
    "false_positive_runs",
    "model_error",
    "rho_bg_mae",
    "rho_bg_windows",
)

Report = dict[str, Any]
"""As JSON has it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the product made of one case.

    Attributes
    ----------
    case, set, guest, program
        Of the data set.
    label
        What was really the matter.
    answer
        What the product held it to be.
    accused
        Whether in any tick load was to move away from it.
    """

    case: str
    set: str
    guest: str
    program: str | None
    label: Cause
    answer: Cause
    accused: bool

    @property
    def right(self) -> bool:
        """Whether the answer is."""
        return self.answer is self.label or (self.label is Cause.LOAD and self.answer is Cause.NONE)


@dataclass(frozen=True, slots=True)
class Estimate:
    """rho_bg of one window.

    Attributes
    ----------
    resource
        In contention.
    point
        Measured, with the true rho_bg.
    rho_bg
        The product's.
    """

    resource: Cause
    point: Point
    rho_bg: float

    @property
    def error(self) -> float:
        """How far off."""
        return abs(self.rho_bg - self.point.rho_bg)


def class_of(ticks: Sequence[JudgedTick]) -> Cause:
    """The class of a case: the most frequent one from the first verdict on."""
    causes = [tick.verdict.cause for tick in ticks]
    first = next((at for at, cause in enumerate(causes) if cause is not Cause.NONE), None)
    return Cause.NONE if first is None else Counter(causes[first:]).most_common(1)[0][0]


def answers(product: Policy, studied: Studied) -> list[Answer]:
    """Of every case of a session whose neighbour, if there is one, is worth finding."""
    session = studied.session
    return [
        Answer(
            judged.case.case,
            session.set,
            session.guest,
            judged.case.truth.program,
            judged.case.truth.label,
            class_of(judged.ticks),
            any(tick.engaged for tick in judged.ticks),
        )
        for judged in judge_cases(product, studied)
        if not too_weak(studied, judged) and not disturbed(studied, judged)
    ]


def estimates(product: Policy, studied: Studied) -> list[Estimate]:
    """rho_bg of every contended window of a session."""
    found = []
    for judged in studied.cases:
        case, truth = judged.case, judged.case.truth
        rho_bg = true_rho_bg(studied, judged) if truth.label.is_contention else None
        if rho_bg is None:
            continue
        for at in split(case):
            ticks = judge_part(product, studied, case, at)
            measured = point(studied.session.session, case.machine, truth.label, ticks, rho_bg)
            if measured is not None and measured.rho_fg >= _LEAST_RHO_FG:
                found.append(Estimate(truth.label, measured, _rho_bg(ticks[-1])))
    return found


def product_curves(product: Policy, studied: Studied) -> list[tuple[Point, TailCurve]]:
    """Every point of a session, with the curve that the product would use for it."""
    found = []
    for p in curve_points(studied):
        shape = product.shapes.get(p.resource, MM1)
        row = studied.state.backends.names.index(p.machine)
        curve = studied.state.backends.known.curve.curve(row, shape)
        if not isinstance(curve, NoData):
            found.append((p, curve))
    return found


def accuracy(
    product: Policy,
    studied: Sequence[Studied],
    table: Table,
    cv: CrossValidation,
    *,
    untested: Sequence[Studied],
) -> Report:
    """All figures, per tier and as recorded.

    Parameters
    ----------
    product : with the model to measure.
    studied : all sessions in all tiers.
    table : rows of the training set, in all tiers.
    cv : cross-validation over ``table``.
    untested : all sessions as recorded, the peaks not known to the product.
    """
    unknown_peaks = _of_product(product, untested)
    tiers = {
        tier.name: _of_tier(product, [s for s in studied if s.tier == tier], tier, table, cv)
        for tier in TIERS
    }
    return {
        **tiers[PROBE.name],
        "tiers": tiers,
        "without_load_test": {key: unknown_peaks[key] for key in _WITHOUT_LOAD_TEST},
    }


def confusion(of: Iterable[Answer]) -> dict[str, dict[str, int]]:
    """How many cases of each label (outer) got each answer (inner)."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in of:
        counts[each.label.value][each.answer.value] += 1
    order = [cause.value for cause in Cause]
    return {
        label: {a: counts[label][a] for a in order if counts[label][a]}
        for label in order
        if label in counts
    }


def _of_tier(
    product: Policy, studied: Sequence[Studied], tier: Tier, table: Table, cv: CrossValidation
) -> Report:
    rows = table.tier == tier.name
    return {
        "cv_error": _mean(cv.predicted[rows] != table.y[rows]),
        "cv_rows": int(np.sum(rows)),
        "cv_per_class": {
            label: _mean(cv.predicted[rows & (table.y == label)] == label)
            for label in sorted(set(table.y[rows]))
        },
        **_of_product(product, studied),
    }


def _of_product(product: Policy, studied: Sequence[Studied]) -> Report:
    tested = [s for s in studied if s.session.set != TRAIN]
    found = [answer for s in tested for answer in answers(product, s)]
    unseen = [a for a in found if a.set == UNSEEN]
    harmless = [a for a in found if a.label.blames_nobody]
    heldout = [s for s in studied if s.session.set == HELDOUT]
    guesses = [e for s in heldout for e in estimates(product, s)]
    predictions = [p for s in heldout for p in product_curves(product, s)]
    return {
        "unseen_accuracy": _mean([a.right for a in unseen]),
        "unseen_n": len(unseen),
        "unseen_too_weak_n": sum(
            too_weak(s, judged) for s in tested if s.session.set == UNSEEN for judged in s.cases
        ),
        "per_class": _per_class(unseen),
        "per_guest": {
            guest: {"accuracy": _mean([a.right for a in of]), "n": len(of)}
            for guest in sorted({a.guest for a in unseen})
            if (of := [a for a in unseen if a.guest == guest])
        },
        "heldout_accuracy": _mean([a.right for a in found if a.set == HELDOUT]),
        "false_positive_rate": _mean([a.accused for a in harmless]),
        "false_positive_runs": len(harmless),
        "disturbed_n": sum(disturbed(s, judged) for s in tested for judged in s.cases),
        "model_error": _mean(relative_errors(predictions)),
        "model_error_per_resource": {
            cause: _mean(relative_errors((p, c) for p, c in predictions if p.resource == cause))
            for cause in sorted({p.resource.value for p, _ in predictions})
        },
        "rho_bg_mae": _mean([e.error for e in guesses]),
        "rho_bg_windows": len(guesses),
        "rho_bg_mae_below_saturation": _mean([e.error for e in guesses if e.point.rho <= RHO_MAX]),
        "rho_bg_mae_per_resource": {
            cause: _mean([e.error for e in guesses if e.resource == cause])
            for cause in sorted({e.resource.value for e in guesses})
        },
    }


def _per_class(of: Sequence[Answer]) -> Mapping[str, Report]:
    return {
        label: {
            "accuracy": _mean([a.right for a in of if a.label == label]),
            "n": sum(row.values()),
            "answers": row,
        }
        for label, row in confusion(of).items()
    }


def _rho_bg(last: JudgedTick) -> float:
    """The product's estimate; a neighbour that was not found takes nothing."""
    verdict = last.verdict
    if not verdict.cause.is_contention or isinstance(verdict.rho_bg, NoData):
        return 0.0
    return verdict.rho_bg


def _mean(values: Any) -> float | None:
    """``None`` where nothing was measured: a rate of nothing is not 0."""
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()) if found.size else None
