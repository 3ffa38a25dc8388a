"""The service, one tick: how its load is to be split, given the verdicts.

Target (the optimum of Eq. 2 where throughputs are known, else shares in proportion to what
is left of each backend), then the guards, then integer weights in the balancer's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from dial.columns import Bools, Floats, Ints
from dial.controller.arrivals import Arrivals
from dial.controller.guards import floor_share, limit_step, panics, worth_writing
from dial.controller.policy import Policy
from dial.controller.probes import with_probes
from dial.controller.state import Contention, Shift
from dial.controller.verdict import Verdicts
from dial.optimizer import (
    in_flight_split,
    integer_weights,
    lemma1,
    proportional_shares,
    rate_weights,
    shares_of_weights,
    tail_optimal_shares,
)
from dial.optimizer.weights import ideal_weights
from dial.seen import Seen
from dial.types import Action, Observation, WeightKind, WeightMeaning

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
        (n,) share of every backend, wanted or (without a shift) as it is.
    action, reason
        For the plan.
    """

    shift: Shift | None
    shares: Floats
    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class _Pool:
    """The usable backends, in the balancer's order.

    Attributes
    ----------
    names
        Of each.
    rows
        (n,) of them among all backends.
    weight, configured
        (n,) weights in force, and in the balancer's own configuration.
    base, current
        (n,) shares as configured, and as the last plan wanted them.
    contended
        (n,) whether a neighbour was found.
    left
        (n,) part of its throughput that a neighbour leaves.
    """

    names: tuple[str, ...]
    rows: Ints
    weight: Ints
    configured: Ints
    base: Floats
    current: Floats
    contended: Bools
    left: Floats

    @classmethod
    def of(cls, seen: Seen, contentions: Mapping[str, Contention], shift: Shift | None) -> _Pool:
        rows = np.flatnonzero(seen.usable)
        names = tuple(seen.names[row] for row in rows.tolist())
        configured = seen.configured_weight[rows]
        base = shares_of_weights(configured)
        contended = np.fromiter(map(contentions.__contains__, names), np.bool_, len(names))
        left = np.ones(len(names))
        for at in np.flatnonzero(contended).tolist():
            left[at] -= contentions[names[at]].in_use
        return cls(
            names,
            rows,
            seen.weight[rows],
            configured,
            base,
            _shares_before(shift, names, base),
            contended,
            # What Eq. 1 says is lost may come to all there is; a backend that still answers has
            # something left, and a throughput of 0 has no optimum.
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

    shares: Floats
    throughput_per_s: Floats | None
    overload: bool = False


def split_load(
    policy: Policy,
    shift: Shift | None,
    contentions: Mapping[str, Contention],
    verdicts: Verdicts,
    observation: Observation,
    *,
    seen: Seen,
    arrivals: Arrivals,
) -> LoadSplit:
    """Decide on shares and weights.

    Parameters
    ----------
    policy : for its guards.
    shift : what the last plan wanted, if anything.
    contentions : of each backend that has a neighbour, by this tick's verdict.
    verdicts : on each backend.
    observation : of this tick.
    seen : its backends.
    arrivals : at the whole service: the optimum moves with them.

    Returns
    -------
    LoadSplit
        A backend that the admin took out keeps its weight and has a share of 0.
    """
    pool = _Pool.of(seen, contentions, shift)
    if not pool.names:
        return not_ours(seen, Action.HOLD, "no backend is usable")
    contended = np.flatnonzero(pool.contended).tolist()
    panic = panics(len(contended), len(pool.names), policy.guards.panic_fraction)
    even = panic or not contended
    base, current, meaning = pool.base, pool.current, observation.meaning
    if panic:
        target, action = _Target(base, None), Action.PANIC
        reason = f"{len(contended)} of {len(pool.names)} backends look contended: too many to be so"
    elif not contended:
        target, action = _Target(base, None), Action.RELEASE
        reason = "the neighbour is gone"
    else:
        target = _target(policy, pool, verdicts, meaning, arrivals=arrivals)
        who = ", ".join(
            f"{pool.names[at]} ({verdicts.cause(int(pool.rows[at]))})" for at in contended
        )
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
            held = _with_probes(policy, pool, shift, contentions, observation)
            if held.weights != shift.weights:
                action, reason = Action.PROBE, f"{reason}; {_probed(shift, held)}"
            return _wanting(held, seen, action, reason)

    if even and (shift is None or np.array_equal(pool.configured, pool.weight)):
        if not panic:
            reason = "no neighbour found" if shift is None else "configured weights are in force"
        return not_ours(seen, Action.PANIC if panic else Action.HOLD, reason)
    shares = limit_step(current, target.shares, policy.guards.max_step)
    configured = pool.configured.tolist()
    if even and np.array_equal(shares, base):
        weights = configured
    elif meaning.kind is WeightKind.SERVICE_RATE:
        left = np.ones(len(pool.names)) if even else np.where(shares > 0.0, pool.left, 0.0)
        weights = rate_weights(left, meaning, configured)
    else:
        ideal = ideal_weights(
            shares, meaning, target.throughput_per_s, arrivals.peak_per_s, aim=target.shares
        )
        weights = integer_weights(ideal, meaning, configured)
    wanted = Shift(
        dict(zip(pool.names, shares.tolist(), strict=True)),
        dict(zip(pool.names, weights, strict=True)),
        arrived=np.array_equal(shares, target.shares),
    )
    wanted = _with_probes(policy, pool, wanted, contentions, observation)
    return _wanting(wanted, seen, action, reason)


def not_ours(seen: Seen, action: Action, reason: str) -> LoadSplit:
    """The shares as they are: the weights are none of our business."""
    return LoadSplit(None, shares_in_force(seen), action, reason)


def _target(
    policy: Policy,
    pool: _Pool,
    verdicts: Verdicts,
    meaning: WeightMeaning,
    *,
    arrivals: Arrivals,
) -> _Target:
    """The optimum of Eq. 2 with r_i (1 - rho_bg,i), or relative shares without r_i."""
    peak_rps = verdicts.peak_rps[pool.rows]
    if np.isnan(peak_rps).any():
        return _Target(proportional_shares(pool.base * pool.left), None)
    throughput_per_s = peak_rps * pool.left
    if policy.strategies.split == "proportional":
        # No throughputs for the weights' meaning: the capacity itself is the weight.
        return _Target(proportional_shares(throughput_per_s), None)
    floor = floor_share(policy.guards.floor_share, len(pool.names), policy.percentile)
    peak_per_s = arrivals.peak_per_s
    overload = arrivals.mean_per_s >= float(throughput_per_s.sum())
    may_leave_out = (
        policy.strategies.split == "exact"
        and meaning.kind in (WeightKind.CONCURRENCY, WeightKind.SERVICE_RATE)
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
    policy: Policy,
    pool: _Pool,
    shift: Shift,
    contentions: Mapping[str, Contention],
    observation: Observation,
) -> Shift:
    """What is wanted, and whether those who are drained are probed in this tick."""
    meaning = observation.meaning
    fraction = len(shift.shares) * floor_share(
        policy.guards.floor_share, len(shift.shares), policy.percentile
    )
    if meaning.kind is WeightKind.SERVICE_RATE:
        # Anything less is passed over while another one is idle.
        weights = rate_weights(np.ones(len(pool.names)), meaning, pool.configured.tolist())
    else:
        weights = [meaning.minimum] * len(pool.names)
    return with_probes(
        shift,
        contentions,
        meaning,
        tick=observation.tick,
        floor_of_even=fraction,
        probing=dict(zip(pool.names, weights, strict=True)),
    )


def _probed(before: Shift, after: Shift) -> str:
    """In words, which probes begin and end."""
    changed = {n: w for n, w in after.weights.items() if w != before.weights[n]}
    return ", ".join(
        f"{name} {'is probed' if weight else 'was probed'}" for name, weight in changed.items()
    )


def shares_in_force(seen: Seen) -> Floats:
    """(n,) what a round robin would give with the weights that are in force."""
    shares = np.zeros(len(seen))
    shares[seen.usable] = shares_of_weights(seen.weight[seen.usable])
    return shares


def _shares_before(shift: Shift | None, names: tuple[str, ...], base: Floats) -> Floats:
    """The shares to move on from; a backend that came back starts at its configured one."""
    if shift is None:
        return base
    before = np.fromiter(map(shift.shares.get, names, base.tolist()), float, len(names))
    return np.asarray(before / before.sum(), dtype=np.float64)


def _wanting(shift: Shift, seen: Seen, action: Action, reason: str) -> LoadSplit:
    shares = np.fromiter(map(shift.shares.get, seen.names, repeat(0.0)), float, len(seen))
    return LoadSplit(shift, shares, action, reason)
