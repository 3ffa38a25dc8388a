"""The service, one tick: how its load is to be split, given the verdicts.

Target (the optimum of Eq. 2 where throughputs are known, else shares in proportion to what
is left of each backend), then the guards, then integer weights in the balancer's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from dial.columns import Bools, Floats, Ints
from dial.controller.arrivals import Arrivals
from dial.controller.guards import floor_share, limit_step, panics, stays, worth_writing
from dial.controller.policy import Policy
from dial.controller.probes import with_probes
from dial.controller.state import Contention, Shift, moves_load
from dial.controller.ties import part_in_turn
from dial.controller.verdict import Verdicts
from dial.optimizer import (
    LEAST_RATE,
    in_flight_split,
    integer_weights,
    lemma1,
    proportional_shares,
    rate_units,
    rate_weights,
    shares_of_weights,
    tail_optimal_shares,
)
from dial.optimizer.weights import ideal_weights
from dial.seen import Seen
from dial.types import Action, Observation, WeightKind, WeightMeaning

_LEAST_CAPACITY_LEFT = 0.02
"""Least part of a backend's throughput that is held to be left (see :func:`_target`)."""


_LIKELY = 0.5
"""Of the evidence for release: two intervals, for one counts 0.4 of it at most."""


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
    """The backends that load is split between, in the balancer's order.

    Those that can be used, without whom the admin gave a weight of 0: that one is to have nothing.

    Attributes
    ----------
    names
        Of each.
    rows
        (n,) of them among all backends.
    weight, configured
        (n,) weights in force, and in the balancer's own configuration.
    units
        Of a weight that is a service rate, by :func:`dial.optimizer.rate_units`.
    base, current
        (n,) shares as configured, and as the last plan wanted them.
    contended
        (n,) whether a neighbour was found.
    left
        (n,) part of its throughput that a neighbour leaves.
    ahead
        (n,) requests that each other is to have before it is taken; 0: it is taken as it comes.
    """

    names: tuple[str, ...]
    rows: Ints
    weight: Ints
    configured: Ints
    units: float
    base: Floats
    current: Floats
    contended: Bools
    left: Floats
    ahead: Ints

    @classmethod
    def of(
        cls,
        seen: Seen,
        contentions: Mapping[str, Contention],
        shift: Shift | None,
        meaning: WeightMeaning,
        ahead: Ints,
    ) -> _Pool:
        given = seen.usable & (seen.configured_weight > 0)
        rows = np.flatnonzero(given if given.any() else seen.usable)
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
            rate_units(seen.configured_weight, meaning),
            base,
            _shares_before(shift, names, base),
            contended,
            # What Eq. 1 says is lost may come to all there is; a backend that still answers has
            # something left, and a throughput of 0 has no optimum.
            np.maximum(left, _LEAST_CAPACITY_LEFT),
            ahead[rows],
        )

    @property
    def in_turn(self) -> Floats:
        """(n,) part of its configured weight that each has with nobody to blame."""
        return part_in_turn(self.ahead)

    @property
    def last(self) -> dict[str, int]:
        """Requests ahead of those who are to be taken last."""
        return {
            name: ahead
            for name, ahead in zip(self.names, self.ahead.tolist(), strict=True)
            if ahead > 0
        }


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
    ahead: Ints,
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
    ahead : (n,) requests that each other is to have before one is taken, with nobody to blame.

    Returns
    -------
    LoadSplit
        A backend that the admin took out keeps its weight and has a share of 0.
    """
    pool = _Pool.of(seen, contentions, shift, observation.meaning, ahead)
    if not pool.names:
        return not_ours(seen, Action.HOLD, "no backend is usable")
    contended = np.flatnonzero(pool.contended).tolist()
    if not contended:
        return _nobody_contends(policy, pool, shift, seen, observation.meaning)
    if panics(len(contended), len(pool.names), policy.guards.panic_fraction):
        return _panicking(policy, pool, shift, seen, observation.meaning)
    target = _target(policy, pool, verdicts, observation.meaning, arrivals=arrivals)
    who = ", ".join(f"{pool.names[at]} ({verdicts.cause(int(pool.rows[at]))})" for at in contended)
    action, reason = Action.SHIFT, f"load moves away from {who}"
    if target.overload:
        action = Action.OVERLOAD
        reason = f"more arrives than all can serve, so load is split by capacity; {who}"
    if (
        shift
        and shift.arrived
        # Whoever comes back, or anew, has no share yet: at most a weight by hand, or one that
        # knows nothing of the others'.
        and shift.shares.keys() >= set(pool.names)
        and not worth_writing(pool.current, target.shares, policy.guards.hysteresis)
    ):
        if not target.overload:
            action, reason = Action.HOLD, f"load stays away from {who}"
        held = _with_probes(policy, pool, shift, contentions, observation, before=shift)
        if held.weights != shift.weights:
            action, reason = Action.PROBE, f"{reason}; {_probed(shift, held)}"
        return _wanting(held, seen, action, reason)
    shares = limit_step(pool.current, target.shares, policy.guards.max_step)
    weights = _weights(pool, target, shares, observation.meaning, arrivals.peak_per_s)
    wanted = _shift(pool, target, shares, weights)
    wanted = _with_probes(policy, pool, wanted, contentions, observation, before=shift)
    return _wanting(wanted, seen, action, reason)


def _nobody_contends(
    policy: Policy, pool: _Pool, shift: Shift | None, seen: Seen, meaning: WeightMeaning
) -> LoadSplit:
    """The configured weights, or those that differ only in who is taken last of idle backends."""
    if not pool.last and _is_over(pool, shift):
        reason = "no neighbour found" if shift is None else "configured weights are in force"
        return not_ours(seen, Action.HOLD, reason)
    wanted = _back(policy, pool, shift, meaning)
    if moves_load(shift):
        return _wanting(wanted, seen, Action.RELEASE, "the neighbour is gone")
    if not pool.last:
        return _wanting(wanted, seen, Action.PREFER, "idle backends are taken as they come")
    last = ", ".join(
        f"{name} (after {ahead} at each other)" if ahead > 1 else name
        for name, ahead in pool.last.items()
    )
    reason = f"{last}: slower than its siblings, nobody to blame, so the last of idle backends"
    if shift is None or wanted.weights != shift.weights:
        return _wanting(wanted, seen, Action.PREFER, reason)
    return _wanting(wanted, seen, Action.HOLD, f"no neighbour found; {reason}")


def _panicking(
    policy: Policy, pool: _Pool, shift: Shift | None, seen: Seen, meaning: WeightMeaning
) -> LoadSplit:
    """The configured weights: too many look contended for that to be so."""
    many = np.count_nonzero(pool.contended)
    reason = f"{many} of {len(pool.names)} backends look contended: too many to be so"
    if _is_over(pool, shift):
        return not_ours(seen, Action.PANIC, reason)
    pool = replace(pool, ahead=np.zeros_like(pool.ahead))
    return _wanting(_back(policy, pool, shift, meaning), seen, Action.PANIC, reason)


def _is_over(pool: _Pool, shift: Shift | None) -> bool:
    """Whether no weight is our own any more."""
    return shift is None or np.array_equal(pool.configured, pool.weight)


def _back(policy: Policy, pool: _Pool, shift: Shift | None, meaning: WeightMeaning) -> Shift:
    """As far as one tick may go towards the weights that backends have with nobody to blame."""
    shares = proportional_shares(pool.base * pool.in_turn) if pool.last else pool.base
    target = _Target(shares, None)
    shares = limit_step(pool.current, target.shares, policy.guards.max_step)
    if np.array_equal(shares, pool.base):
        weights = pool.configured.tolist()
    else:
        weights = _weights(pool, target, shares, meaning)
    wanted = _shift(pool, target, shares, weights)
    # Whether a released backend has its weight again is for the next reading to say.
    ties_only = not moves_load(shift) or (wanted.arrived and bool(pool.last))
    return replace(wanted, ties_only=ties_only)


def _shift(pool: _Pool, target: _Target, shares: Floats, weights: list[int]) -> Shift:
    return Shift(
        dict(zip(pool.names, shares.tolist(), strict=True)),
        dict(zip(pool.names, weights, strict=True)),
        arrived=np.array_equal(shares, target.shares),
        ahead=pool.last,
    )


def _weights(
    pool: _Pool,
    target: _Target,
    shares: Floats,
    meaning: WeightMeaning,
    peak_per_s: float = 0.0,
) -> list[int]:
    """(n,) that hand out ``shares``, the target's or a step towards them."""
    configured = pool.configured.tolist()
    if meaning.kind is WeightKind.SERVICE_RATE:
        # A backend whose configured weight is 0 has a share of 0.
        left = np.divide(shares, pool.base, out=np.zeros(len(shares)), where=pool.base > 0.0)
        return rate_weights(left / float(left.max()), meaning, configured, pool.units)
    ideal = ideal_weights(shares, meaning, target.throughput_per_s, peak_per_s, aim=target.shares)
    return integer_weights(ideal, meaning, configured)


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
    are_known = not np.isnan(peak_rps).any()
    if meaning.kind is WeightKind.SERVICE_RATE:
        overload = are_known and arrivals.mean_per_s >= float((peak_rps * pool.left).sum())
        as_found = overload or policy.strategies.split != "exact"
        left = pool.left if as_found else np.maximum(pool.left, LEAST_RATE)
        left = np.minimum(left, pool.in_turn)
        return _Target(proportional_shares(pool.base * left), None, overload)
    if not are_known:
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
    policy: Policy,
    pool: _Pool,
    wanted: Shift,
    contentions: Mapping[str, Contention],
    observation: Observation,
    *,
    before: Shift | None,
) -> Shift:
    """What is wanted, and whether those who say next to nothing are probed in this tick."""
    fraction = len(wanted.shares) * floor_share(
        policy.guards.floor_share, len(wanted.shares), policy.percentile
    )
    configured = pool.configured.tolist()
    in_full = rate_weights(pool.in_turn, observation.meaning, configured, pool.units)
    tick = observation.tick
    return with_probes(
        wanted,
        contentions,
        observation.meaning,
        tick=tick,
        floor_of_even=fraction,
        expire_ticks=policy.guards.expire_ticks,
        in_full=dict(zip(pool.names, in_full, strict=True)),
        likely_gone=_LIKELY * policy.guards.release_evidence,
        probed=before.resting if before else (),
        staying=[name for name, found in contentions.items() if stays(policy.guards, found, tick)],
    )


def _probed(before: Shift, after: Shift) -> str:
    """In words, which probes begin and end."""
    begin = sorted(after.resting.keys() - before.resting.keys())
    end = sorted(before.resting.keys() - after.resting.keys())
    words = [f"{name} is probed" for name in begin] + [f"{name} was probed" for name in end]
    return ", ".join(words)


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
