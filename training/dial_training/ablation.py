"""What each signal adds: the tree grown again with one feature missing everywhere.

A feature that others can stand in for costs nothing when it alone is taken away; that says
that it is not needed *beside the others*, not that it is worthless.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dial.classifier import FEATURES
from dial_training.table import Table
from dial_training.tiers import PROBE
from dial_training.tree import cross_validate, grow


@dataclass(frozen=True, slots=True)
class Ablation:
    """Errors of the tree without one feature, over intervals as recorded (no tier hidden).

    Attributes
    ----------
    without
        The feature, or ``None`` for the whole tree.
    cv_error
        Training set, by trees that saw nothing of the row's session.
    unseen_error
        Set ``unseen``, by the tree of the whole training set; ``None`` without such rows.
    """

    without: str | None
    cv_error: float
    unseen_error: float | None


def ablate(training: Table, unseen: Table | None, alpha: float) -> list[Ablation]:
    """The whole tree, then without each feature that occurs in the data.

    Parameters
    ----------
    training : rows in all tiers.
    unseen : rows of the unseen set, or ``None`` if there are none.
    alpha : complexity cost that the tree was pruned with.
    """
    occurring = [
        name for column, name in enumerate(FEATURES) if not np.all(np.isnan(training.x[:, column]))
    ]
    return [_errors(training, unseen, alpha, name) for name in (None, *occurring)]


def _errors(training: Table, unseen: Table | None, alpha: float, without: str | None) -> Ablation:
    rows = training if without is None else training.without(without)
    predicted = cross_validate(rows, alpha).predicted
    full = rows.tier == PROBE.name
    cv_error = float(np.mean(predicted[full] != rows.y[full]))
    if unseen is None:
        return Ablation(without, cv_error, None)
    # Missing in the question too: a branch on it could not exist anyway.
    asked = (unseen if without is None else unseen.without(without)).of_tier(PROBE.name)
    answers = grow(rows, alpha).predict(asked.x)
    return Ablation(without, cv_error, float(np.mean(answers != asked.y)))
