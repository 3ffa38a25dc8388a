"""A neighbour that was found: refined while it is there, ended when it has gone or never was."""

from __future__ import annotations

import math
from dataclasses import replace

from dial.classifier import Symptom, own
from dial.controller.classify import (
    cache_if_dear,
    cause_of,
    dearer,
    is_dear,
    lost_by,
    shown_by_log,
    symptom_beside,
)
from dial.controller.comparison import Comparison
from dial.controller.finding import Finding, in_words
from dial.controller.guards import stays
from dial.controller.history import WINDOW_INTERVALS
from dial.controller.look import Look, drains, reading_of
from dial.controller.policy import Policy
from dial.controller.siblings import Siblings
from dial.controller.state import Contention
from dial.estimator import FEWEST_INTERVALS, Reading, RhoBg, departed
from dial.types import Cause, NoData

_SURELY = 1.0
"""Standard deviations of the estimate by which load may be split as if the neighbour took more."""

_SAMPLE_AGE_S = 1.0
"""Of the newest, at most: agents post once a second, whenever they like."""

_NEARLY_ALL = 0.9
"""Of a sample, or of an interval."""

_PAUSES = frozenset({Cause.LLC, Cause.UNKNOWN})
"""Causes of which a neighbour may be there and take nothing for a while; of the unknown it may."""

_LONGEST_PAUSE_S = 10.0
"""A hypervisor moves cores from one cache to another: beside a neighbour that never rested requests
cost what they cost in quiet times for 3, 5 and 9 s of 45, in three runs, and then twice as much
again.  Half-way through the victim has its load, as a probe."""

_LEAST_EXPLAINED = 0.5
"""Of what is held of a neighbour in the cache, by what its victim's requests cost: who waits for
memory is slower by that, and by nothing else.  It was 0.7 to 1.6 in 19 of the 20 times that the
lab's recordings have the cache named, and 0.5 once.  Beside a neighbour on the link it was 0.3, in
one of five runs: the requests of two intervals, 15 each, cost 1.3 times as much for being few."""

_DECAY = 0.001
"""Of rho_bg in a tick, where a symptom says whether the neighbour is there: 0.06 in a minute.
With a backend's load the effect of a neighbour on T_x fades, and with it the estimate, but not the
neighbour: of one that took 0.66 of a disk the estimate fell to 0.25 in half a minute."""


def follow(
    policy: Policy,
    contention: Contention,
    look: Look,
    *,
    above: bool,
    suspect: Cause | None,
    siblings: Siblings,
    tick: int,
) -> tuple[Finding, Contention | None, Cause | None]:
    """Refine the estimate; the contention ends when the neighbour has surely gone.

    Where load was moved before the cause was known, it becomes known when two intervals in a
    row look like the same; one in which too few requests accuse the cache does not count.

    Parameters
    ----------
    policy : the strategies.
    contention : the backend's neighbour.
    look : its interval.
    above : whether T_x is above what is expected.
    suspect : class of the interval before, while the cause is not known.
    siblings : what its siblings suffer.
    tick : its number.

    Returns
    -------
    Finding
        What is held of the backend.
    Contention or None
        The neighbour, or that it has gone.
    Cause or None
        Class of this interval, while the cause is not known.
    """
    contention = replace(contention, loaded_s=_loaded_s(contention, look))
    under_load = _sampled_under_load(contention, look)
    if contention.symptom is not None:
        symptom = _seen(contention, contention.symptom, look, under_load=under_load)
        contention = replace(contention, symptom=symptom)
    if contention.cause is Cause.UNKNOWN:
        contention, suspect = _name(policy, contention, look, suspect, under_load=under_load)
    reading = reading_of(policy, look, contention.cause, contention.rho_bg)
    has_to_stay = stays(policy.guards, contention, tick)
    if not has_to_stay and _refuted(policy, contention, look, siblings, tick=tick):
        why = "its siblings are as slow: load is no better there"
        return Finding(Cause.LOAD, contention.rho_bg, (why,)), None, suspect
    if isinstance(reading, NoData):
        if not has_to_stay and tick - contention.read_tick >= policy.guards.expire_ticks:
            why = f"nothing was known of it for {policy.guards.expire_ticks} ticks"
            return Finding(Cause.NONE, contention.rho_bg, (why,)), None, suspect
        return _held(contention), contention, suspect
    if reading.percentile is not None and drains(look):
        return _held(contention), contention, suspect
    gone = _gone(policy, contention, look, reading, above=above)
    # What it was named by is heard before it is held to have gone.
    unheard = contention.symptom is not None and not contention.symptom.latest and not under_load
    if gone >= _enough(policy) and not has_to_stay and not unheard:
        return _ended(contention), None, suspect
    rho_bg = _refine(policy, contention.rho_bg, reading)
    if has_to_stay and rho_bg.mean < contention.rho_bg.mean:
        # It has only gone for a moment before: load stays away as from one that is there.
        rho_bg = contention.rho_bg
    contention = replace(
        contention,
        rho_bg=rho_bg,
        in_use=max(_in_use(policy, contention, rho_bg, gone), look.asked),
        gone=min(gone, _enough(policy)),
        read_tick=tick,
    )
    return _held(contention), contention, suspect


