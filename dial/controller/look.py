"""One backend's interval beside its own quiet past: all that is computed of it, once.

What is made of it is another matter: :mod:`dial.controller.judge` decides whether it is slow
and why, :mod:`dial.controller.siblings` whether others are as slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dial.classifier import deferral, features
from dial.controller.passed_over import PassedOver
from dial.controller.policy import Policy
from dial.controller.siblings import LONG, Apparent
from dial.controller.state import BackendState
from dial.estimator import SLOWDOWN, Reading, RhoBg, peak_rps, utilisation
from dial.queueing import MM1, TailCurve
from dial.types import BackendObservation, Cause, Measured, NoData

_DRAINS = 1.25
"""With 25 requests a second that is chance in one of ten intervals, which then are not read; beside
a backlog that load has left it is 1.5 to 5."""

_OUT = NoData("the balancer does not use it")


@dataclass(frozen=True, slots=True)
class Look:
    """A backend in one interval.

    Attributes
    ----------
    seen
        What was observed.
    rho_fg
        The backend's own utilisation.
    features
        By name (:data:`dial.classifier.FEATURES`), and :data:`dial.classifier.deferral.FEATURE`.
    apparent
        What a neighbour would have to take to make it as slow as it is; ``NoData`` where the
        balancer does not use the backend, which then is nobody's sibling either.
    passed_over
        What the balancer gives it beside its siblings.
    """

    seen: BackendObservation
    rho_fg: Measured
    features: Mapping[str, Measured]
    apparent: Apparent
    passed_over: PassedOver | NoData


def look_at(
    policy: Policy, known: BackendState, seen: BackendObservation, given: PassedOver | NoData
) -> Look:
    """Compare an interval with what is known of the backend.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of the backend.
    seen : this tick's observation of it.
    given : what the balancer gave it in this tick.
    """
    rho_fg = own_utilisation(seen, peak_rps(known.peak, policy.peak_rps.get(seen.name)))
    found = features(known.baseline, seen.window, seen.sample, rho_fg)
    found[deferral.FEATURE] = _deferral_excess(known, seen)
    if not seen.server.usable:
        return Look(seen, rho_fg, found, Apparent(_OUT, _OUT), given)
    by_t_x = _response_time(known.curve.curve(), seen, rho_fg, policy.percentile)
    by_cpu_time = _cpu_time(seen, found["cpu_time_ratio"])
    alone = _alone(policy, by_t_x)
    apparent = Apparent(
        alone,
        _alone(policy, by_cpu_time),
        _relaxations(by_t_x, alone),
        _by_rate(policy, known, given),
    )
    return Look(seen, rho_fg, found, apparent, given)


def own_utilisation(seen: BackendObservation, peak: Measured) -> Measured:
    """rho_fg: the backend's rate over its peak, else as it is measured.

    The rate comes first although the CPU time is measured directly: samples and ticks do
    not begin together, and a neighbour in the cache makes each request use more CPU time,
    which is not the tenant's own doing.
    """
    if isinstance(peak, NoData):
        return utilisation(seen.sample)
    return min(1.0, seen.window.rate_per_s / peak)


def _deferral_excess(known: BackendState, seen: BackendObservation) -> Measured:
    if isinstance(seen.sample, NoData):
        return seen.sample
    return deferral.excess(seen.sample.deferral_fraction, known.baseline.deferral.value())


def drains(seen: BackendObservation) -> bool:
    """Whether the backend serves what waited: more requests end than arrive.

    Their response times are those of the load that they came with, not of the present one.
    """
    served, arrived = seen.window.served_per_s, seen.window.rate_per_s
    return not isinstance(served, NoData) and 0.0 < _DRAINS * arrived < served


def reading_of(policy: Policy, known: BackendState, look: Look, cause: Cause) -> Reading | NoData:
    """What rho_bg is estimated from: T_x, or of a cache in contention the CPU time a request."""
    if cause is Cause.LLC:
        return _cpu_time(look.seen, look.features["cpu_time_ratio"])
    curve = known.curve.curve(policy.shapes.get(cause, MM1))
    return _response_time(curve, look.seen, look.rho_fg, policy.percentile)


def _alone(policy: Policy, reading: Reading | NoData) -> RhoBg | NoData:
    """By this interval alone; Eq. 1's own error is the same on all backends."""
    return reading if isinstance(reading, NoData) else policy.sampling.begin(reading)


def _by_rate(policy: Policy, known: BackendState, given: PassedOver | NoData) -> RhoBg | NoData:
    if isinstance(given, NoData):
        return given
    if known.rates.learnt < policy.cusum.learn_intervals:
        return NoData("its usual part of the requests is not known yet")
    return given.rho_bg(known.rates.mean)


def _relaxations(reading: Reading | NoData, alone: RhoBg | NoData) -> float:
    if isinstance(reading, NoData) or isinstance(alone, NoData):
        return LONG
    return min(reading.relaxations(alone.mean), LONG)


def _cpu_time(seen: BackendObservation, slowdown: Measured) -> Reading | NoData:
    if isinstance(slowdown, NoData):
        return slowdown
    if not seen.window.requests:
        return NoData("no request ended, so there is no CPU time of one")
    return Reading(SLOWDOWN, slowdown, 0.0, seen.window.requests, percentile=None)


def _response_time(
    curve: TailCurve | NoData, seen: BackendObservation, rho_fg: Measured, percentile: float
) -> Reading | NoData:
    t_x_ms = seen.window.t_x_ms
    if isinstance(curve, NoData):
        return curve
    if isinstance(t_x_ms, NoData):
        return t_x_ms
    if isinstance(rho_fg, NoData):
        return rho_fg
    return Reading(curve, t_x_ms, rho_fg, seen.window.t_x_requests, percentile)
