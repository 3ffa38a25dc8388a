"""The rules that keep a plan from doing harm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.controller.guards import floor_share, limit_step, worth_writing


@st.composite
def share_pairs(draw):
    n = draw(st.integers(1, 12))
    parts = st.lists(st.floats(0.0, 1.0), min_size=n, max_size=n).filter(lambda x: sum(x) > 1e-3)
    current, target = (np.array(draw(parts)) for _ in range(2))
    return current / current.sum(), target / target.sum()


def test_the_floor_is_a_fraction_of_the_even_share():
    assert floor_share(0.1, 4, 99.0) == 0.025  # 0.1 of 1/4
    assert floor_share(1.0, 3, 99.0) == 1.0 / 3  # everybody keeps the even share
    assert floor_share(0.0, 3, 99.0) == 0.0


@pytest.mark.parametrize(
    ("backends", "percentile", "floor"),
    [
        (3, 90.0, 0.1 / 3),  # as much as a third of the tenth that may be slower
        (3, 95.0, 0.05 / 3),  # a third of a twentieth
        (3, 99.0, 0.01 / 3),
        (20, 95.0, 0.1 / 20),  # 0.1 of the even share is less
    ],
)
def test_the_floor_is_no_more_than_a_third_of_the_tail(backends, percentile, floor):
    assert floor_share(None, backends, percentile) == pytest.approx(floor)


def test_a_small_step_is_taken_whole():
    # Even share 1/2, so 0.5 of it is 0.25; the largest move is 0.2.
    target = np.array([0.3, 0.7])
    assert limit_step(np.array([0.5, 0.5]), target, 0.5) is target


def test_a_large_step_is_cut_to_the_limit_in_the_same_direction():
    # Moves (-0.3, 0.1, 0.2); the largest may be 0.5/3 = 1/6, so all are cut to 5/9 of it.
    current = np.array([1 / 3, 1 / 3, 1 / 3])
    move = np.array([-0.3, 0.1, 0.2])
    found = limit_step(current, current + move, 0.5)
    assert found - current == pytest.approx(move * 5 / 9)


def test_a_limit_of_zero_stands_still():
    current = np.array([0.5, 0.5])
    assert limit_step(current, np.array([0.1, 0.9]), 0.0) == pytest.approx(current)


@given(pair=share_pairs(), fraction=st.floats(0.01, 1.0))
def test_a_limited_step_keeps_the_sum_the_sign_and_the_limit(pair, fraction):
    current, target = pair
    found = limit_step(current, target, fraction)
    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= -1e-12
    assert np.abs(found - current).max() <= fraction / current.size + 1e-12


@given(pair=share_pairs(), fraction=st.floats(0.01, 1.0))
def test_repeated_steps_arrive(pair, fraction):
    current, target = pair
    # No share moves more than 1, a step moves the largest by fraction/n.
    for _ in range(int(current.size / fraction) + 2):
        current = limit_step(current, target, fraction)
    assert current == pytest.approx(target)


def test_only_more_than_the_hysteresis_is_worth_writing():
    # 0.25 of the even share of 1/2 is 0.125 (all of them exact in binary).
    current = np.array([0.5, 0.5])
    assert not worth_writing(current, current, 0.25)
    assert not worth_writing(current, np.array([0.375, 0.625]), 0.25)
    assert worth_writing(current, np.array([0.374, 0.626]), 0.25)
