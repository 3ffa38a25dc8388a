"""Whose the weights are: DIAL sets them only where nobody else does.

An admin who sets a weight by hand, an agent of the balancer's that states one, a second
controller: whoever it is, two writers undo each other's work, and the balancer's admin is right.
So DIAL yields: it says so, takes back its own weights, goes on looking, and moves no load until
all weights are the configured ones again, which is how whoever set them hands them back.

    all configured          they may be ours
    somebody changed one    yielded, until all are configured
    ours, or as they were   ours while we shift load, somebody else's while we do not

A balancer may say that nobody but DIAL can write to it (``WeightMeaning.sole_writer``).  Weights
that are in force there while we shift no load are what an earlier controller left: to yield to it
would be to wait for ever.  They are put back (:mod:`dial.lease`).

Two controllers that have both yielded to each other must not both come back at once, so after a
change in the middle of a shift each waits for a time of its own.
"""

from __future__ import annotations

import numpy as np

from dial.controller.guards import changed_by_others
from dial.controller.state import State, Yield
from dial.seen import Seen
from dial.types import Observation

_LEAST_WAIT_TICKS, _SPREAD_TICKS = 30, 60
"""A tick finds out who came back first, and a shift takes some ten."""


def somebody_elses(
    state: State, seen: Seen, now: dict[str, int], observation: Observation
) -> Yield | None:
    """Why the weights in force are none of our business; ``None`` where they are.

    Parameters
    ----------
    state : what the last tick left.
    seen : the backends of the observation.
    now : their weights in force.
    observation : of this tick.
    """
    moved = np.flatnonzero(seen.usable & (seen.weight != seen.configured_weight))
    if state.yielded is not None and (moved.size or observation.tick < state.yielded.until_tick):
        return state.yielded
    if state.shift is None:
        if not moved.size or observation.meaning.sole_writer:
            return None
        what = ", ".join(
            f"{seen.names[row]} {seen.weight[row]} instead of {seen.configured_weight[row]}"
            for row in moved.tolist()
        )
        return Yield(f"weights were set by somebody else: {what}", observation.tick)
    if state.epoch != observation.epoch:
        return None  # What a restart leaves is no writer's.
    changed = changed_by_others(state.shift.weights, state.in_force, now)
    if not changed:
        return None
    what = ", ".join(f"{name} {state.in_force[name]} to {now[name]}" for name in changed)
    return Yield(
        f"weights were changed by somebody else: {what}",
        observation.tick + _wait_ticks(observation),
    )


def _wait_ticks(observation: Observation) -> int:
    """By the microseconds of the clock, which no two controllers read at the same moment."""
    return _LEAST_WAIT_TICKS + int(observation.now_s * 1e6) % _SPREAD_TICKS
