r"""The decision tree: grown, pruned, cross-validated, and exported to the product's form.

Method
    Splits by information gain, as in the paper's J48.  Gini's impurity asked for the CPU time of a
    request, which every queue raises a little, before the connect time, which only a network does:
    a neighbour that took 0.7 of a network passed for one in the cache in every other interval.

    Minimal cost-complexity pruning: of all subtrees of the full tree the one that minimises

        impurity + alpha * leaves.

    alpha is chosen by ten-fold cross-validation with the one-standard-error rule: the largest
    alpha (the smallest tree) whose error is within one standard error of the best one's, but
    none that prunes a class away altogether.
    Folds are made of whole sessions: ticks of one run resemble each other, and a fold that
    had seen a run's other half would be told its answer.  Where a class is in one session
    only, as in the quick mode, leaving that out would leave nothing to learn the class from;
    then folds are made of whole stages.  Classes weigh the same, however many rows they have.

Export
    scikit-learn compares in single precision and goes left at ``x <= t``; the product compares
    in double precision and goes ``above`` at ``x >= threshold``.  The threshold exported is the
    least double that single precision rounds to more than t, so that both agree on every
    number there is.  Where a feature is missing scikit-learn has learnt a side, which is
    ``Branch.missing``; a split at infinity (known against missing) becomes one at the largest
    double.

Source
    Breiman, Friedman, Olshen, Stone, "Classification and Regression Trees", 3.3 (pruning) and
    3.4.3 (one standard error).  The paper (2.3.2) grows a J48 tree, for one tier.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.tree import DecisionTreeClassifier

from dial.classifier import FEATURES, Branch, Leaf, Tree
from dial.types import Cause
from dial_training.errors import DatasetError
from dial_training.missing import balanced
from dial_training.table import Table

FOLDS = 10
MAX_LEAVES = 12
"""More than a person reads; eight classes need eight."""

_SEED = 7
"""Of the folds and of ties between equally good branches: the same data give the same tree."""

_LEAST_ROWS = 15
"""Five intervals in three tiers: a leaf of fewer is an anecdote."""


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Out-of-fold predictions for one alpha.

    Attributes
    ----------
    alpha
        Complexity cost per leaf.
    predicted
        (n,) class of each row, by a tree that saw nothing of the row's session (or stage).
    error
        Fraction of rows predicted wrong.
    standard_error
        Of ``error``, from its spread over the folds.
    unit
        What was never split: ``session``, or ``stage``.
    """

    alpha: float
    predicted: NDArray[np.str_]
    error: float
    standard_error: float
    unit: str


def grow(table: Table, alpha: float) -> DecisionTreeClassifier:
    """The pruned tree of all rows."""
    grown = DecisionTreeClassifier(
        criterion="entropy",
        ccp_alpha=alpha,
        class_weight="balanced",
        max_leaf_nodes=MAX_LEAVES,
        min_samples_leaf=_LEAST_ROWS,
        random_state=_SEED,
    )
    return grown.fit(*balanced(table))


def cross_validate(table: Table, alpha: float) -> CrossValidation:
    """Predict every row by a tree that saw nothing of its session.

    Raises
    ------
    DatasetError
        If there is one stage only.
    """
    unit = _unit(table)
    predicted = np.empty_like(table.y)
    errors = []
    for train, test in _folds(table, unit):
        kept = np.zeros(table.y.size, dtype=bool)
        kept[train] = True
        predicted[test] = grow(table.where(kept), alpha).predict(table.x[test])
        errors.append(float(np.mean(predicted[test] != table.y[test])))
    spread = float(np.std(errors, ddof=1)) / np.sqrt(len(errors))
    error = float(np.mean(predicted != table.y))
    return CrossValidation(alpha, predicted, error, float(spread), unit)


