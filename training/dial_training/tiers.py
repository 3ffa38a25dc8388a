"""What a platform shows of itself: the capability tiers that accuracy is published for.

A kernel without pressure-stall information, or a VM in which nobody lets the agent probe
the memory, lacks signals.  A tier is the set of metrics that are hidden; hiding happens on
the *samples*, before any feature is formed, so that a feature made of two metrics falls
back to the one that is left, as it does in the product.

A tenant in a kernel of its own (user-mode Linux) is in the first tier by its nature: its kernel
has neither pressure-stall information nor run-queue wait, and a clock too coarse for the probe.
So its sessions count there and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dial.types import METRIC_NAMES, BackendObservation, NoData
from dial_training.dataset import Session

_HIDDEN = NoData("hidden: this tier does not have it")


@dataclass(frozen=True, slots=True)
class Tier:
    """Metrics that are there, by those that are not.

    Attributes
    ----------
    name
        In reports.
    title
        For people.
    without
        Beginnings of the names of hidden metrics (:data:`dial.types.METRIC_NAMES`).
    """

    name: str
    title: str
    without: tuple[str, ...]

    @property
    def hidden(self) -> tuple[str, ...]:
        """The metrics that this tier does not have."""
        return tuple(name for name in METRIC_NAMES if name.startswith(self.without))

    def mask(self, seen: BackendObservation) -> BackendObservation:
        """What would have been seen of a backend in this tier."""
        if isinstance(seen.sample, NoData) or not self.without:
            return seen
        hidden = dict.fromkeys(self.hidden, _HIDDEN)
        return replace(seen, sample=replace(seen.sample, **hidden))  # type: ignore[arg-type]


_PROBE = "memory_"
_WAITING = ("psi_", "run_queue_")

_STEAL = "cpu_steal_"
"""0 in the lab whatever the neighbour takes, where a hypervisor would report it."""

PROC = Tier("proc", "/proc alone", without=(*_WAITING, _STEAL, _PROBE))
PSI = Tier("psi", "+ PSI and run-queue wait", without=(_PROBE,))
PROBE = Tier("probe", "+ memory probe", without=())

TIERS: tuple[Tier, ...] = (PROC, PSI, PROBE)
"""From least to most; the last one hides nothing, so it is the data as recorded."""


def tiers_of(session: Session) -> tuple[Tier, ...]:
    """The tiers that a session can stand for."""
    return TIERS if session.guest == "shared" else (PROC,)
