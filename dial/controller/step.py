"""One tick: from an observation to a plan, without clock or I/O.

For each backend: detect, classify, estimate.  For the service: split the load, guard the
split, turn it into weights.  The same policy, state and observation always give the same
plan, which is what makes a recording replayable.

Regimes
    quiet
        No backend is in contention and the weights are none of our business: every
        interval that does not look slow is learnt from.
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

from dial.controller.arrivals import Arrivals
from dial.controller.judge import judge
from dial.controller.look import look_at
from dial.controller.orders import as_frozen, with_overrides, without_overrides
from dial.controller.ownership import somebody_elses
from dial.controller.passed_over import passed_over
from dial.controller.policy import Policy
from dial.controller.siblings import ControlGroups
from dial.controller.split import not_ours, split_load
from dial.controller.state import BackendState, Shift, State
from dial.types import Action, BackendPlan, Observation, Plan, Verdict


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
    quiet = state.shift is None and all(b.contention is None for b in state.backends.values())
    known = {b.name: state.backends.get(b.name, BackendState()) for b in observation.backends}
    given = passed_over(observation, quiet=quiet)
    looks = {b.name: look_at(policy, known[b.name], b, given[b.name]) for b in observation.backends}
    histories = {n: (*known[n].history, look.apparent) for n, look in looks.items()}
    groups = ControlGroups(histories)
    backends: dict[str, BackendState] = {}
    verdicts: dict[str, Verdict] = {}
    for name, look in looks.items():
        backends[name], verdicts[name] = judge(
            policy, known[name], look, groups, tick=observation.tick, quiet=quiet
        )

    arrivals = _arrivals(state, observation)
    in_force = {b.name: b.server.weight for b in observation.backends}
    yielded = somebody_elses(state, observation)
    if yielded is not None:
        split = not_ours(observation, Action.YIELD, yielded.reason)
    elif observation.orders.frozen:
        split = as_frozen(state.shift, observation)
    else:
        split = split_load(
            policy,
            without_overrides(state.shift),
            backends,
            verdicts,
            observation,
            arrivals=arrivals,
        )
        split = with_overrides(split, state.shift, observation)
    weights = (
        in_force if observation.orders.frozen else in_force | _wanted(split.shift, observation)
    )
    changes = tuple((name, weight) for name, weight in weights.items() if weight != in_force[name])

    action, reason = split.action, split.reason
    if changes and action is Action.HOLD:
        # Written again in any case.  In shadow mode this is every tick's state, so it is no
        # event of its own; that the balancer lost them is one.
        if state.epoch not in ("", observation.epoch):
            action, reason = Action.RESTORE, "the balancer was restarted and lost its weights"
        else:
            reason += "; its weights are not in force"
    plan = Plan(
        tick=observation.tick,
        now_s=observation.now_s,
        action=action,
        reason=reason,
        backends=tuple(
            BackendPlan(b.name, verdicts[b.name], split.shares[b.name], weights[b.name])
            for b in observation.backends
        ),
        changes=changes,
    )
    return State(backends, split.shift, observation.epoch, in_force, yielded, arrivals), plan


def _arrivals(state: State, observation: Observation) -> Arrivals:
    rate_per_s = sum(b.window.rate_per_s for b in observation.backends if b.server.usable)
    before = state.arrivals
    return Arrivals.begin(rate_per_s) if before is None else before.step(rate_per_s)


def _wanted(shift: Shift | None, observation: Observation) -> dict[str, int]:
    """Weights of our own, of the backends that are there and that the admin left in."""
    if shift is None:
        return {}
    usable = {b.name for b in observation.backends if b.server.usable}
    return {name: weight for name, weight in shift.weights.items() if name in usable}
