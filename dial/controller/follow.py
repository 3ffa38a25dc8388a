"""A neighbour that was found: refined while it is there, and ended when it has gone."""

from __future__ import annotations

from dataclasses import replace

from dial.controller.finding import Finding
from dial.controller.look import Look, reading_of
from dial.controller.policy import Policy
from dial.controller.state import BackendState, Contention
from dial.detector import Signal
from dial.estimator import Reading, RhoBg
from dial.types import Cause, NoData


def follow(
    policy: Policy,
    known: BackendState,
    contention: Contention,
    look: Look,
    signal: Signal,
) -> tuple[Finding, Contention | None]:
    """Refine the estimate; the contention ends when it has been calm for long enough."""
    rho_bg = _refine(policy, contention.rho_bg, reading_of(policy, known, look, contention.cause))
    if isinstance(rho_bg, NoData):
        return Finding(contention.cause, contention.rho_bg, contention.evidence), contention
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
        return Finding(Cause.NONE, rho_bg, ("the neighbour is gone",)), None
    contention = replace(contention, rho_bg=rho_bg, calm_ticks=calm)
    return Finding(contention.cause, rho_bg, contention.evidence), contention


def _refine(policy: Policy, past: RhoBg, reading: Reading | NoData) -> RhoBg | NoData:
    """The running estimate after this interval."""
    if isinstance(reading, NoData):
        return reading
    if policy.strategies.estimate == "interval":
        return policy.tracker.begin(reading)
    return policy.tracker.step(past, reading)
