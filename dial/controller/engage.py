"""Whether a backend that is slow has a neighbour that load is to be moved away from.

The classifier names a cause; that its word is acted on needs more: the detector is sure, the
backend is surely slower than its siblings, and what the neighbour takes is worth moving load for.
Where the backend is so much slower that load is better elsewhere whatever the cause, load moves
before that is known.
"""

from __future__ import annotations

from dial.classifier import Symptom, classify, deferral, symptom_of
from dial.controller.finding import Finding
from dial.controller.look import Look, reading_of
from dial.controller.policy import Policy
from dial.controller.siblings import SURE_ALONE_DEVIATIONS, Comparison, ControlGroups
from dial.controller.state import BackendState, Contention
from dial.detector import Signal
from dial.estimator import RhoBg
from dial.queueing import MM1, RHO_MAX
from dial.types import Cause, NoData

_LEAST_INTERVALS = 2

_AGREES_DEVIATIONS = 2.0
"""By how many standard errors T_x has to be higher where the balancer's choice is the witness:
alone it would be chance in one of forty comparisons."""


def find_cause(policy: Policy, known: BackendState, look: Look) -> Finding:
    """Classify an interval that is slower than expected, and estimate what a neighbour takes."""
    sample = look.seen.sample
    if isinstance(sample, NoData):
        why = (f"cannot be classified: {sample.reason}",)
        return Finding(Cause.UNKNOWN, NoData("the cause is unknown"), why)
    cause, path = cause_of(policy, known, look)
    if not cause.costs_capacity:
        return Finding(cause, NoData(f"no neighbour: the cause is {cause}"), path)
    alone = lost_by(policy, known, look, cause)
    return Finding(cause, alone, path, symptom_beside(policy, look, cause))


def cause_of(policy: Policy, known: BackendState, look: Look) -> tuple[Cause, tuple[str, ...]]:
    """The class of an interval, and what it was told by: the tree's, or that it blocks itself."""
    cause, path = classify(policy.tree, look.features)
    excess = look.features[deferral.FEATURE]
    lost = lost_by(policy, known, look, Cause.INTRA_APP)
    intra_app = deferral.is_intra_app(
        excess,
        lost if isinstance(lost, NoData) else lost.value,
        hardware=cause.costs_capacity,
        least_rho_bg=policy.guards.engage_rho_bg,
    )
    if not intra_app or isinstance(look.seen.sample, NoData):
        return cause, path
    top = look.seen.sample.top_resource
    waited = "" if isinstance(top, NoData) else f", most for {top}"
    why = f"{deferral.FEATURE} {excess:.2f} >= {deferral.LEAST_EXCESS:.2f}: it waits for itself"
    return Cause.INTRA_APP, (why + waited, *path)


def symptom_beside(policy: Policy, look: Look, cause: Cause) -> Symptom | None:
    """What the cause shows by, beside what rho_bg is estimated from."""
    if cause is Cause.INTRA_APP:
        return Symptom(deferral.FEATURE, deferral.LEAST_EXCESS).step(look.features)
    return None if cause is Cause.LLC else symptom_of(policy.tree, look.features)


def lost_by(policy: Policy, known: BackendState, look: Look, cause: Cause) -> RhoBg | NoData:
    """The capacity that is lost, by this interval alone."""
    reading = reading_of(policy, known, look, cause)
    return reading if isinstance(reading, NoData) else policy.tracker.begin(reading)