def _loaded_s(contention: Contention, look: Look) -> float | None:
    """How long the backend has had load again; ``None`` if it was never drained."""
    if look.seen.server.weight == 0:
        return 0.0
    return None if contention.loaded_s is None else contention.loaded_s + look.looks.interval_s


def _sampled_under_load(contention: Contention, look: Look) -> bool:
    """Whether the agent's sample is of a time in which the backend had load.

    Samples end before the interval does, and are longer than a short one.  Of a disk that was
    probed, the first two intervals of a second showed 0.14 and 0.83 to 0.91 of the I/O pressure
    that their requests would explain in quiet times, the third 2.2 to 2.6: only that one's sample
    was of the probe alone.
    """
    sample, loaded_s = look.seen.sample, contention.loaded_s
    if loaded_s is None or isinstance(sample, NoData):
        return True
    return loaded_s >= _NEARLY_ALL * (sample.interval_s + _SAMPLE_AGE_S)


def _seen(contention: Contention, symptom: Symptom, look: Look, *, under_load: bool) -> Symptom:
    """The symptom after this interval; without load it is nothing that could show."""
    if under_load or contention.cause.is_own_doing:
        return symptom.step(look.features)
    return symptom.anew() if contention.loaded_s == 0.0 else symptom


def _refuted(
    policy: Policy,
    contention: Contention,
    look: Look,
    siblings: Siblings,
    *,
    tick: int,
) -> bool:
    """Whether all are slow, so that load was moved away from one for nothing."""
    if look.asked > 0.0:
        return False  # it is not by T_x that it asks
    if tick - contention.since_tick <= WINDOW_INTERVALS:
        # What is known of the siblings may be of the time before.
        return False
    typical = siblings.typical(look.row, contention.cause)
    if isinstance(typical, NoData):
        return False
    return Comparison(contention.rho_bg, typical).refutes(policy.guards.engage_rho_bg)


def _ended(contention: Contention) -> Finding:
    if contention.cause.is_own_doing:
        why = (own.ENDED[contention.cause],)
        return Finding(Cause.NONE, NoData("no neighbour was there"), why)
    return Finding(Cause.NONE, contention.rho_bg, ("the neighbour is gone",))


def _held(contention: Contention) -> Finding:
    return Finding(contention.cause, contention.rho_bg, contention.evidence)


def _name(
    policy: Policy,
    contention: Contention,
    look: Look,
    suspect: Cause | None,
    *,
    under_load: bool,
) -> tuple[Contention, Cause | None]:
    """Find the cause of a contention that was begun without."""
    if not look.heard:
        return contention, suspect
    cause, path = cause_of(policy, look, contention.rho_bg)
    if not under_load and not cause.is_own_doing:
        return contention, suspect
    # Requests cost enough CPU time for the backend to be slow for that alone.
    by_cost = dearer(look, _LEAST_EXPLAINED * contention.rho_bg.mean) >= 1.0
    if by_cost:
        cause, path = cache_if_dear(policy, look, cause, path)
    if cause is Cause.LLC and not (by_cost and _surely_cache(policy, look)):
        return contention, suspect
    by_log = shown_by_log(policy, look)
    if cause is Cause.NET and by_log is not None and not by_log.is_clear:
        # Of few connections the time to connect says little: beside a neighbour in the cache it was
        # 0.5 to 2.3 times the usual.
        return contention, suspect
    # What is measured inside the VM need not look the same twice.
    if cause.costs_capacity and (cause is suspect or cause.is_own_doing):
        symptom = symptom_beside(policy, look, cause)
        contention = replace(
            contention, cause=cause, evidence=in_words(path), symptom=symptom, gone=0.0
        )
    return contention, cause


