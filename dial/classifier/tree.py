"""The decision tree, as read from a model and evaluated here.

Problem
    Name the resource in contention from features that a tenant can see, some of which are
    missing on some platforms.

Rule
    From the root, a branch compares one feature with a threshold: below it goes one way,
    at or above it the other.  Where the feature is missing the branch says which way to
    go; a tree is trained, and its accuracy published, with that rule in place.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.2 and Fig. 6 (a J48 tree).  Training is done with
    scikit-learn elsewhere; to run, a tree is thresholds and nothing else.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from dial.classifier.features import in_words
from dial.types import Cause, Measured, NoData


@dataclass(frozen=True, slots=True)
class Leaf:
    """The end of a path: what such an interval was."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class Branch:
    """One comparison.

    Attributes
    ----------
    feature
        Name from :data:`dial.classifier.features.FEATURES`.
    threshold
        Goes ``above`` when the feature is at least this.
    below, above
        What to look at next.
    missing
        Which of the two to take when the feature is ``NoData``.
    """

    feature: str
    threshold: float
    below: Tree
    above: Tree
    missing: Literal["below", "above"] = "below"

    @property
    def asks_whether_known(self) -> bool:
        """Whether it tells only what is there from what is missing: no number is so large."""
        return self.threshold >= sys.float_info.max

    def way(self, value: float) -> Tree:
        """Where a value leads to; NaN is one that is missing."""
        above = self.missing == "above" if math.isnan(value) else value >= self.threshold
        return self.above if above else self.below


Tree = Leaf | Branch


def classify(tree: Tree, found: Mapping[str, Measured]) -> tuple[Cause, tuple[str, ...]]:
    """Follow the tree.

    Parameters
    ----------
    tree : the root.
    found : features of one interval, by name.

    Returns
    -------
    cause
        The class of the leaf reached.
    path
        The comparisons on the way, in words: the evidence a person is shown.

    Raises
    ------
    KeyError
        If the tree asks for a feature that does not exist; models are checked for that
        when they are loaded.
    """
    path: list[str] = []
    node = tree
    while isinstance(node, Branch):
        value = found[node.feature]
        if isinstance(value, NoData):
            path.append(f"{in_words(node.feature)} missing ({value.reason})")
            node = node.way(math.nan)
            continue
        if node.asks_whether_known:
            path.append(f"{in_words(node.feature, value)} is known")
        else:
            side = ">=" if value >= node.threshold else "<"
            path.append(f"{in_words(node.feature, value)} {side} {node.threshold:.3g}")
        node = node.way(value)
    return node.cause, tuple(path)


def leaf(tree: Tree, number: Callable[[str], float]) -> Cause:
    """The class alone, of which there are no words to be made.

    Parameters
    ----------
    tree : the root.
    number : a feature of one interval by its name, NaN where it is missing.
    """
    while isinstance(tree, Branch):
        tree = tree.way(number(tree.feature))
    return tree.cause


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """How an interval was classified; said once somebody asks.

    Attributes
    ----------
    tree
        The root.
    found
        Features of the interval, by name.
    """

    tree: Tree
    found: Mapping[str, Measured]

    def in_words(self) -> tuple[str, ...]:
        """The comparisons on the way."""
        return classify(self.tree, self.found)[1]
