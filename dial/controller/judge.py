"""One backend, one tick: is it slow, why, and how much does the neighbour take.

The paper's three steps in their order: detection (2.3.1), classification (2.3.2),
estimation (2.3.3).  A verdict that a neighbour is there, once made, is kept while load is
shifted away from the backend, because the symptoms it rests on fade with the load; it is
refined, and finally ended, by the estimate of rho_bg alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dial.classifier import classify, features
from dial.controller.policy import Policy
from dial.controller.siblings import Apparent, Comparison
from dial.controller.state import BackendState, Contention
from dial.detector import Signal
from dial.estimator import SLOWDOWN, Reading, RhoBg, learn_peak, peak_rps, utilisation
from dial.queueing import MM1, RHO_MAX, TailCurve
from dial.types import BackendObservation, Cause, Measured, NoData, Verdict


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is held of a backend in this tick."""

    cause: Cause
    rho_bg: RhoBg | NoData
    why: tuple[str, ...] = ()


def judge(
    policy: Policy,
    known: BackendState,
    seen: BackendObservation,
    *,
    found: Mapping[str, Measured],
    apparent: Apparent,
    siblings: Apparent,
    tick: int,
    quiet: bool,
) -> tuple[BackendState, Verdict]:
    """Detect, classify and estimate for one backend.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of this backend.
    seen : this tick's observation of it.
    found : its features (:func:`dial.classifier.features`).
    apparent, siblings : apparent rho_bg of this backend and of its typical sibling
        (:mod:`dial.controller.siblings`).
    tick : its number, for the record.
    quiet : no load is shifted anywhere, so this interval may be learnt from.
    """
    t_x_ms = seen.window.t_x_ms
    known, signal = _detect(policy, known, seen, learn=quiet)
    if quiet and signal.calm:
        known = _learn(policy, known, seen)
    peak = peak_rps(known.peak, policy.peak_rps.get(seen.name))
    rho_fg = _rho_fg(seen, peak)

    finding = _Finding(Cause.NONE, NoData("not slower than expected"))
    contention = known.contention
    if contention is not None:
        finding, contention = _follow(
            policy, known, contention, seen, signal, found=found, rho_fg=rho_fg
        )
        suspect = None
        known = replace(known, by_t_x=Comparison(), by_cpu_time=Comparison())
    else:
        calm = signal.calm and not isinstance(t_x_ms, NoData)
        suspect = None if calm else known.suspect
        known = replace(
            known,
            by_t_x=known.by_t_x.step(apparent.t_x, siblings.t_x, calm=calm),
            by_cpu_time=known.by_cpu_time.step(apparent.cpu_time, siblings.cpu_time, calm=calm),
        )
        if signal.above:
            finding = _find_cause(policy, known, seen, found, rho_fg)
            suspect = finding.cause
            finding, contention = _engage(policy, known, finding, signal, rho_fg=rho_fg, tick=tick)
    return replace(known, contention=contention, suspect=suspect), Verdict(
        cause=finding.cause,
        rho_fg=rho_fg,
        rho_bg=finding.rho_bg.value if isinstance(finding.rho_bg, RhoBg) else finding.rho_bg,
        peak_rps=peak,
        expected_t_x_ms=signal.upper_ms,
        evidence=tuple(_in_words(t_x_ms, signal, finding)),
    )


def _detect(
    policy: Policy, known: BackendState, seen: BackendObservation, *, learn: bool
) -> tuple[BackendState, Signal]:
    """Ask the detector that was chosen."""
    window = seen.window
    if policy.strategies.detect == "band":
        band, signal = policy.band.step(known.band, window.t_x_ms, learn=learn)
        return replace(known, band=band), signal
    rho_fg = _rho_fg(seen, peak_rps(known.peak, policy.peak_rps.get(seen.name)))
    cusum, signal = policy.cusum.step(
        known.cusum, window.t_x_ms, rho_fg, window.t_x_requests, learn=learn
    )
    return replace(known, cusum=cusum), signal


def _learn(policy: Policy, known: BackendState, seen: BackendObservation) -> BackendState:
    """Remember a quiet interval."""
    memory = policy.memory_intervals
    rate_per_s = seen.window.rate_per_s
    peak_state = learn_peak(
        known.peak, rate_per_s, utilisation(seen.sample), memory_intervals=memory
    )
    rho_fg = _rho_fg(seen, peak_rps(peak_state, policy.peak_rps.get(seen.name)))
    return replace(
        known,
        baseline=known.baseline.learn(seen.window, seen.sample, rho_fg, memory_intervals=memory),
        peak=peak_state,
        curve=known.curve.learn(seen.window.t_x_ms, rho_fg, memory_intervals=memory),
    )


