"""Why a backend is slow: the decision tree and the features it looks at.

:mod:`dial.classifier.metrics`
    The metrics of one interval.
:mod:`dial.classifier.baseline`
    What they were in quiet times.
:mod:`dial.classifier.features`
    Metrics normalised by what the present number of requests predicts.
:mod:`dial.classifier.tree`
    A decision tree read from a model, evaluated with missing signals.
:mod:`dial.classifier.deferral`
    What an application's waiting for itself costs it.
:mod:`dial.classifier.own`
    The classes that are not the tree's: what the tenant does to itself, by its own signals.
:mod:`dial.classifier.symptom`
    Whether what a cause was named by still shows.
"""

from dial.classifier.baseline import WAIT_VARIES, QuietBaseline
from dial.classifier.features import FEATURES, Features, FeaturesOfOne, features_of
from dial.classifier.metrics import Metrics
from dial.classifier.symptom import Symptom, symptom_of
from dial.classifier.tree import Branch, Leaf, Path, Tree, classify, leaf

__all__ = [
    "FEATURES",
    "WAIT_VARIES",
    "Branch",
    "Features",
    "FeaturesOfOne",
    "Leaf",
    "Metrics",
    "Path",
    "QuietBaseline",
    "Symptom",
    "Tree",
    "classify",
    "features_of",
    "leaf",
    "symptom_of",
]
