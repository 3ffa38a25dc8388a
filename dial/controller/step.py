"""One tick: from an observation to a plan, without clock or I/O.

For the backends: detect, classify, estimate.  For the service: split the load, guard the
split, turn it into weights.  The same policy, state and observation always give the same
plan, which is what makes a recording replayable.

Regimes
    quiet
        No backend is in contention and the weights are none of our business, or only break ties
        between idle backends (:mod:`dial.controller.ties`): every interval that does not look
        slow is learnt from.
    shifted
        Some neighbour was found, and load is moved away.  Nothing is learnt.  The verdict
        stands until the *estimate* says that the neighbour is gone: less load makes T_x
        normal again while the neighbour is still there, and a controller that went by T_x
        would hand the load straight back, again and again.
    releasing
        All neighbours are gone: back to the configured weights, and once these are read
        back from the balancer, quiet.
    panic
        Most backends look contended: the same.
    yielded
        Somebody else sets the weights (:mod:`dial.controller.ownership`): nothing is written.
    frozen
        An operator has ordered that nothing be written (:mod:`dial.controller.orders`).

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.5 (control flow).  Departures: release on the
    estimate rather than on T_x; engaging needs an estimate of some size too, because
    what is expected is exceeded by chance and by the tenant's own load.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress

from dial.controller.arrivals import Arrivals
from dial.controller.judge import judge
from dial.controller.look import look_at
from dial.controller.orders import as_frozen, with_overrides, without_overrides
from dial.controller.ownership import somebody_elses
from dial.controller.policy import Policy
from dial.controller.split import not_ours, split_load
from dial.controller.state import Shift, State, moves_load
from dial.controller.ties import requests_ahead
from dial.controller.verdict import Planned
from dial.seen import Seen
from dial.types import Action, Observation, Plan


def step(policy: Policy, state: State, observation: Observation) -> tuple[State, Plan]:
    """Decide on one tick.

    Parameters
    ----------
    policy : fixed for the life of the controller.
    state : what the last tick left; ``State()`` at the start.
    observation : all that is new, the time included.

    Returns
    -------
    State
        For the next tick.
    Plan
        Shares and weights wanted, the verdict on each backend, and which weights differ
        from those in force.
    """
    seen = Seen.of(observation)
    names = seen.names
    in_force = dict(zip(names, seen.weight.tolist(), strict=True))
    quiet = not state.backends.contentions and _breaks_ties_only(state.shift, in_force)
    backends = state.backends.of(names)
    even = quiet and state.shift is None
    looks = look_at(policy, backends.known, seen, observation, even=even)
    backends, verdicts = judge(policy, backends, looks, tick=observation.tick, quiet=quiet)

    arrivals = _arrivals(state, seen)
    yielded = somebody_elses(state, seen, in_force, observation)
    if yielded is not None:
        split = not_ours(seen, Action.YIELD, yielded.reason)
    elif observation.orders.frozen:
        split = as_frozen(state.shift, seen, observation)
    else:
        split = split_load(
            policy,
            without_overrides(state.shift),
            backends.contentions,
            verdicts,
            observation,
            seen=seen,
            arrivals=arrivals,
            ahead=requests_ahead(
                policy,
                backends,
                state.shift,
                observation,
                seen=seen,
                peak_rps=verdicts.peak_rps,
                arrivals=arrivals,
            ),
        )
        split = with_overrides(split, state.shift, seen, observation)
    weights = in_force if observation.orders.frozen else in_force | _wanted(split.shift, seen)
    changes = tuple((name, weight) for name, weight in weights.items() if weight != in_force[name])

    action, reason = split.action, split.reason
    if changes and action is Action.HOLD:
        # Written again in any case.  In shadow mode this is every tick's state, so it is no
        # event of its own; that the balancer lost them is one.
        if state.epoch not in ("", observation.epoch):
            action, reason = Action.RESTORE, "the balancer was restarted and lost its weights"
        else:
            reason += "; its weights are not in force"
    plan = Plan.of_rows(
        Planned(names, verdicts, split.shares, [*weights.values()]),
        tick=observation.tick,
        now_s=observation.now_s,
        action=action,
        reason=reason,
        changes=changes,
    )
    return State(backends, split.shift, observation.epoch, in_force, yielded, arrivals), plan


def _breaks_ties_only(shift: Shift | None, in_force: Mapping[str, int]) -> bool:
    """Whether no load is shifted: no weights are wanted, or those in force that only break ties."""
    if shift is None:
        return True
    if moves_load(shift) or shift.underneath:
        return False
    return all(in_force.get(name, weight) == weight for name, weight in shift.weights.items())


def _arrivals(state: State, seen: Seen) -> Arrivals:
    # In order: a replay on another machine has to sum up to the same bits.
    rate_per_s = sum(seen.windows["rate_per_s"][seen.usable].tolist())
    before = state.arrivals
    return Arrivals.begin(rate_per_s) if before is None else before.step(rate_per_s)


def _wanted(shift: Shift | None, seen: Seen) -> dict[str, int]:
    """Weights of our own, of the backends that are there and that the admin left in."""
    if shift is None:
        return {}
    usable = set(compress(seen.names, seen.usable.tolist()))
    return {name: weight for name, weight in shift.weights.items() if name in usable}
