"""No policy always comes after the same other one."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from dial_lab.order import in_round


def rounds_of(count: int) -> list[tuple[int, ...]]:
    """So many rounds that the design is whole."""
    return [in_round(number, range(count)) for number in range(count * (1 + count % 2))]


@pytest.mark.parametrize("count", range(1, 14))
def test_each_round_has_each_policy_once(count: int) -> None:
    assert all(sorted(order) == list(range(count)) for order in rounds_of(count))


@pytest.mark.parametrize("count", range(2, 14))
def test_each_policy_comes_directly_after_each_other_equally_often(count: int) -> None:
    after = Counter(pair for order in rounds_of(count) for pair in pairwise(order))
    assert len(after) == count * (count - 1)
    assert set(after.values()) == {1 + count % 2}


@pytest.mark.parametrize("count", range(1, 14))
def test_each_policy_is_at_each_place_equally_often(count: int) -> None:
    places = Counter(place for order in rounds_of(count) for place in enumerate(order))
    assert len(places) == count**2
    assert set(places.values()) == {1 + count % 2}
