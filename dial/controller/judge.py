"""One backend, one tick: is it slow, why, and how much does the neighbour take.

The paper's three steps in their order: detection (2.3.1), classification (2.3.2),
estimation (2.3.3).  A verdict that a neighbour is there, once made, is kept while load is
shifted away from the backend, because the symptoms it rests on fade with the load; it is
refined, and finally ended, by the estimate of rho_bg alone.
"""

from __future__ import annotations

from dataclasses import replace

from dial.classifier import deferral
from dial.controller.engage import engage, find_cause, lost_by
from dial.controller.finding import Finding
from dial.controller.follow import follow
from dial.controller.look import Look, own_utilisation
from dial.controller.policy import Policy
from dial.controller.siblings import WINDOW_INTERVALS, ControlGroups
from dial.controller.state import BackendState, Release
from dial.detector import Signal
from dial.estimator import RhoBg, learn_peak, peak_rps, utilisation
from dial.types import BackendObservation, Cause, Measured, NoData, Verdict


def judge(
    policy: Policy,
    known: BackendState,
    look: Look,
    groups: ControlGroups,
    *,
    tick: int,
    quiet: bool,
) -> tuple[BackendState, Verdict]:
    """Detect, classify and estimate for one backend.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of this backend.
    look : its interval.
    groups : every backend's siblings.
    tick : its number, for the record.
    quiet : no load is shifted anywhere, so this interval may be learnt from.
    """
    seen = look.seen
    t_x_ms = seen.window.t_x_ms
    known, signal = _detect(policy, known, look, learn=quiet)
    if quiet and signal.calm:
        known = _learn(policy, known, seen)

    finding = Finding(Cause.NONE, NoData("not slower than expected"))
    contention = known.contention
    if contention is not None:
        returns = contention.returns
        known, finding, contention = follow(
            policy, known, contention, look, signal, groups=groups, tick=tick
        )
        if contention is None:
            released = Release(tick, returns)
            known = replace(known, suspect=None, uneasy_intervals=0, release=released)
        elif contention.cause is not Cause.UNKNOWN:
            known = replace(known, suspect=None)
    else:
        calm = signal.calm and not isinstance(t_x_ms, NoData)
        known = replace(
            known,
            suspect=None if calm else known.suspect,
            uneasy_intervals=0 if calm else min(known.uneasy_intervals + 1, WINDOW_INTERVALS),
        )
        if signal.above:
            suspicion = find_cause(policy, known, look)
            finding, contention = engage(
                policy, known, look, suspicion, signal, groups=groups, tick=tick
            )
            known = replace(known, suspect=suspicion.cause)
    history = (*known.history, look.apparent)[-WINDOW_INTERVALS:]
    return replace(known, contention=contention, history=history), Verdict(
        cause=finding.cause,
        rho_fg=look.rho_fg,
        rho_bg=_taken_by_a_neighbour(policy, known, look, finding),
        peak_rps=peak_rps(known.peak, policy.peak_rps.get(seen.name)),
        expected_t_x_ms=signal.upper_ms,
        evidence=tuple(_in_words(policy.percentile, t_x_ms, signal, finding)),
    )


def _detect(
    policy: Policy, known: BackendState, look: Look, *, learn: bool
) -> tuple[BackendState, Signal]:
    """Ask the detector that was chosen."""
    window = look.seen.window
    if policy.strategies.detect == "band":
        band, signal = policy.band.step(known.band, window.t_x_ms, learn=learn)
        return replace(known, band=band), signal
    cusum, signal = policy.cusum.step(
        known.cusum, window.t_x_ms, look.rho_fg, window.t_x_requests, learn=learn
    )
    known = replace(known, cusum=cusum)
    given = look.passed_over
    if isinstance(given, NoData):
        # What was before says nothing of the time after.
        forgotten = replace(known.rates, evidence=0.0, detected_for=0, held_back=())
        return replace(known, rates=forgotten), signal
    requests = round(window.rate_per_s)
    rates, witness = policy.cusum.watch(known.rates, given.residual, requests, learn=learn)
    return replace(known, rates=rates), signal.beside(witness)


def _learn(policy: Policy, known: BackendState, seen: BackendObservation) -> BackendState:
    """Remember a quiet interval."""
    memory = policy.memory_intervals
    rate_per_s, peak_state = seen.window.rate_per_s, known.peak
    if not isinstance(seen.window.t_x_ms, NoData):
        # With next to no requests what the VM does for itself is all that would be learnt.
        peak_state = learn_peak(
            peak_state, rate_per_s, utilisation(seen.sample), memory_intervals=memory
        )
    rho_fg = own_utilisation(seen, peak_rps(peak_state, policy.peak_rps.get(seen.name)))
    return replace(
        known,
        baseline=known.baseline.learn(seen.window, seen.sample, rho_fg, memory_intervals=memory),
        peak=peak_state,
        curve=known.curve.learn(seen.window.t_x_ms, rho_fg, memory_intervals=memory),
    )


def _taken_by_a_neighbour(
    policy: Policy, known: BackendState, look: Look, finding: Finding
) -> Measured:
    """rho_bg: what is lost, without what the application's waiting for itself explains of it."""
    if isinstance(finding.rho_bg, NoData):
        return finding.rho_bg
    if finding.cause is not Cause.INTRA_APP:
        return finding.rho_bg.value
    # Both of this interval: what was lost before says nothing of what is waited for now.
    lost = lost_by(policy, known, look, finding.cause)
    excess = look.features[deferral.FEATURE]
    if isinstance(excess, NoData):
        return excess
    if excess < deferral.LEAST_EXCESS:
        return NoData("the waiting has ended, and T_x may be of requests from before")
    return lost if isinstance(lost, NoData) else deferral.left_over(lost.value, excess)


def _in_words(percentile: float, t_x_ms: Measured, signal: Signal, finding: Finding) -> list[str]:
    """The evidence a person would ask for: how slow, why that, and what is lost."""
    t_x = f"T{percentile:g}"
    if isinstance(t_x_ms, NoData):
        words = [f"{t_x} unknown: {t_x_ms.reason}"]
    elif isinstance(signal.upper_ms, NoData):
        words = [f"{t_x} {t_x_ms:.1f} ms; {signal.upper_ms.reason}"]
    else:
        words = [f"{t_x} {t_x_ms:.1f} ms, expected at most {signal.upper_ms:.1f} at this load"]
    why = [*finding.why]
    if why and finding.cause.costs_capacity:
        why[0] = f"{finding.cause.upper()}: {why[0]}"
    words += why
    if isinstance(finding.rho_bg, RhoBg) and finding.cause is not Cause.NONE:
        lost = "capacity lost" if finding.cause is Cause.INTRA_APP else "rho_bg"
        words.append(f"{lost} {finding.rho_bg.value:.2f} +- {finding.rho_bg.sd:.2f}")
    return words
