"""Everything that is measured of a model, from the data set that it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dial.model import ModelDocument
from dial_training import forms
from dial_training.ablation import Ablation, ablate
from dial_training.accuracy import UNSEEN, accuracy, product_curves
from dial_training.card import alpha_of
from dial_training.dataset import Dataset
from dial_training.fit import TRAIN, study_all, study_untested
from dial_training.replay import Studied, policy
from dial_training.table import tabulate
from dial_training.tiers import PROBE
from dial_training.tree import cross_validate
from dial_training.windows import Point


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured, and the points that Eq. 1 is drawn over.

    Attributes
    ----------
    accuracy
        :func:`dial_training.accuracy.accuracy`.
    forms
        :func:`dial_training.forms.compare`.
    ablation
        :func:`dial_training.ablation.ablate`.
    points
        Stages by set, as recorded; T_x is over that of the idle backend.
    """

    accuracy: dict[str, Any]
    forms: dict[str, dict[str, dict[str, float | None]]]
    ablation: list[Ablation]
    points: dict[str, list[Point]]

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        ablation = {
            each.without or "nothing": {
                "cv_error": each.cv_error,
                "unseen_error": each.unseen_error,
            }
            for each in self.ablation
        }
        return {**self.accuracy, "forms": self.forms, "ablation": ablation}


def evaluate(data: Dataset, model: ModelDocument) -> Evaluation:
    """Measure a trained model on the data set that it was made from."""
    product = policy(model, data.setting.percentile)
    studied = study_all(data)
    table = tabulate(_of_set(studied, TRAIN))
    alpha = alpha_of(model.card)
    unseen = _of_set(studied, UNSEEN)
    recorded = [each for each in studied if each.tier is PROBE]
    return Evaluation(
        accuracy=accuracy(
            product, studied, table, cross_validate(table, alpha), untested=study_untested(data)
        ),
        forms=forms.compare(recorded),
        ablation=ablate(table, tabulate(unseen) if unseen else None, alpha),
        points={
            name: [
                replace(p, t_x_ms=p.t_x_ms / curve.t_x_ms(0.0))
                for s in _of_set(recorded, name)
                for p, curve in product_curves(product, s)
            ]
            for name in sorted({s.session.set for s in recorded})
        },
    )


def _of_set(studied: Sequence[Studied], name: str) -> list[Studied]:
    return [each for each in studied if each.session.set == name]
