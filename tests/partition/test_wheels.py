from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.limits.knobs import Resource
from dial.partition.wheels import COMPUTE, STORAGE, Action, Direction, next_action

UP, DOWN = Direction.UP, Direction.DOWN


def anything(direction: Direction, resource: Resource) -> bool:
    return True


def walk(
    action: Action | None,
    direction: Direction,
    turns: int,
    *,
    memory_slack: bool,
    draw: float = 0.0,
) -> list[Resource]:
    tried = []
    for _ in range(turns):
        action = next_action(
            action, direction, possible=anything, memory_slack=memory_slack, draw=draw
        )
        assert action is not None
        tried.append(action.resource)
    return tried


@pytest.mark.parametrize(("draw", "first"), [(0.0, "cpu"), (0.5, "frequency"), (0.99, "disk")])
def test_the_first_resource_is_drawn_from_all_five(draw: float, first: str) -> None:
    found = next_action(None, UP, possible=anything, memory_slack=True, draw=draw)
    assert found is not None
    assert found.resource == first


def test_up_goes_round_compute_again_while_memory_is_to_spare() -> None:
    begun = Action(UP, Resource.CPU, Resource.CPU)
    tried = walk(begun, UP, 5, memory_slack=True)
    assert tried == ["cache", "frequency", "cpu", "cache", "frequency"]


def test_up_leaves_compute_for_storage_after_a_full_turn_when_memory_is_tight() -> None:
    begun = Action(UP, Resource.CACHE, Resource.CACHE)
    # frequency and cpu end the turn; then memory, disk, and a drawn one: 0.4 * 3 is the second.
    tried = walk(begun, UP, 5, memory_slack=False, draw=0.4)
    assert tried == ["frequency", "cpu", "memory", "disk", "cache"]


def test_down_goes_to_storage_after_a_full_turn_only_where_memory_is_to_be_had() -> None:
    begun = Action(DOWN, Resource.CPU, Resource.CPU)
    assert walk(begun, DOWN, 3, memory_slack=True)[-1] is Resource.MEMORY
    assert walk(begun, DOWN, 3, memory_slack=False)[-1] is Resource.CPU


def test_the_other_direction_begins_with_the_same_resource() -> None:
    was = Action(DOWN, Resource.DISK, Resource.MEMORY)
    found = next_action(was, UP, possible=anything, memory_slack=True, draw=0.9)
    assert found == Action(UP, Resource.DISK, Resource.DISK)


@given(
    possible=st.sets(st.sampled_from([*product(Direction, Resource)])),
    last=st.none()
    | st.builds(
        Action, st.sampled_from(Direction), st.sampled_from(Resource), st.sampled_from(Resource)
    ).filter(lambda action: (action.resource in COMPUTE) == (action.entered in COMPUTE)),
    direction=st.sampled_from(Direction),
    memory_slack=st.booleans(),
    draw=st.floats(0.0, 1.0, exclude_max=True),
)
def test_only_what_is_possible_is_chosen_and_something_whenever_anything_is(
    possible: set[tuple[Direction, Resource]],
    last: Action | None,
    direction: Direction,
    memory_slack: bool,
    draw: float,
) -> None:
    found = next_action(
        last,
        direction,
        possible=lambda d, r: (d, r) in possible,
        memory_slack=memory_slack,
        draw=draw,
    )
    able = {resource for way, resource in possible if way is direction}
    assert (found is not None) == bool(able)
    if found is not None:
        assert found.direction is direction
        assert found.resource in able
        assert (found.entered in STORAGE) == (found.resource in STORAGE)


@given(
    able=st.sets(st.sampled_from(Resource), min_size=1),
    first=st.floats(0.0, 1.0, exclude_max=True),
)
def test_up_reaches_every_resource_that_can_move_when_memory_is_tight(
    able: set[Resource], first: float
) -> None:
    action, tried = None, set()
    # Two turns of both wheels: five resources each, and where the draw enters a wheel is free.
    for _ in range(12):
        action = next_action(
            action, UP, possible=lambda d, r: r in able, memory_slack=False, draw=first
        )
        assert action is not None
        tried.add(action.resource)
    assert tried == able
