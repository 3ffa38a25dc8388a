"""Whose the weights are: DIAL sets them only where nobody else does.

An admin who sets a weight by hand, an agent of the balancer's that states one, a second
controller: whoever it is, two writers undo each other's work, and the balancer's admin is right.
So DIAL yields: it says so, goes on looking, and writes nothing until all weights are the
configured ones again, which is how whoever set them hands them back.

    all configured          they may be ours
    somebody changed one    yielded, until all are configured
    ours, or as they were   ours while we shift load, somebody else's while we do not
"""

from __future__ import annotations

from dial.controller.guards import changed_by_others
from dial.controller.state import State
from dial.types import Observation


def somebody_elses(state: State, observation: Observation) -> str:
    """Why the weights in force are none of our business; empty where they are.

    Parameters
    ----------
    state : what the last tick left.
    observation : of this tick.
    """
    usable = [b.server for b in observation.backends if b.server.usable]
    moved = [s for s in usable if s.weight != s.configured_weight]
    if not moved:
        return ""
    if state.yielded:
        return state.yielded
    if state.shift is None:
        what = ", ".join(f"{s.name} {s.weight} instead of {s.configured_weight}" for s in moved)
        return f"weights were set by somebody else: {what}"
    if state.epoch != observation.epoch:
        return ""  # What a restart leaves is no writer's.
    now = {s.name: s.weight for s in usable}
    changed = changed_by_others(state.shift.weights, state.in_force, now)
    what = ", ".join(f"{name} {state.in_force[name]} to {now[name]}" for name in changed)
    return f"weights were changed by somebody else: {what}" if changed else ""
