"""What one tick leaves for the next: a value, so that a recording can carry it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dial.classifier import QuietBaseline, Symptom
from dial.controller.arrivals import Arrivals
from dial.controller.siblings import Apparent
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
    in_use
        rho_bg that load is split by: it follows the estimate up at once, and down only when that
        is surely lower, so that no sampling error hands load back.
    gone
        Evidence that the neighbour has gone: of :func:`dial.estimator.departed`, or with the
        paper's release the intervals in a row with a normal T_x.
    since_tick
        Tick of the detection.
    read_tick
        Tick of the last interval that said anything of the neighbour.
    returns
        How often it came back soon after it had been held to be gone.
    evidence
        What the classifier went by.
    symptom
        The feature that it showed by, where the estimate does not rest on that one.
    """

    cause: Cause
    rho_bg: RhoBg
    in_use: float
    gone: float
    since_tick: int
    read_tick: int
    returns: int
    evidence: tuple[str, ...]
    symptom: Symptom | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The end of a backend's last contention: its tick, and how often that one had returned."""

    tick: int
    returns: int


@dataclass(frozen=True, slots=True)
class BackendState:
    """What is remembered of one backend."""

    band: BandState = field(default_factory=BandState)
    cusum: CusumState = field(default_factory=CusumState)
    rates: CusumState = field(default_factory=CusumState)
    """The same of what the balancer gives it beside its siblings."""
    baseline: QuietBaseline = field(default_factory=QuietBaseline)
    curve: QuietCurve = field(default_factory=QuietCurve)
    peak: PeakState = field(default_factory=PeakState)
    contention: Contention | None = None
    suspect: Cause | None = None
    """Class of the last interval that was above its band, until all is calm again."""
    history: tuple[Apparent, ...] = ()
    """What a neighbour would have had to take in the last intervals, the newest last."""
    uneasy_intervals: int = 0
    """Since all was calm; not more than are compared with siblings."""
    release: Release | None = None


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
    underneath
        Of the backends whose weight is an operator's: what it is without that order.
    """

    shares: dict[str, float]
    weights: dict[str, int]
    arrived: bool = True
    underneath: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Yield:
    """Why the weights are somebody else's, and the tick before which they stay so in any case."""

    reason: str
    until_tick: int


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
    in_force
        Weights that the balancer had then.
    yielded
        While the weights are somebody else's.
    arrivals
        At the whole service; ``None`` before the first tick.
    """

    backends: dict[str, BackendState] = field(default_factory=dict)
    shift: Shift | None = None
    epoch: str = ""
    in_force: dict[str, int] = field(default_factory=dict)
    yielded: Yield | None = None
    arrivals: Arrivals | None = None
