"""What is held of each backend, with the evidence a person would ask for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dial.classifier import own
from dial.columns import Floats
from dial.controller.engage import lost_by
from dial.controller.finding import Finding
from dial.controller.look import Look, Looks, rho_fg_of, used_part
from dial.controller.policy import Policy
from dial.detector import Signal
from dial.estimator import NO_PEAK, RhoBg
from dial.types import Cause, Measured, NoData, Verdict

_NOT_SLOWER = NoData("not slower than expected")


def verdicts_of(
    policy: Policy,
    looks: Looks,
    signal: Signal,
    peak_rps: Floats,
    judged: Mapping[int, tuple[Look, Finding]],
) -> tuple[Verdict, ...]:
    """A verdict on each backend, in the order of the rows.

    Parameters
    ----------
    policy : the strategies.
    looks : all backends.
    signal : what the detector says of them.
    peak_rps : (n,) r_i; NaN where it is not known.
    judged : by row, what is held of those that were looked into.
    """
    rho_fg: list[Measured] = looks.rho_fg.tolist()
    for row in np.flatnonzero(np.isnan(looks.rho_fg)).tolist():
        rho_fg[row] = rho_fg_of(looks, row)
    peak: list[Measured] = peak_rps.tolist()
    for row in np.flatnonzero(np.isnan(peak_rps)).tolist():
        peak[row] = NO_PEAK
    expected_ms: list[Measured] = signal.upper_ms.tolist()
    for row in np.flatnonzero(np.isnan(signal.upper_ms)).tolist():
        learnt, needed = signal.learnt[row], policy.learn_intervals
        expected_ms[row] = NoData(f"{learnt} of {needed} quiet intervals learnt")
    t_x = f"T{policy.percentile:g}"
    words: list[tuple[str, ...]] = [
        (_slow(t_x, seen.window.t_x_ms, expected),)
        for seen, expected in zip(looks.seen, expected_ms, strict=True)
    ]
    causes: list[Cause] = [Cause.NONE] * len(words)
    rho_bg: list[Measured] = [_NOT_SLOWER] * len(words)
    for row, (look, finding) in judged.items():
        causes[row] = finding.cause
        rho_bg[row] = _taken_by_a_neighbour(policy, look, finding)
        words[row] += _why(finding)
    return tuple(map(Verdict, causes, rho_fg, rho_bg, peak, expected_ms, words))


def _taken_by_a_neighbour(policy: Policy, look: Look, finding: Finding) -> Measured:
    """rho_bg: what is lost, without what the tenant's own doing explains of it."""
    if isinstance(finding.rho_bg, NoData):
        return finding.rho_bg
    if not finding.cause.is_own_doing:
        return finding.rho_bg.value
    # Both of this interval: what was lost before says nothing of what is waited for now.
    lost = lost_by(policy, look, finding.cause)
    excess = look.features[own.FEATURES[finding.cause]]
    if isinstance(excess, NoData):
        return excess
    if excess < own.least_excess(finding.cause, policy.guards.engage_rho_bg):
        return NoData(f"{own.ENDED[finding.cause]}, and T_x may be of requests from before")
    if isinstance(lost, NoData):
        return lost
    return own.left_over(finding.cause, lost.value, excess, used_part(look.seen))


def _slow(t_x: str, t_x_ms: Measured, expected_ms: Measured) -> str:
    """How slow it is, in words."""
    if isinstance(t_x_ms, NoData):
        return f"{t_x} unknown: {t_x_ms.reason}"
    if isinstance(expected_ms, NoData):
        return f"{t_x} {t_x_ms:.1f} ms; {expected_ms.reason}"
    return f"{t_x} {t_x_ms:.1f} ms, expected at most {expected_ms:.1f} at this load"


def _why(finding: Finding) -> tuple[str, ...]:
    """Why that, and what is lost."""
    why = [*finding.why]
    if why and finding.cause.costs_capacity:
        why[0] = f"{finding.cause.upper()}: {why[0]}"
    if isinstance(finding.rho_bg, RhoBg) and finding.cause is not Cause.NONE:
        lost = "capacity lost" if finding.cause.is_own_doing else "rho_bg"
        why.append(f"{lost} {finding.rho_bg.value:.2f} +- {finding.rho_bg.sd:.2f}")
    return tuple(why)
