"""The service, one tick: how its load is to be split, given the verdicts.

Target (the optimum of Eq. 2 where throughputs are known, else shares in proportion to what
is left of each backend), then the guards, then integer weights in the balancer's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dial.controller.arrivals import Arrivals
from dial.controller.guards import floor_share, limit_step, panics, worth_writing
from dial.controller.policy import Policy
from dial.controller.state import BackendState, Contention, Shift
from dial.optimizer import (
    integer_weights,
    lemma1,
    proportional_shares,
    shares_of_weights,
    tail_optimal_shares,
)
from dial.optimizer.weights import ideal_weights
from dial.types import Action, BackendObservation, NoData, Observation, Verdict

_LEAST_CAPACITY_LEFT = 0.02
"""Least part of a backend's throughput that is held to be left (see :func:`_target`)."""


@dataclass(frozen=True, slots=True)
class LoadSplit:
    """What is wanted of the balancer.

    Attributes
    ----------
    shift
        Shares and weights of our own, or ``None``: none of our business.
    shares
        Share of every backend, wanted or (without a shift) as it is.
    action, reason
        For the plan.
    """

    shift: Shift | None
    shares: dict[str, float]
    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the shares should be, whatever the guards say.

    Attributes
    ----------
    shares
        (n,) of the usable backends.
    throughput_per_s
        (n,) r_i as they are now, or ``None`` where some r_i is not known.
    overload
        More arrives than all can serve.
    """

    shares: NDArray[np.float64]
    throughput_per_s: NDArray[np.float64] | None
    overload: bool = False


def split_load(
    policy: Policy,
    shift: Shift | None,
    backends: Mapping[str, BackendState],
    verdicts: Mapping[str, Verdict],
    observation: Observation,
    *,
    arrivals: Arrivals,
) -> LoadSplit:
    """Decide on shares and weights.

    Parameters
    ----------
    policy : for its guards.
    shift : what the last plan wanted, if anything.
    backends : state of each backend after this tick's verdict.
    verdicts : by backend.
    observation : of this tick.
    arrivals : at the whole service: the optimum moves with them.

    Returns
    -------
    LoadSplit
        A backend that the admin took out keeps its weight and has a share of 0.
    """
    usable = tuple(b for b in observation.backends if b.server.usable)
    if not usable:
        return not_ours(observation, Action.HOLD, "no backend is usable")
    contended = [b.name for b in usable if backends[b.name].contention is not None]
    panic = panics(len(contended), len(usable), policy.guards.panic_fraction)
    even = panic or not contended
    configured = [b.server.configured_weight for b in usable]
    base = shares_of_weights(configured)
    current = _shares_before(shift, usable, base)
    if panic:
        target, action = _Target(base, None), Action.PANIC
        reason = f"{len(contended)} of {len(usable)} backends look contended: too many to be so"
    elif not contended:
        target, action = _Target(base, None), Action.RELEASE
        reason = "the neighbour is gone"
    else:
        target = _target(policy, usable, base, backends, verdicts, arrivals=arrivals)
        who = ", ".join(f"{name} ({verdicts[name].cause})" for name in contended)
        action, reason = Action.SHIFT, f"load moves away from {who}"
        if target.overload:
            action = Action.OVERLOAD
            reason = f"more arrives than all can serve, so load is split by capacity; {who}"
        if (
            shift
            and shift.arrived
            and not worth_writing(current, target.shares, policy.guards.hysteresis)
        ):
            if not target.overload:
                action, reason = Action.HOLD, f"load stays away from {who}"
            return _wanting(shift, observation, action, reason)

    if even and (shift is None or configured == [b.server.weight for b in usable]):
        if not panic:
            reason = "no neighbour found" if shift is None else "configured weights are in force"
        return not_ours(observation, Action.PANIC if panic else Action.HOLD, reason)
    shares = limit_step(current, target.shares, policy.guards.max_step)
    if even and np.array_equal(shares, base):
        weights = configured
    else:
        meaning = observation.meaning
        ideal = ideal_weights(
            shares, meaning, target.throughput_per_s, arrivals.peak_per_s, aim=target.shares
        )
        weights = integer_weights(ideal, meaning, configured)
    wanted = Shift(
        {b.name: float(share) for b, share in zip(usable, shares, strict=True)},
        {b.name: weight for b, weight in zip(usable, weights, strict=True)},
        arrived=np.array_equal(shares, target.shares),
    )
    return _wanting(wanted, observation, action, reason)


def not_ours(observation: Observation, action: Action, reason: str) -> LoadSplit:
    """The shares as they are: the weights are none of our business."""
    return LoadSplit(None, shares_in_force(observation), action, reason)


def _target(
    policy: Policy,
    usable: tuple[BackendObservation, ...],
    base: NDArray[np.float64],
    backends: Mapping[str, BackendState],
    verdicts: Mapping[str, Verdict],
    *,
    arrivals: Arrivals,
) -> _Target:
    """The optimum of Eq. 2 with r_i (1 - rho_bg,i), or relative shares without r_i."""
    left = np.array([1.0 - _rho_bg(backends[b.name].contention) for b in usable])
    # What Eq. 1 says is lost may come to all there is; a backend that still answers has
    # something left, and a throughput of 0 has no optimum.
    left = np.maximum(left, _LEAST_CAPACITY_LEFT)
    peaks = [verdicts[b.name].peak_rps for b in usable]
    known = [peak for peak in peaks if not isinstance(peak, NoData)]
    if len(known) < len(peaks):
        return _Target(proportional_shares(base * left), None)
    throughput_per_s = np.array(known) * left
    floor = floor_share(policy.guards.floor_share, len(usable), policy.percentile)
    peak_per_s = arrivals.peak_per_s
    found = tail_optimal_shares(throughput_per_s, peak_per_s, floor=floor)
    if policy.strategies.split == "lemma1" and peak_per_s > 0.0 and not found.overload:
        printed = np.maximum(lemma1(throughput_per_s, peak_per_s), 0.0)
        return _Target(proportional_shares(printed), throughput_per_s)
    overload = arrivals.mean_per_s >= float(throughput_per_s.sum())
    return _Target(found.shares, throughput_per_s, overload)


def _rho_bg(contention: Contention | None) -> float:
    return contention.in_use if contention else 0.0


def shares_in_force(observation: Observation) -> dict[str, float]:
    """What a round robin would give with the weights that are in force."""
    usable = [b for b in observation.backends if b.server.usable]
    shares = shares_of_weights([b.server.weight for b in usable])
    found = {b.name: float(share) for b, share in zip(usable, shares, strict=True)}
    return {b.name: found.get(b.name, 0.0) for b in observation.backends}


def _shares_before(
    shift: Shift | None, usable: tuple[BackendObservation, ...], base: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The shares to move on from; a backend that came back starts at its configured one."""
    if shift is None:
        return base
    before = np.array(
        [shift.shares.get(b.name, even) for b, even in zip(usable, base, strict=True)]
    )
    return np.asarray(before / before.sum(), dtype=np.float64)


def _wanting(shift: Shift, observation: Observation, action: Action, reason: str) -> LoadSplit:
    shares = {b.name: shift.shares.get(b.name, 0.0) for b in observation.backends}
    return LoadSplit(shift, shares, action, reason)
