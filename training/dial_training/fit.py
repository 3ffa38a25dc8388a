"""From a data set to a model: the same data always give the same coefficients.

Only the set ``train`` is looked at here.  The set ``heldout`` (other intensities), ``unseen``
(other programs) and ``quiet`` are for :mod:`dial_training.accuracy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dial.classifier import FEATURES, Leaf, Tree
from dial.model import (
    FORMAT,
    BranchDocument,
    LeafDocument,
    ModelDocument,
    ShapeDocument,
)
from dial.queueing import TailCurve
from dial.types import Cause
from dial_training.curves import curve_points, fit_shapes, quiet_points
from dial_training.dataset import Dataset
from dial_training.errors import DatasetError
from dial_training.replay import Studied, study
from dial_training.table import Table, tabulate
from dial_training.tiers import PROBE, tiers_of
from dial_training.tree import CrossValidation, choose_alpha, export, grow

TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was learnt from the training set.

    Attributes
    ----------
    tree
        The classifier.
    shapes
        Of Eq. 1 by resource, over T_x of the idle backend.
    cross_validation
        Of the tree, at the alpha it was pruned with.
    table
        The rows it was grown from.
    """

    tree: Tree
    shapes: Mapping[Cause, TailCurve]
    cross_validation: CrossValidation
    table: Table

    def model(self, name: str, card: Mapping[str, str]) -> ModelDocument:
        """The model file's content."""
        return ModelDocument(
            format=FORMAT,
            name=name,
            card=dict(card),
            features=list(FEATURES),
            tree=tree_document(self.tree),
            shapes={
                cause: ShapeDocument(c0=c.c0_ms, c1=c.c1_ms, c2=c.c2_ms)
                for cause, c in self.shapes.items()
            },
        )


def study_untested(data: Dataset) -> list[Studied]:
    """Every session as recorded, the backends' peaks not known to the product."""
    return [
        study(session, data.setting.percentile, PROBE, load_tested=False)
        for session in data.sessions
        if PROBE in tiers_of(session)
    ]


def study_all(data: Dataset) -> list[Studied]:
    """Every session in every tier that it can stand for."""
    percentile = data.setting.percentile
    return [
        study(session, percentile, tier) for session in data.sessions for tier in tiers_of(session)
    ]


def fit(studied: Iterable[Studied]) -> Fitted:
    """Tree and shapes from the training set among some studied sessions.

    Raises
    ------
    DatasetError
        If there is no training set, or too little of it.
    """
    training = [each for each in studied if each.session.set == TRAIN]
    if not training:
        raise DatasetError(f"no session of the set {TRAIN!r}: there is nothing to learn from")
    table = tabulate(training)
    chosen = choose_alpha(table)
    as_recorded = [each for each in training if each.tier is PROBE]
    found = [p for each in as_recorded for p in curve_points(each)]
    quiet = [p for each in as_recorded for p in quiet_points(each)]
    try:
        shapes = fit_shapes(found, quiet)
    except ValueError as error:
        raise DatasetError(f"Eq. 1 cannot be fitted: {error}") from error
    return Fitted(export(grow(table, chosen.alpha)), shapes, chosen, table)


def tree_document(tree: Tree) -> LeafDocument | BranchDocument:
    """The tree as a model file has it."""
    if isinstance(tree, Leaf):
        return LeafDocument(cause=tree.cause)
    return BranchDocument(
        feature=tree.feature,
        threshold=tree.threshold,
        below=tree_document(tree.below),
        above=tree_document(tree.above),
        missing=tree.missing,
    )