def choose_alpha(table: Table) -> CrossValidation:
    """The largest alpha within one standard error of the best, that leaves every class a leaf.

    Of few rows the standard error is so large that the rule alone would prune classes away.
    """
    every = _named(grow(table, alpha=0.0))
    candidates = [a for a in _candidates(table) if _named(grow(table, a)) == every]
    tried = [cross_validate(table, alpha) for alpha in candidates]
    best = min(tried, key=lambda each: each.error)
    limit = best.error + best.standard_error
    return max((each for each in tried if each.error <= limit), key=lambda each: each.alpha)


def export(grown: DecisionTreeClassifier) -> Tree:
    """The tree in the product's own form; branches with equal leaves are folded."""
    nodes = grown.tree_
    # The array of nodes is the one place where every version tells the side of missing values.
    missing_left = nodes.__getstate__()["nodes"]["missing_go_to_left"]
    names = list(FEATURES)

    def convert(at: int) -> Tree:
        below, above = nodes.children_left[at], nodes.children_right[at]
        if below == above:
            return Leaf(Cause(grown.classes_[int(np.argmax(nodes.value[at]))]))
        left, right = convert(below), convert(above)
        if left == right:
            return left
        return Branch(
            feature=names[nodes.feature[at]],
            threshold=least_above(float(nodes.threshold[at])),
            below=left,
            above=right,
            missing="below" if missing_left[at] else "above",
        )

    return convert(0)


def least_above(threshold: float) -> float:
    """The least double that is more than ``threshold`` once rounded to single precision."""
    if threshold == np.inf:
        return sys.float_info.max
    single = np.float32(threshold)
    higher = single if float(single) > threshold else np.nextafter(single, np.float32(np.inf))
    lower = np.nextafter(higher, np.float32(-np.inf))
    middle = (float(lower) + float(higher)) / 2.0
    # Half way is rounded to the even one of the two neighbours.
    return middle if np.float32(middle) == higher else float(np.nextafter(middle, np.inf))


def leaves(tree: Tree) -> int:
    """How many there are."""
    return 1 if isinstance(tree, Leaf) else leaves(tree.below) + leaves(tree.above)


def in_words(tree: Tree) -> list[str]:
    """The tree as indented lines."""
    if isinstance(tree, Leaf):
        return [tree.cause.value]
    lines = []
    for sign, side, name in (("<", tree.below, "below"), (">=", tree.above, "above")):
        absent = tree.missing == name
        if tree.asks_whether_known:
            head = f"{tree.feature} {'missing' if absent else 'known'}"
        else:
            head = f"{tree.feature} {sign} {tree.threshold:.3g}{' or missing' if absent else ''}"
        if isinstance(side, Leaf):
            lines.append(f"{head}: {side.cause.value}")
        else:
            lines += [head, *(f"    {line}" for line in in_words(side))]
    return lines


def _unit(table: Table) -> str:
    """Sessions are kept whole if every class is in two of them at least."""
    classes = np.unique(table.y)
    least = min(np.unique(table.session[table.y == label]).size for label in classes)
    return "session" if least > 1 else "stage"


def _folds(table: Table, unit: str) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    groups = table.session if unit == "session" else table.stage
    found = np.unique(groups).size
    if found < 2:
        raise DatasetError(f"rows of {found} {unit}: cross-validation needs at least 2")
    rarest = int(np.unique(table.y, return_counts=True)[1].min())
    count = min(FOLDS, found, max(rarest, 2))
    folds = StratifiedGroupKFold(count, shuffle=True, random_state=_SEED)
    return list(folds.split(table.x, table.y, groups=groups))


def _named(grown: DecisionTreeClassifier) -> set[int]:
    """The classes that some leaf answers."""
    nodes = grown.tree_
    is_leaf = nodes.children_left == nodes.children_right
    return {int(np.argmax(value)) for value in nodes.value[is_leaf]}


def _candidates(table: Table) -> list[float]:
    """One alpha for each subtree of the full tree: geometric means, as CART has them."""
    path = grow(table, alpha=0.0).cost_complexity_pruning_path(*balanced(table)).ccp_alphas
    alphas = np.unique(np.maximum(path, 0.0))
    return [0.0, *(float(a) for a in np.sqrt(alphas[1:-1] * alphas[2:]))]
