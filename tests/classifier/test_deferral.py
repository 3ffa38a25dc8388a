"""What waiting for itself costs an application."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.classifier.deferral import LEAST_EXCESS, excess, left_over

fractions = st.floats(0.0, 1.0)


def test_the_least_excess_is_the_papers_goal_of_a_half() -> None:
    # T_f = d/(1 - d) = 0.5 at d = 1/3.
    assert pytest.approx(1 / 3) == LEAST_EXCESS


def test_waiting_as_usual_is_no_excess_and_less_is_none_either() -> None:
    now, quiet = np.array([0.4, 0.1, 1.0, 0.7]), np.full(4, 0.4)
    # Of the last one it is half of what was not waiting.
    assert excess(now, quiet).tolist() == pytest.approx([0.0, 0.0, 1.0, 0.5])


def test_without_now_or_without_a_quiet_past_there_is_no_excess() -> None:
    now, quiet = np.array([np.nan, 0.9, 1.0]), np.array([0.1, np.nan, 1.0])
    assert np.isnan(excess(now, quiet)).all()


def test_waiting_and_a_neighbour_multiply() -> None:
    # Waiting leaves 1/2, a neighbour 4/5 of that: 0.4 is left, 0.6 lost.
    assert left_over(0.6, 0.5) == pytest.approx(0.2)
    assert left_over(0.6, 0.0) == pytest.approx(0.6)
    assert left_over(0.6, 0.6) == 0.0
    assert left_over(0.6, 1.0) == 0.0


@given(fractions, fractions)
def test_no_more_is_left_over_than_is_lost(lost, waits) -> None:
    assert 0.0 <= left_over(lost, waits) <= lost + 1e-12
