"""Why a backend is slow: the decision tree and the features it looks at.

:mod:`dial.classifier.features`
    Metrics normalised by what the present number of requests predicts.
:mod:`dial.classifier.tree`
    A decision tree read from a model, evaluated with missing signals.
"""

from dial.classifier.features import FEATURES, QuietBaseline, features
from dial.classifier.tree import Branch, Leaf, Tree, classify

__all__ = ["FEATURES", "Branch", "Leaf", "QuietBaseline", "Tree", "classify", "features"]
