"""Which resource to try next: the trading wheels of PARTIES (4.2.3, Figure 4).

Problem
    A service misses its target, and nobody knows for want of what.  Resources can be traded for
    one another (fungibility), so it is enough to try them in turn and to keep what helps.

Formula
    Two wheels in each direction: compute (cpu, cache, frequency) and storage (memory, disk).

    * first of all, a resource at random;
    * within a wheel, the next one round;
    * after a full turn of the compute wheel, up: to the storage wheel if memory is almost
      used up (its slack is below the machine's), else round again, for one unit of compute
      rarely empties a queue;
    * after a full turn of the compute wheel, down: to the storage wheel if there is memory to
      reclaim (slack above the machine's), else round again;
    * after a full turn of the storage wheel: a resource of the compute wheel at random;
    * the other direction: the same resource on the opposite side of the figure.

    A resource that cannot be moved now (not managed here, at its limit, nobody to take it from,
    or protected memory) is skipped.

Source
    Chen, Delimitrou, Martinez, ASPLOS 2019, 4.2.3.  That the other direction begins with the
    same resource is our reading of "opposite sides in the figure".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from dial.limits.knobs import Resource

COMPUTE = (Resource.CPU, Resource.CACHE, Resource.FREQUENCY)
STORAGE = (Resource.MEMORY, Resource.DISK)


class Direction(Enum):
    """Of an adjustment."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Action:
    """What a service's next adjustment is; the paper's <direction, resource>.

    Attributes
    ----------
    direction, resource
        Of the adjustment.
    entered
        Where the present turn of the wheel began.
    """

    direction: Direction
    resource: Resource
    entered: Resource


Possible = Callable[[Direction, Resource], bool]
"""Whether the service's share of a resource can be moved in that direction now."""


def next_action(
    action: Action | None,
    direction: Direction,
    *,
    possible: Possible,
    memory_slack: bool,
    draw: float,
) -> Action | None:
    """Return what to try next.

    Parameters
    ----------
    action
        The last one of this service; ``None`` before the first.
    direction
        Wanted now.
    possible
        See :data:`Possible`.
    memory_slack
        Whether the service has more memory to spare than the machine's least slack.
    draw
        A random number in [0, 1), used where the paper picks at random.

    Returns
    -------
    Action or None
        ``None`` if nothing can be moved in that direction.

    Examples
    --------
    Compute has made a full turn and memory is tight:

    >>> turn = Action(Direction.UP, Resource.FREQUENCY, Resource.CPU)
    >>> free = lambda direction, resource: True
    >>> next_action(turn, Direction.UP, possible=free, memory_slack=False, draw=0.0).resource
    <Resource.MEMORY: 'memory'>
    """
    if action is None:
        return _entering((*COMPUTE, *STORAGE), direction, possible, draw)
    if action.direction is not direction:
        if possible(direction, action.resource):
            return Action(direction, action.resource, action.resource)
        action = Action(direction, action.resource, action.resource)
    wheel, other = (COMPUTE, STORAGE) if action.resource in COMPUTE else (STORAGE, COMPUTE)
    for resource in _round(wheel, action.resource):
        if resource is action.entered:
            break
        if possible(direction, resource):
            return Action(direction, resource, action.entered)
    # A full turn.  Compute goes round again unless memory says otherwise; storage never does.
    leave = wheel is STORAGE or memory_slack is (direction is Direction.DOWN)
    for resources in (other, wheel) if leave else (wheel, other):
        first = _first_of(resources, action, draw)
        if found := _entering(first, direction, possible, 0.0):
            return found
    return None


def _round(wheel: Sequence[Resource], after: Resource) -> tuple[Resource, ...]:
    """The wheel once round, from the one after ``after`` to ``after`` itself."""
    at = wheel.index(after) + 1
    return (*wheel[at:], *wheel[:at])


def _first_of(wheel: Sequence[Resource], action: Action, draw: float) -> Sequence[Resource]:
    """The wheel in the order in which it is to be tried."""
    if action.resource in wheel:
        return _round(wheel, action.resource)
    if wheel is STORAGE:
        return wheel
    return _round(wheel, wheel[int(draw * len(wheel)) - 1])


def _entering(
    resources: Sequence[Resource], direction: Direction, possible: Possible, draw: float
) -> Action | None:
    found = [resource for resource in resources if possible(direction, resource)]
    if not found:
        return None
    resource = found[int(draw * len(found))]
    return Action(direction, resource, resource)