def _surely_cache(policy: Policy, look: Look) -> bool:
    """Whether requests need more CPU time each, and not for being few.

    Of a backend with little load they need a little more for that alone, and with next to none a
    lot: what the VM does for itself is then booked to the few.  But none takes longer for it: where
    few requests may be as dear, they have to be slow as well.
    """
    if not look.usable or not look.window("requests") or math.isnan(look.window("t_x_ms")):
        return False
    if is_dear(policy, look):
        return True
    slower = lost_by(policy, look, Cause.UNKNOWN)
    if isinstance(slower, NoData):
        return False
    least = policy.guards.engage_rho_bg
    return dearer(look, least) >= 1.0 and slower.mean >= max(least, slower.sd)


def _enough(policy: Policy) -> float:
    if policy.strategies.release == "t_x":
        return policy.band.successive
    return policy.guards.release_evidence


def _full_interval_s(policy: Policy, look: Look) -> float:
    """How long an interval is, were it not looked at before it is over."""
    return policy.interval_s or look.looks.interval_s


def _intervals(policy: Policy, look: Look, reading: Reading) -> float:
    """How many intervals the reading is of.

    A look in the middle of one must not make two of it; and a T_x that waited for enough requests
    is of all the intervals that it waited for.
    """
    interval_s, full_s = look.looks.interval_s, _full_interval_s(policy, look)
    requests = look.window("requests")
    # Ticks are some milliseconds early or late.
    part = 1.0 if interval_s >= _NEARLY_ALL * full_s else interval_s / full_s
    if reading.percentile is None or not requests:
        return part
    return part * max(1.0, look.window("t_x_requests") / requests)


def _gone(
    policy: Policy, contention: Contention, look: Look, reading: Reading, *, above: bool
) -> float:
    """The evidence that the neighbour has gone, after this interval."""
    intervals = _intervals(policy, look, reading)
    if policy.strategies.release == "t_x":
        return 0.0 if above else contention.gone + min(intervals, 1.0)
    if _shows(contention):
        return 0.0
    # One that takes little is still there; less than this would not have been noticed.
    lasts = contention.symptom is not None or contention.cause in _PAUSES
    now = contention.in_use if lasts else contention.rho_bg.value
    strength = max(now, policy.guards.engage_rho_bg)
    gone = departed(
        contention.gone,
        reading,
        strength,
        model_error=policy.tracker.model_error,
        enough=policy.guards.release_evidence,
        intervals=intervals,
        fewest_intervals=_fewest_intervals(contention.cause, _full_interval_s(policy, look)),
    )
    # Slower than expected it is less of a neighbour perhaps, but not none.
    return min(gone, contention.gone) if above else gone


def _fewest_intervals(cause: Cause, interval_s: float) -> int:
    """How many have to speak for a neighbour having gone: more than it pauses for."""
    if cause not in _PAUSES:
        return FEWEST_INTERVALS
    return max(FEWEST_INTERVALS, 1 + round(_LONGEST_PAUSE_S / interval_s))


def _refine(policy: Policy, past: RhoBg, reading: Reading) -> RhoBg:
    """The running estimate after this interval."""
    if policy.strategies.estimate == "interval":
        return policy.tracker.begin(reading)
    return policy.tracker.step(past, reading)


def _in_use(policy: Policy, contention: Contention, rho_bg: RhoBg, gone: float) -> float:
    """Up with the estimate at once; down when it is surely lower, or slowly beside a symptom.

    Not at all while the neighbour may only pause: it has gone, or is there as before.  The paper
    knows none of this: it splits load by what it read last.
    """
    if policy.strategies.estimate == "interval":
        return rho_bg.value
    if contention.cause in _PAUSES and gone > 0.0:
        return max(rho_bg.value, contention.in_use)
    if contention.symptom is not None:
        return max(rho_bg.value, contention.in_use - _DECAY)
    surely = min(max(rho_bg.mean + _SURELY * rho_bg.sd, 0.0), 1.0)
    return max(rho_bg.value, min(contention.in_use, surely))


def _shows(contention: Contention) -> bool:
    return contention.symptom is not None and contention.symptom.shows
