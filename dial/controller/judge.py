"""One backend, one tick: is it slow, why, and how much does the neighbour take.

The paper's three steps in their order: detection (2.3.1), classification (2.3.2),
estimation (2.3.3).  A verdict that a neighbour is there, once made, is kept while load is
shifted away from the backend, because the symptoms it rests on fade with the load; it is
refined, and finally ended, by the estimate of rho_bg alone.
"""

from __future__ import annotations

from dataclasses import replace

from dial.classifier import classify, features
from dial.controller.policy import Policy
from dial.controller.state import BackendState, Contention
from dial.detector import BandSignal
from dial.estimator import cpu_utilisation, estimate_rho_bg, learn_peak, peak_rps, smooth
from dial.types import BackendObservation, Cause, Measured, NoData, Verdict

_Finding = tuple[Cause, Measured, tuple[str, ...]]
"""Cause, rho_bg and evidence."""


def judge(
    policy: Policy, known: BackendState, seen: BackendObservation, tick: int, *, quiet: bool
) -> tuple[BackendState, Verdict]:
    """Detect, classify and estimate for one backend.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of this backend.
    seen : this tick's observation of it.
    tick : its number, for the record.
    quiet : no load is shifted anywhere, so this interval may be learnt from.
    """
    t_x_ms = seen.window.t_x_ms
    band, signal = policy.detector.step(known.band, t_x_ms, learn=quiet)
    known = replace(known, band=band)
    if quiet and not signal.above:
        known = _learn(policy, known, seen)
    peak = peak_rps(known.peak, policy.peak_rps.get(seen.name))
    rho_fg = _rho_fg(seen, peak)

    finding: _Finding = (Cause.NONE, NoData("not slower than expected"), ())
    contention = known.contention
    suspect = known.suspect if isinstance(t_x_ms, NoData) else None
    if contention is not None:
        newest = _rho_bg(policy, known, contention.cause, t_x_ms, rho_fg)
        contention = _follow(policy, contention, newest)
        finding = (
            (contention.cause, contention.rho_bg, contention.evidence)
            if contention
            else (Cause.NONE, newest, ("the neighbour is gone",))
        )
    elif signal.above:
        found = _find_cause(policy, known, seen, rho_fg)
        suspect = found[0]
        if signal.detected:
            finding, contention = _engage(policy, found, known.suspect, tick)
    cause, rho_bg, why = finding
    return replace(known, contention=contention, suspect=suspect), Verdict(
        cause=cause,
        rho_fg=rho_fg,
        rho_bg=rho_bg,
        peak_rps=peak,
        expected_t_x_ms=signal.upper_ms,
        evidence=(_latency_in_words(t_x_ms, signal), *why),
    )


def _find_cause(
    policy: Policy, known: BackendState, seen: BackendObservation, rho_fg: Measured
) -> _Finding:
    """Classify a backend that was just detected, and estimate what is taken from it."""
    if isinstance(seen.sample, NoData):
        why = (f"cannot be classified: {seen.sample.reason}",)
        return Cause.UNKNOWN, NoData("the cause is unknown"), why
    cause, path = classify(policy.tree, features(known.baseline, seen.window, seen.sample))
    if not cause.is_contention:
        return cause, NoData(f"no neighbour: the cause is {cause}"), path
    return cause, _rho_bg(policy, known, cause, seen.window.t_x_ms, rho_fg), path


def _engage(
    policy: Policy, found: _Finding, suspect: Cause | None, tick: int
) -> tuple[_Finding, Contention | None]:
    """Make a contention of a finding, if it is sure enough and worth moving load for.

    Sure enough: the class is that of the interval before too.  A band is left by chance or
    by load of one's own as well, and then the class is whatever the noise of that interval
    looks like; it rarely looks the same twice.
    """
    cause, rho_bg, path = found
    if not cause.is_contention:
        return found, None
    if cause is not suspect:
        why_not = f"looks like {cause}, which the interval before did not"
    elif isinstance(rho_bg, NoData):
        why_not = f"looks like {cause}, but rho_bg is unknown: {rho_bg.reason}"
    elif rho_bg < policy.guards.engage_rho_bg:
        why_not = f"looks like {cause}, but rho_bg {rho_bg:.2f} < {policy.guards.engage_rho_bg:g}"
    else:
        return found, Contention(cause, rho_bg, calm_ticks=0, since_tick=tick, evidence=path)
    return (Cause.NONE, rho_bg, (*path, why_not)), None


def _learn(policy: Policy, known: BackendState, seen: BackendObservation) -> BackendState:
    """Remember a quiet interval."""
    memory = policy.detector.memory_intervals
    cpu_rho_fg = cpu_utilisation(seen.sample)
    rate_per_s = seen.window.rate_per_s
    peak_state = learn_peak(known.peak, rate_per_s, cpu_rho_fg, memory_intervals=memory)
    rho_fg = _rho_fg(seen, peak_rps(peak_state, policy.peak_rps.get(seen.name)))
    return replace(
        known,
        baseline=known.baseline.learn(seen.window, seen.sample, memory_intervals=memory),
        peak=peak_state,
        curve=known.curve.learn(seen.window.t_x_ms, rho_fg, memory_intervals=memory),
    )


def _rho_fg(seen: BackendObservation, peak: Measured) -> Measured:
    """The backend's own utilisation: by its CPU time, else by its rate over its peak."""
    measured = cpu_utilisation(seen.sample)
    if not isinstance(measured, NoData) or isinstance(peak, NoData):
        return measured
    return min(1.0, seen.window.rate_per_s / peak)


def _rho_bg(
    policy: Policy, known: BackendState, cause: Cause, t_x_ms: Measured, rho_fg: Measured
) -> Measured:
    """Eq. 1 of the resource in contention, or of the backend's own quiet past."""
    curve = policy.curves.get(cause) or known.curve.curve()
    return estimate_rho_bg(curve, t_x_ms, rho_fg)


def _follow(policy: Policy, contention: Contention, newest: Measured) -> Contention | None:
    """Refine the estimate; ``None`` when it has been low for long enough."""
    if isinstance(newest, NoData):
        return contention
    guards = policy.guards
    rho_bg = smooth(contention.rho_bg, newest, policy.smoothing)
    calm = contention.calm_ticks + 1 if rho_bg < guards.release_rho_bg else 0
    if calm >= guards.release_intervals:
        return None
    return replace(contention, rho_bg=rho_bg, calm_ticks=calm)


def _latency_in_words(t_x_ms: Measured, signal: BandSignal) -> str:
    if isinstance(t_x_ms, NoData):
        return f"T_x unknown: {t_x_ms.reason}"
    if isinstance(signal.upper_ms, NoData):
        return f"T_x {t_x_ms:.1f} ms; {signal.upper_ms.reason}"
    return f"T_x {t_x_ms:.1f} ms, expected at most {signal.upper_ms:.1f}"
