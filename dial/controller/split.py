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
from dial.controller.probes import with_probes
from dial.controller.state import Contention, Shift
from dial.optimizer import (
    in_flight_split,
    integer_weights,
    lemma1,
    proportional_shares,
    shares_of_weights,
    tail_optimal_shares,
)
from dial.optimizer.weights import ideal_weights
from dial.types import (
    Action,
    BackendObservation,
    NoData,
    Observation,
    Verdict,
    WeightKind,
    WeightMeaning,
)

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
class _Pool:
    """The usable backends, in the balancer's order.

    Attributes
    ----------
    seen
        What was observed of each.
    base, current
        (n,) shares as configured, and as the last plan wanted them.
    contended
        (n,) whether a neighbour was found.
    left
        (n,) part of its throughput that a neighbour leaves.
    """

    seen: tuple[BackendObservation, ...]
    base: NDArray[np.float64]
    current: NDArray[np.float64]
    contended: NDArray[np.bool_]
    left: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        usable: tuple[BackendObservation, ...],
        contentions: Mapping[str, Contention],
        shift: Shift | None,
    ) -> _Pool:
        base = shares_of_weights([b.server.configured_weight for b in usable])
        found = [contentions.get(b.name) for b in usable]
        # What Eq. 1 says is lost may come to all there is; a backend that still answers has
        # something left, and a throughput of 0 has no optimum.
        left = np.array([1.0 - (each.in_use if each else 0.0) for each in found])
        return cls(
            usable,
            base,
            _shares_before(shift, usable, base),
            np.array([each is not None for each in found]),
            np.maximum(left, _LEAST_CAPACITY_LEFT),
        )


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
    contentions: Mapping[str, Contention],
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
    contentions : of each backend that has a neighbour, by this tick's verdict.
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
    pool = _Pool.of(usable, contentions, shift)
    contended = [b.name for b, found in zip(usable, pool.contended, strict=True) if found]
    panic = panics(len(contended), len(usable), policy.guards.panic_fraction)
    even = panic or not contended
    configured = [b.server.configured_weight for b in usable]
    base, current, meaning = pool.base, pool.current, observation.meaning
    if panic:
        target, action = _Target(base, None), Action.PANIC
        reason = f"{len(contended)} of {len(usable)} backends look contended: too many to be so"
    elif not contended:
        target, action = _Target(base, None), Action.RELEASE
        reason = "the neighbour is gone"
    else:
        target = _target(policy, pool, verdicts, meaning, arrivals=arrivals)
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
            held = _with_probes(policy, shift, contentions, observation)
            if held.weights != shift.weights:
                action, reason = Action.PROBE, f"{reason}; {_probed(shift, held)}"
            return _wanting(held, observation, action, reason)

    if even and (shift is None or configured == [b.server.weight for b in usable]):
        if not panic:
            reason = "no neighbour found" if shift is None else "configured weights are in force"
        return not_ours(observation, Action.PANIC if panic else Action.HOLD, reason)
    shares = limit_step(current, target.shares, policy.guards.max_step)
    if even and np.array_equal(shares, base):
        weights = configured
    else:
        ideal = ideal_weights(
            shares, meaning, target.throughput_per_s, arrivals.peak_per_s, aim=target.shares
        )
        weights = integer_weights(ideal, meaning, configured)
    wanted = Shift(
        {b.name: float(share) for b, share in zip(usable, shares, strict=True)},
        {b.name: weight for b, weight in zip(usable, weights, strict=True)},
        arrived=np.array_equal(shares, target.shares),
    )
    wanted = _with_probes(policy, wanted, contentions, observation)
    return _wanting(wanted, observation, action, reason)


def not_ours(observation: Observation, action: Action, reason: str) -> LoadSplit:
    """The shares as they are: the weights are none of our business."""
    return LoadSplit(None, shares_in_force(observation), action, reason)


def _target(
    policy: Policy,
    pool: _Pool,
    verdicts: Mapping[str, Verdict],
    meaning: WeightMeaning,
    *,
    arrivals: Arrivals,
) -> _Target:
    """The optimum of Eq. 2 with r_i (1 - rho_bg,i), or relative shares without r_i."""
    peaks = [verdicts[b.name].peak_rps for b in pool.seen]
    known = [peak for peak in peaks if not isinstance(peak, NoData)]
    if len(known) < len(peaks):
        return _Target(proportional_shares(pool.base * pool.left), None)
    throughput_per_s = np.array(known) * pool.left
    if policy.strategies.split == "proportional":
        # No throughputs for the weights' meaning: the capacity itself is the weight.
        return _Target(proportional_shares(throughput_per_s), None)
    floor = floor_share(policy.guards.floor_share, len(pool.seen), policy.percentile)
    peak_per_s = arrivals.peak_per_s
    overload = arrivals.mean_per_s >= float(throughput_per_s.sum())
    may_leave_out = (
        policy.strategies.split == "exact"
        and meaning.kind is WeightKind.CONCURRENCY
        and meaning.zero_drains
        and floor > 0.0
    )
    if may_leave_out:
        left_out = pool.current == 0.0
        found = in_flight_split(throughput_per_s, peak_per_s, pool.contended, left_out)
        return _Target(found.shares, throughput_per_s, overload)
    found = tail_optimal_shares(throughput_per_s, peak_per_s, floor=floor)
    if policy.strategies.split == "lemma1" and peak_per_s > 0.0 and not found.overload:
        printed = np.maximum(lemma1(throughput_per_s, peak_per_s), 0.0)
        return _Target(proportional_shares(printed), throughput_per_s)
    return _Target(found.shares, throughput_per_s, overload)


def _with_probes(
    policy: Policy, shift: Shift, contentions: Mapping[str, Contention], observation: Observation
) -> Shift:
    """What is wanted, and whether those who are drained are probed in this tick."""
    fraction = len(shift.shares) * floor_share(
        policy.guards.floor_share, len(shift.shares), policy.percentile
    )
    return with_probes(
        shift, contentions, observation.meaning, tick=observation.tick, floor_of_even=fraction
    )


def _probed(before: Shift, after: Shift) -> str:
    """In words, which probes begin and end."""
    changed = {n: w for n, w in after.weights.items() if w != before.weights[n]}
    return ", ".join(
        f"{name} {'is probed' if weight else 'was probed'}" for name, weight in changed.items()
    )


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
