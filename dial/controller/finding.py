"""What is held of a backend in one tick, before it becomes a verdict."""

from __future__ import annotations

from dataclasses import dataclass

from dial.classifier import Symptom
from dial.estimator import RhoBg
from dial.types import Cause, NoData


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, what a neighbour takes if it is one, what speaks for it, and what it showed by."""

    cause: Cause
    rho_bg: RhoBg | NoData
    why: tuple[str, ...] = ()
    symptom: Symptom | None = None

    begins: bool = False
    """Whether the interval before had another cause, or none: what it shows may be half of it."""
