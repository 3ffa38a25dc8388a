"""The exceptions of training, under those of the product (:mod:`dial.errors`)."""

from __future__ import annotations

from dial.errors import DialError


class TrainingError(DialError):
    """Base of what a person who collects, trains or evaluates may run into."""


class ExperimentError(TrainingError):
    """An experiment's file that cannot be used: names file, setting and what is allowed."""


class DatasetError(TrainingError):
    """A data set that is missing, damaged, or not of this format."""