def _rho_fg(seen: BackendObservation, peak: Measured) -> Measured:
    """The backend's own utilisation: its rate over its peak, else as it is measured.

    The rate comes first although the CPU time is measured directly: samples and ticks do
    not begin together, and a neighbour in the cache makes each request use more CPU time,
    which is not the tenant's own doing.
    """
    if isinstance(peak, NoData):
        return utilisation(seen.sample)
    return min(1.0, seen.window.rate_per_s / peak)


def _find_cause(
    policy: Policy,
    known: BackendState,
    seen: BackendObservation,
    found: Mapping[str, Measured],
    rho_fg: Measured,
) -> _Finding:
    """Classify an interval that is slower than expected, and estimate what a neighbour takes."""
    if isinstance(seen.sample, NoData):
        why = (f"cannot be classified: {seen.sample.reason}",)
        return _Finding(Cause.UNKNOWN, NoData("the cause is unknown"), why)
    cause, path = classify(policy.tree, found)
    if not cause.costs_capacity:
        return _Finding(cause, NoData(f"no neighbour: the cause is {cause}"), path)
    reading = _reading(policy, known, cause, seen, rho_fg=rho_fg, slowdown=found["cpu_time_ratio"])
    return _Finding(cause, _estimate(policy, reading), path)


def compare_with_quiet(
    policy: Policy, known: BackendState, seen: BackendObservation
) -> dict[str, Measured]:
    """The features of a backend's interval."""
    rho_fg = _rho_fg(seen, peak_rps(known.peak, policy.peak_rps.get(seen.name)))
    return features(known.baseline, seen.window, seen.sample, rho_fg)


def apparently(
    policy: Policy, known: BackendState, seen: BackendObservation, slowdown: Measured
) -> Apparent:
    """What a neighbour would have to take to make this backend as slow as it is.

    Whether there is one is another question: :mod:`dial.controller.siblings`.

    Parameters
    ----------
    policy, known, seen : as of :func:`judge`.
    slowdown : the feature ``cpu_time_ratio``.
    """
    rho_fg = _rho_fg(seen, peak_rps(known.peak, policy.peak_rps.get(seen.name)))
    readings = (
        _response_time(policy, known.curve.curve(), seen, rho_fg),
        _cpu_time(seen, slowdown),
    )
    # Eq. 1's own error is the same on all backends.
    tracker = replace(policy.tracker, model_error=0.0)
    return Apparent(*(r if isinstance(r, NoData) else tracker.begin(r) for r in readings))


def _reading(
    policy: Policy,
    known: BackendState,
    cause: Cause,
    seen: BackendObservation,
    *,
    rho_fg: Measured,
    slowdown: Measured,
) -> Reading | NoData:
    """The CPU time a request where a cache is in contention, else T_x."""
    if cause is not Cause.LLC:
        curve = known.curve.curve(policy.shapes.get(cause, MM1))
        return _response_time(policy, curve, seen, rho_fg)
    return _cpu_time(seen, slowdown)


def _cpu_time(seen: BackendObservation, slowdown: Measured) -> Reading | NoData:
    if isinstance(slowdown, NoData):
        return slowdown
    if not seen.window.requests:
        return NoData("no request ended, so there is no CPU time of one")
    return Reading(SLOWDOWN, slowdown, 0.0, seen.window.requests, percentile=None)


def _response_time(
    policy: Policy, curve: TailCurve | NoData, seen: BackendObservation, rho_fg: Measured
) -> Reading | NoData:
    t_x_ms = seen.window.t_x_ms
    if isinstance(curve, NoData):
        return curve
    if isinstance(t_x_ms, NoData):
        return t_x_ms
    if isinstance(rho_fg, NoData):
        return rho_fg
    return Reading(curve, t_x_ms, rho_fg, seen.window.t_x_requests, policy.percentile)


def _estimate(policy: Policy, reading: Reading | NoData) -> RhoBg | NoData:
    """The estimate of this interval alone, or which of its parts is missing."""
    return reading if isinstance(reading, NoData) else policy.tracker.begin(reading)


def _refine(policy: Policy, past: RhoBg, reading: Reading | NoData) -> RhoBg | NoData:
    """The running estimate after this interval."""
    if isinstance(reading, NoData) or policy.strategies.estimate == "interval":
        return _estimate(policy, reading)
    return policy.tracker.step(past, reading)


