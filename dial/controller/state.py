"""What one tick leaves for the next: a value, so that a recording can carry it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dial.classifier import QuietBaseline
from dial.controller.siblings import Comparison
from dial.detector import BandState, CusumState
from dial.estimator import PeakState, QuietCurve, RhoBg
from dial.types import Cause


@dataclass(frozen=True, slots=True)
class Contention:
    """A neighbour that load is being moved away from.

    Attributes
    ----------
    cause
        The resource, as classified when the load was still even: afterwards the symptoms
        fade although the neighbour stays.
    rho_bg
        Running estimate.
    calm_ticks
        Ticks in a row in which it was below the release threshold.
    since_tick
        Tick of the detection.
    evidence
        What the classifier went by.
    """

    cause: Cause
    rho_bg: RhoBg
    calm_ticks: int
    since_tick: int
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackendState:
    """What is remembered of one backend."""

    band: BandState = field(default_factory=BandState)
    cusum: CusumState = field(default_factory=CusumState)
    baseline: QuietBaseline = field(default_factory=QuietBaseline)
    curve: QuietCurve = field(default_factory=QuietCurve)
    peak: PeakState = field(default_factory=PeakState)
    contention: Contention | None = None
    suspect: Cause | None = None
    """Class of the last interval that was above its band, until all is calm again."""
    by_t_x: Comparison = field(default_factory=Comparison)
    by_cpu_time: Comparison = field(default_factory=Comparison)
    """How it did beside its siblings, by T_x and by the CPU time of a request."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Weights that differ from the configured ones because we want it so.

    Attributes
    ----------
    shares
        Share of the service's requests by backend.
    weights
        The same as integer weights, to be found in force at every reading.
    arrived
        False while the step limit keeps the shares from where they should be.
    """

    shares: dict[str, float]
    weights: dict[str, int]
    arrived: bool = True


@dataclass(frozen=True, slots=True)
class State:
    """All that ``step`` remembers.

    Attributes
    ----------
    backends
        By name; a backend that left the balancer is forgotten.
    shift
        ``None`` while the weights are none of our business: then the admin may change
        them as he likes and no plan will touch them.
    epoch
        Of the balancer at the last tick.
    """

    backends: dict[str, BackendState] = field(default_factory=dict)
    shift: Shift | None = None
    epoch: str = ""
