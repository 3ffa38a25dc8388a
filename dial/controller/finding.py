"""What is held of a backend in one tick, before it becomes a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from dial.classifier import Path, Symptom
from dial.estimator import RhoBg
from dial.types import Cause, NoData

Why = tuple[str | Path, ...]
"""What speaks for a finding.  Most is of backends that are well again before anybody asks."""


def in_words(why: Why) -> tuple[str, ...]:
    """For a person, and for a recording."""
    said = ((each,) if isinstance(each, str) else each.in_words() for each in why)
    return tuple(chain.from_iterable(said))


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, what a neighbour takes if it is one, what speaks for it, and what it showed by."""

    cause: Cause
    rho_bg: RhoBg | NoData
    why: Why = ()
    symptom: Symptom | None = None

    begins: bool = False
    """Whether it was not what the last slow interval looked like: this one may hold half of it."""