def _engage(
    policy: Policy,
    known: BackendState,
    found: _Finding,
    signal: Signal,
    *,
    rho_fg: Measured,
    tick: int,
) -> tuple[_Finding, Contention | None]:
    """Make a contention of a finding, if it is sure enough and worth moving load for.

    Sure enough: the detector says so, and the class is that of the suspicious interval before
    too.  What is expected is exceeded by chance or by load of one's own as well, and then the
    class is whatever the noise of that interval looks like; it rarely looks the same twice.

    Worth it: rho_bg is large enough, and the backend is surely slower than its siblings by as
    much.  Where all are slow alike there is nobody to move load to, and no neighbour either:
    neighbours do not arrive on all hosts at once.  It is the service's own load then: more of
    it, heavier requests, or something slow that all depend on.
    """
    if not found.cause.costs_capacity:
        return (found if signal.detected else replace(found, cause=Cause.NONE)), None
    least = policy.guards.engage_rho_bg
    slower = known.by_t_x.exceeds(least, _scale(policy, known, found.cause, rho_fg))
    shared = known.by_t_x.shared
    if found.cause is Cause.LLC:
        slower = slower and known.by_cpu_time.exceeds(least)
        shared = known.by_cpu_time.shared
    cause = Cause.NONE
    if not signal.detected:
        why_not = f"looks like {found.cause}; one interval is not enough"
    elif found.cause is not known.suspect:
        why_not = f"looks like {found.cause}, which the interval before did not"
    elif isinstance(found.rho_bg, NoData):
        why_not = f"looks like {found.cause}, but rho_bg is unknown: {found.rho_bg.reason}"
    elif found.rho_bg.value < least:
        why_not = f"looks like {found.cause}, but rho_bg {found.rho_bg.value:.2f} < {least:g}"
    elif not slower and shared:
        cause = Cause.LOAD
        why_not = f"looks like {found.cause}, but its siblings are as slow"
    elif not slower:
        why_not = f"looks like {found.cause}, but it is not sure to be slower than its siblings"
    else:
        contention = Contention(
            found.cause, found.rho_bg, calm_ticks=0, since_tick=tick, evidence=found.why
        )
        return found, contention
    return _Finding(cause, found.rho_bg, (*found.why, why_not)), None


def _scale(policy: Policy, known: BackendState, cause: Cause, rho_fg: Measured) -> float:
    """What the excess by M/M/1's curve has to be multiplied with on the curve of ``cause``."""
    apparent, excess = known.by_t_x.apparent, known.by_t_x.excess
    plain, shaped = known.curve.curve(), known.curve.curve(policy.shapes.get(cause, MM1))
    if isinstance(plain, NoData) or isinstance(shaped, NoData) or isinstance(rho_fg, NoData):
        return 1.0
    if isinstance(apparent, NoData) or isinstance(excess, NoData) or excess <= 0.0:
        return 1.0

    def by_shape(rho: float) -> float:
        return shaped.utilisation(plain.t_x_ms(min(max(rho, 0.0), RHO_MAX)))

    # At its mean T_x, and at the one that it would have were it as slow as its siblings.
    slow, alike = rho_fg + apparent, rho_fg + apparent - excess
    return (by_shape(slow) - by_shape(alike)) / excess


def _follow(
    policy: Policy,
    known: BackendState,
    contention: Contention,
    seen: BackendObservation,
    signal: Signal,
    *,
    found: Mapping[str, Measured],
    rho_fg: Measured,
) -> tuple[_Finding, Contention | None]:
    """Refine the estimate; the contention ends when it has been calm for long enough."""
    slowdown = found["cpu_time_ratio"]
    reading = _reading(policy, known, contention.cause, seen, rho_fg=rho_fg, slowdown=slowdown)
    rho_bg = _refine(policy, contention.rho_bg, reading)
    if isinstance(rho_bg, NoData):
        return _Finding(contention.cause, contention.rho_bg, contention.evidence), contention
    if policy.strategies.release == "t_x":
        is_calm, enough = not signal.above, policy.band.successive
    else:
        # Low, and sure enough not to be what load was moved for: of a few requests an
        # estimate of 0.06 +- 0.33 says nothing.
        is_calm = (
            rho_bg.value < policy.guards.release_rho_bg
            and rho_bg.mean + rho_bg.sd < policy.guards.engage_rho_bg
        )
        enough = policy.guards.release_intervals
    calm = contention.calm_ticks + 1 if is_calm else 0
    if calm >= enough:
        return _Finding(Cause.NONE, rho_bg, ("the neighbour is gone",)), None
    contention = replace(contention, rho_bg=rho_bg, calm_ticks=calm)
    return _Finding(contention.cause, rho_bg, contention.evidence), contention


def _in_words(t_x_ms: Measured, signal: Signal, finding: _Finding) -> list[str]:
    """The evidence a person would ask for."""
    if isinstance(t_x_ms, NoData):
        words = [f"T_x unknown: {t_x_ms.reason}"]
    elif isinstance(signal.upper_ms, NoData):
        words = [f"T_x {t_x_ms:.1f} ms; {signal.upper_ms.reason}"]
    else:
        words = [f"T_x {t_x_ms:.1f} ms, expected at most {signal.upper_ms:.1f}"]
    words += finding.why
    if isinstance(finding.rho_bg, RhoBg) and finding.cause.costs_capacity:
        words.append(f"rho_bg {finding.rho_bg.value:.2f} +- {finding.rho_bg.sd:.2f}")
    return words
