"""What a slow interval looks like, and what a neighbour would take by it alone.

The paper's second step (2.3.2): the tree tells the resource, and what the VM shows of its own doing
comes before it.  Whether load moves for it is not decided here (:mod:`dial.controller.engage`).
"""

from __future__ import annotations

from dial.classifier import Path, Symptom, leaf, own, symptom_of
from dial.controller.finding import Finding, Why
from dial.controller.look import Look, as_dear_for_being_few, reading_of, used_part
from dial.controller.policy import Policy
from dial.controller.siblings import Siblings
from dial.estimator import RhoBg
from dial.types import Cause, NoData

_SHOWN_BY_THEIR_READING = frozenset({Cause.NET, Cause.LLC})
"""Causes that have no symptom beside what rho_bg is estimated from.  Of the cache that is the CPU
time a request itself.  The time to connect is spent in the same queue as T_x, by fewer packets: in
the seconds of a probe it was 0.87 to 1.35 of the quiet one beside a neighbour that took 0.7, and
0.86 to 1.28 when that had gone, where T_x was 16 to 34 ms and 6 to 10 ms."""

_NO_LINK = "requests cost more CPU time, which no link makes them"
"""Why it is the cache: who waits for memory is slower to accept a connection as well."""


def find_cause(policy: Policy, look: Look, siblings: Siblings | None = None) -> Finding:
    """Classify an interval that is slower than expected, and estimate what a neighbour takes.

    Parameters
    ----------
    policy : the strategies.
    look : the backend's interval.
    siblings : what its siblings suffer, if it is one of those that likely are slow.
    """
    if not look.heard and isinstance(sample := look.seen.sample, NoData):
        why = (f"cannot be classified: {sample.reason}",)
        return Finding(Cause.UNKNOWN, NoData("the cause is unknown"), why)
    cause, path = cause_of(policy, look)
    if cause is Cause.NET and siblings and _dearer_than_siblings(policy, look, siblings):
        cause, path = cache_if_dear(policy, look, cause, path)
    if not cause.costs_capacity:
        return Finding(cause, NoData(f"no neighbour: the cause is {cause}"), path)
    alone = lost_by(policy, look, cause)
    return Finding(cause, alone, path, symptom_beside(policy, look, cause))


def dearer(look: Look, rho_bg: float) -> float:
    """CPU time of a request over what it is beside a neighbour that takes so much of the cache."""
    return (1.0 - rho_bg) * look.features.number("cpu_time_ratio")


def is_dear(policy: Policy, look: Look) -> bool:
    """Whether requests are dear enough to move load for, beyond what being few explains."""
    return dearer(look, policy.guards.engage_rho_bg) >= as_dear_for_being_few(look)


def cache_if_dear(policy: Policy, look: Look, cause: Cause, path: Why) -> tuple[Cause, Why]:
    """The class and its path; the network's is the cache's where requests are dear."""
    if cause is Cause.NET and is_dear(policy, look):
        return Cause.LLC, (*path, _NO_LINK)
    return cause, path


def _dearer_than_siblings(policy: Policy, look: Look, siblings: Siblings) -> bool:
    beside = siblings.by_cpu_time(look.row)
    return not isinstance(beside, NoData) and beside.exceeds(policy.guards.engage_rho_bg)


def cause_of(policy: Policy, look: Look, held: RhoBg | None = None) -> tuple[Cause, Why]:
    """The class of an interval, and what it was told by: the tree's, or one of its own doing.

    Parameters
    ----------
    policy : the strategies.
    look : the backend's interval.
    held : the capacity that is lost by what is known already, for an interval without T_x.
    """
    cause, path = leaf(policy.tree, look.features.number), Path(policy.tree, look.features)
    least = policy.guards.engage_rho_bg
    if not own.any_excess(look.features.number, least):
        return cause, (path,)
    lost = lost_by(policy, look, Cause.INTRA_APP)
    if isinstance(lost, NoData) and held is not None:
        lost = held
    found = own.own_cause(
        look.features,
        lost if isinstance(lost, NoData) else lost.value,
        used_part(look.seen),
        hardware=cause.costs_capacity,
        least_rho_bg=least,
    )
    sample = look.seen.sample
    if found is None or isinstance(sample, NoData):
        return cause, (path,)
    feature, top = own.FEATURES[found], sample.top_resource
    most = f", most for {top}" if found is Cause.INTRA_APP and not isinstance(top, NoData) else ""
    excess = f"{look.features[feature]:.2f} >= {own.least_excess(found, least):.2f}"
    return found, (f"{feature} {excess}: {own.WHY[found]}{most}", path)


def symptom_beside(policy: Policy, look: Look, cause: Cause) -> Symptom | None:
    """What the cause shows by, beside what rho_bg is estimated from."""
    if cause.is_own_doing:
        least = own.least_excess(cause, policy.guards.engage_rho_bg)
        return Symptom(own.FEATURES[cause], least).step(look.features)
    return None if cause in _SHOWN_BY_THEIR_READING else symptom_of(policy.tree, look.features)


def shown_by_log(policy: Policy, look: Look) -> Symptom | None:
    """What the tree's class shows by, where that is of the interval's own requests."""
    shown = symptom_of(policy.tree, look.features)
    return shown if shown is not None and shown.is_of_the_log else None


def lost_by(policy: Policy, look: Look, cause: Cause) -> RhoBg | NoData:
    """The capacity that is lost, by this interval alone."""
    reading = reading_of(policy, look, cause)
    return reading if isinstance(reading, NoData) else policy.tracker.begin(reading)