def engage(
    policy: Policy,
    known: BackendState,
    look: Look,
    found: Finding,
    signal: Signal,
    *,
    groups: ControlGroups,
    tick: int,
) -> tuple[Finding, Contention | None]:
    """Make a contention of a finding, if it is sure enough and worth moving load for.

    Sure enough: the detector says so, at half its threshold where the backend is far slower than
    its siblings, and the class is that of the suspicious interval before too.  What is expected is
    exceeded by chance or by load of one's own as well, and then the class is whatever the noise of
    that interval looks like; it rarely looks the same twice.

    Worth it: rho_bg is large enough, and the backend is surely slower than its siblings by as
    much.  Where all are slow alike there is nobody to move load to, and no neighbour either:
    neighbours do not arrive on all hosts at once.  It is the service's own load then: more of
    it, heavier requests, or something slow that all depend on.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of the backend.
    look : its interval.
    found : what the classifier makes of it.
    signal : what the detector makes of it.
    groups : every backend's siblings.
    tick : its number.
    """
    beside = groups.by_t_x(look.seen.name, known.uneasy_intervals)
    if isinstance(beside, NoData):
        # Nothing to compare it with, so no load moves; that it is slow is no less true.
        slow = signal.detected and found.cause is Cause.UNKNOWN
        cause = Cause.UNKNOWN if slow else Cause.NONE
        return Finding(cause, found.rho_bg, (*found.why, beside.reason)), None
    # An application that says so itself need not look the same twice.
    settled = found.cause is Cause.INTRA_APP or (
        found.cause is known.suspect and found.cause is not Cause.UNKNOWN
    )
    by_rate = groups.by_rate(look.seen.name, known.uneasy_intervals)
    given_less = _passed_over(policy, beside, by_rate)
    far = bool(given_less) or beside.exceeds(policy.guards.blind_rho_bg, alone=True)
    # Of one interval alone T_x and its siblings' say next to nothing, however far apart they are.
    sure = signal.detected or (signal.likely and far and known.uneasy_intervals >= _LEAST_INTERVALS)
    if sure and far and not settled:
        # Far slower than its siblings: load leaves it, whatever the cause.
        far_slower = "far slower than its siblings: load moves before the cause is known"
        why = (*found.why, *given_less, far_slower)
        blind = Finding(Cause.UNKNOWN, beside.excess, why)
        return blind, _contention(policy, known, blind, beside.excess, tick=tick)
    if not found.cause.costs_capacity:
        cause = found.cause if sure else Cause.NONE
        return Finding(cause, found.rho_bg, found.why), None
    least = policy.guards.engage_rho_bg
    slower = beside.exceeds(least, _scale(policy, known, look, beside, found.cause))
    shared = beside.shared
    if found.cause is Cause.LLC:
        by_cpu_time = groups.by_cpu_time(look.seen.name, known.uneasy_intervals)
        if isinstance(by_cpu_time, NoData):
            return Finding(Cause.NONE, found.rho_bg, (*found.why, by_cpu_time.reason)), None
        slower, shared = slower and by_cpu_time.exceeds(least), by_cpu_time.shared
    cause = Cause.NONE
    if not sure:
        why_not = f"looks like {found.cause}; so far that is not enough"
    elif not settled:
        why_not = f"looks like {found.cause}, which the interval before did not"
    elif isinstance(found.rho_bg, NoData):
        why_not = f"looks like {found.cause}, but rho_bg is unknown: {found.rho_bg.reason}"
    elif found.rho_bg.value < least:
        why_not = f"looks like {found.cause}, but rho_bg {found.rho_bg.value:.2f} < {least:g}"
    elif not slower and shared:
        # What all wait for, such as a row of one database, needs no neighbour and no load.
        cause = found.cause if found.cause is Cause.INTRA_APP else Cause.LOAD
        why_not = f"looks like {found.cause}, but its siblings are as slow"
    elif not slower:
        why_not = f"looks like {found.cause}, but it is not sure to be slower than its siblings"
    else:
        return found, _contention(policy, known, found, found.rho_bg, tick=tick)
    return Finding(cause, found.rho_bg, (*found.why, why_not)), None


def _passed_over(policy: Policy, beside: Comparison, by_rate: RhoBg | NoData) -> tuple[str, ...]:
    """What the balancer's choice says, where it shows a far slower backend and T_x agrees."""
    if isinstance(by_rate, NoData):
        return ()
    guards, excess = policy.guards, beside.excess
    surely = by_rate.mean >= max(guards.blind_rho_bg, SURE_ALONE_DEVIATIONS * by_rate.sd)
    if surely and excess.mean >= max(guards.engage_rho_bg, _AGREES_DEVIATIONS * excess.sd):
        return (f"the balancer gives it {1.0 - by_rate.mean:.2f} of what it usually gives it",)
    return ()


def _contention(
    policy: Policy, known: BackendState, found: Finding, rho_bg: RhoBg, *, tick: int
) -> Contention:
    last, returns = known.release, 0
    if last is not None and tick - last.tick <= policy.guards.return_ticks:
        returns = last.returns + 1
    return Contention(
        found.cause,
        rho_bg,
        in_use=rho_bg.value,
        gone=0.0,
        since_tick=tick,
        read_tick=tick,
        returns=returns,
        evidence=found.why,
        symptom=found.symptom,
    )


def _scale(
    policy: Policy, known: BackendState, look: Look, beside: Comparison, cause: Cause
) -> float:
    """What the excess by M/M/1's curve has to be multiplied with on the curve of ``cause``."""
    rho_fg, excess = look.rho_fg, beside.excess.mean
    plain, shaped = known.curve.curve(), known.curve.curve(policy.shapes.get(cause, MM1))
    if isinstance(plain, NoData) or isinstance(shaped, NoData) or isinstance(rho_fg, NoData):
        return 1.0
    if excess <= 0.0:
        return 1.0

    def by_shape(rho: float) -> float:
        return shaped.utilisation(plain.t_x_ms(min(max(rho, 0.0), RHO_MAX)))

    # At its mean T_x, and at the one that it would have were it as slow as its siblings.
    slow = rho_fg + beside.own.mean
    return (by_shape(slow) - by_shape(slow - excess)) / excess
