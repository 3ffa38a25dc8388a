"""What one tick leaves for the next: a value, so that a recording can carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from dial.classifier import QuietBaseline, Symptom
from dial.columns import Columns, Ints, from_plain, plain
from dial.controller.arrivals import Arrivals
from dial.controller.history import History
from dial.controller.noise import Costs
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
    loaded_s
        How long the backend has had load again since it was drained; ``None`` if it never was.
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
    loaded_s: float | None = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """Class of a backend's last interval that was above its band, and when its sample ended.

    Of half an interval an agent may have no newer one, and the same sample looks the same.
    """

    cause: Cause
    sample_at_s: float | None

    def before(self, sample_at_s: float | None) -> Cause | None:
        """The class, beside an interval with that sample; ``None`` if it is the same one."""
        same = sample_at_s is not None and sample_at_s == self.sample_at_s
        return None if same else self.cause


@dataclass(frozen=True, slots=True)
class Release:
    """The end of a backend's last contention: its tick, and how often that one had returned."""

    tick: int
    returns: int


@dataclass(frozen=True, slots=True, eq=False)
class Known(Columns):
    """What is remembered of every backend, a row of each.

    Attributes
    ----------
    band, cusum
        Of the detectors; only the one that was chosen learns.
    rates
        The same of what the balancer gives them beside their siblings.
    baseline, curve, peak
        The quiet past.
    history
        The last intervals, to compare siblings by.
    costs
        How much the CPU time of a request varies.
    uneasy_intervals
        (n,) since all was calm; not more than are compared with siblings.
    """

    band: BandState
    cusum: CusumState
    rates: CusumState
    baseline: QuietBaseline
    curve: QuietCurve
    peak: PeakState
    history: History
    costs: Costs
    uneasy_intervals: Ints

    @classmethod
    def blank(cls, n: int) -> Known:
        """Nothing is known of n backends."""
        return cls(
            BandState.blank(n),
            CusumState.blank(n),
            CusumState.blank(n),
            QuietBaseline.blank(n),
            QuietCurve.blank(n),
            PeakState.blank(n),
            History.blank(n),
            Costs.blank(n),
            np.zeros(n, np.int64),
        )


_NOBODY = Known.blank(0)


def _known(found: object) -> Known:
    """The columns; of what was written before they were learnt, ``costs`` are blank.

    Raises
    ------
    ValueError
        As :func:`dial.columns.from_plain`.
    """
    if isinstance(found, dict) and isinstance(rows := found.get("uneasy_intervals"), list):
        found = {"costs": plain(Costs.blank(len(rows)))} | found
    return from_plain(_NOBODY, found)


@dataclass(frozen=True, slots=True)
class Backends:
    """What is remembered of the backends: of all in columns, of few by name.

    Attributes
    ----------
    names
        In the order of the rows.
    known
        Of all.
    contentions
        Of those that load is moved away from.
    suspects
        What the last interval looked like that was above its band, until all is calm again.
    releases
        Of those that had a neighbour.
    doubts
        Until which tick each is taken last of idle backends (:mod:`dial.controller.doubts`).
    """

    names: tuple[str, ...] = ()
    known: Annotated[Known, PlainValidator(_known), PlainSerializer(plain)] = field(
        default_factory=lambda: _NOBODY
    )
    contentions: dict[str, Contention] = field(default_factory=dict)
    suspects: dict[str, Suspect] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    doubts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = self.known.uneasy_intervals.size
        if rows != len(self.names):
            raise ValueError(f"{rows} rows of {len(self.names)} backends")

    def of(self, names: tuple[str, ...]) -> Backends:
        """The same of these backends: nothing of those that are new, and no others."""
        if names == self.names:
            return self
        rows = {name: row for row, name in enumerate(self.names)}
        # Whoever is new gets the blank row after all others.
        taken = np.array([rows.get(name, len(rows)) for name in names], np.int64)
        gone = set(rows).difference(names)
        return Backends(
            names,
            self.known.followed_by(Known.blank(1)).take(taken),
            without(gone, self.contentions),
            without(gone, self.suspects),
            without(gone, self.releases),
            without(gone, self.doubts),
        )


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
    resting
        Of the backends that are probed in this tick: their weight otherwise.
    underneath
        Of the backends whose weight is an operator's: what it is without that order.
    ahead
        Of backends that are taken last: how many requests each other has before they are
        (:mod:`dial.controller.ties`).
    ties_only
        Nobody contends: that is all that the weights say.
    """

    shares: dict[str, float]
    weights: dict[str, int]
    arrived: bool = True
    resting: dict[str, int] = field(default_factory=dict)
    underneath: dict[str, int] = field(default_factory=dict)
    ahead: dict[str, int] = field(default_factory=dict)
    ties_only: bool = False


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
        A backend that left the balancer is forgotten.
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

    backends: Backends = field(default_factory=Backends)
    shift: Shift | None = None
    epoch: str = ""
    in_force: dict[str, int] = field(default_factory=dict)
    yielded: Yield | None = None
    arrivals: Arrivals | None = None


def moves_load(shift: Shift | None) -> bool:
    """Whether weights say more than who is taken last of idle backends."""
    return shift is not None and not shift.ties_only


_T = TypeVar("_T")


def without(names: set[str], of: Mapping[str, _T]) -> dict[str, _T]:
    """What is held by name, but of those."""
    return {name: each for name, each in of.items() if name not in names}
