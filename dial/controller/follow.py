"""A neighbour that was found: refined while it is there, ended when it has gone or never was."""

from __future__ import annotations

from dataclasses import replace

from dial.classifier import own
from dial.controller.engage import cause_of, symptom_beside
from dial.controller.finding import Finding
from dial.controller.guards import least_stay_ticks
from dial.controller.look import Look, drains, reading_of
from dial.controller.policy import Policy
from dial.controller.siblings import WINDOW_INTERVALS, Comparison, ControlGroups
from dial.controller.state import BackendState, Contention
from dial.detector import Signal
from dial.estimator import Reading, RhoBg, departed
from dial.types import Cause, NoData

_SURELY = 1.0
"""Standard deviations of the estimate by which load may be split as if the neighbour took more."""

_DECAY = 0.001
"""Of rho_bg in a tick, where a symptom says whether the neighbour is there: 0.06 in a minute.
With a backend's load the effect of a neighbour on T_x fades, and with it the estimate, but not the
neighbour: of one that took 0.66 of a disk the estimate fell to 0.25 in half a minute."""


def follow(
    policy: Policy,
    known: BackendState,
    contention: Contention,
    look: Look,
    signal: Signal,
    *,
    groups: ControlGroups,
    tick: int,
) -> tuple[BackendState, Finding, Contention | None]:
    """Refine the estimate; the contention ends when the neighbour has surely gone.

    Where load was moved before the cause was known, it becomes known when two intervals in a
    row look like the same.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of the backend.
    contention : its neighbour.
    look : its interval.
    signal : what the detector says of it.
    groups : every backend's siblings.
    tick : its number.
    """
    if contention.symptom is not None:
        contention = replace(contention, symptom=contention.symptom.step(look.features))
    if contention.cause is Cause.UNKNOWN:
        known, contention = _name(policy, known, contention, look)
    reading = reading_of(policy, known, look, contention.cause)
    stays = tick - contention.since_tick < least_stay_ticks(
        contention.returns, 10 * policy.guards.return_ticks
    )
    if not stays and _refuted(policy, contention, look, groups, tick=tick):
        why = "its siblings are as slow: load is no better there"
        return known, Finding(Cause.LOAD, contention.rho_bg, (why,)), None
    if isinstance(reading, NoData):
        if not stays and tick - contention.read_tick >= policy.guards.expire_ticks:
            why = f"nothing was known of it for {policy.guards.expire_ticks} ticks"
            return known, Finding(Cause.NONE, contention.rho_bg, (why,)), None
        return known, _held(contention), contention
    if reading.percentile is not None and drains(look.seen):
        return known, _held(contention), contention
    gone = _gone(policy, contention, reading, signal)
    if gone >= _enough(policy) and not stays:
        return known, _ended(contention), None
    rho_bg = _refine(policy, contention.rho_bg, reading)
    if stays and rho_bg.mean < contention.rho_bg.mean:
        # It has only gone for a moment before: load stays away as from one that is there.
        rho_bg = contention.rho_bg
    contention = replace(
        contention,
        rho_bg=rho_bg,
        in_use=max(_in_use(policy, contention, rho_bg), _asked(look)),
        gone=min(gone, _enough(policy)),
        read_tick=tick,
    )
    return known, _held(contention), contention


def _refuted(
    policy: Policy, contention: Contention, look: Look, groups: ControlGroups, *, tick: int
) -> bool:
    """Whether all are slow, so that load was moved away from one for nothing."""
    if _asked(look) > 0.0:
        return False  # it is not by T_x that it asks
    if tick - contention.since_tick <= WINDOW_INTERVALS:
        # What is known of the siblings may be of the time before.
        return False
    siblings = groups.typical(look.seen.name, contention.cause)
    if isinstance(siblings, NoData):
        return False
    return Comparison(contention.rho_bg, siblings).refutes(policy.guards.engage_rho_bg)


def _ended(contention: Contention) -> Finding:
    if contention.cause.is_own_doing:
        why = (own.ENDED[contention.cause],)
        return Finding(Cause.NONE, NoData("no neighbour was there"), why)
    return Finding(Cause.NONE, contention.rho_bg, ("the neighbour is gone",))


def _held(contention: Contention) -> Finding:
    return Finding(contention.cause, contention.rho_bg, contention.evidence)


def _name(
    policy: Policy, known: BackendState, contention: Contention, look: Look
) -> tuple[BackendState, Contention]:
    """Find the cause of a contention that was begun without."""
    if isinstance(look.seen.sample, NoData):
        return known, contention
    cause, path = cause_of(policy, known, look)
    cpu_time = look.apparent.cpu_time
    # Of a backend with little load a request takes a little more CPU time for that alone.
    cached = not isinstance(cpu_time, NoData) and cpu_time.mean >= policy.guards.engage_rho_bg
    named = cause.costs_capacity and (cached or cause is not Cause.LLC)
    if named and cause is known.suspect:
        symptom = symptom_beside(policy, look, cause)
        contention = replace(contention, cause=cause, evidence=path, symptom=symptom, gone=0.0)
    return replace(known, suspect=cause), contention


def _enough(policy: Policy) -> float:
    if policy.strategies.release == "t_x":
        return policy.band.successive
    return policy.guards.release_evidence


def _gone(policy: Policy, contention: Contention, reading: Reading, signal: Signal) -> float:
    """The evidence that the neighbour has gone, after this interval."""
    if policy.strategies.release == "t_x":
        return 0.0 if signal.above else contention.gone + 1.0
    if _shows(contention):
        return 0.0
    # One that takes little is still there; less than this would not have been noticed.
    now = contention.rho_bg.value if contention.symptom is None else contention.in_use
    strength = max(now, policy.guards.engage_rho_bg)
    return departed(
        contention.gone,
        reading,
        strength,
        model_error=policy.tracker.model_error,
        enough=policy.guards.release_evidence,
    )


def _refine(policy: Policy, past: RhoBg, reading: Reading) -> RhoBg:
    """The running estimate after this interval."""
    if policy.strategies.estimate == "interval":
        return policy.tracker.begin(reading)
    return policy.tracker.step(past, reading)


def _in_use(policy: Policy, contention: Contention, rho_bg: RhoBg) -> float:
    """Up with the estimate at once; down when it is surely lower, or slowly beside a symptom."""
    if policy.strategies.estimate == "interval":
        return rho_bg.value
    if contention.symptom is not None:
        return max(rho_bg.value, contention.in_use - _DECAY)
    surely = min(max(rho_bg.mean + _SURELY * rho_bg.sd, 0.0), 1.0)
    return max(rho_bg.value, min(contention.in_use, surely))


def _asked(look: Look) -> float:
    part = look.features[own.ASKED]
    return 0.0 if isinstance(part, NoData) else part


def _shows(contention: Contention) -> bool:
    return contention.symptom is not None and contention.symptom.shows
