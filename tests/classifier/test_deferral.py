"""The class intra-app: from the application's own signal, and from nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.classifier.deferral import (
    LEAST_EXCESS,
    excess,
    is_intra_app,
    left_over,
)
from dial.types import NoData

SILENT = NoData("no page")
fractions = st.floats(0.0, 1.0)


def test_the_least_excess_is_the_papers_goal_of_a_half() -> None:
    # T_f = d/(1 - d) = 0.5 at d = 1/3.
    assert pytest.approx(1 / 3) == LEAST_EXCESS


def test_waiting_as_usual_is_no_excess_and_less_is_none_either() -> None:
    assert excess(0.4, 0.4) == 0.0
    assert excess(0.1, 0.4) == 0.0
    assert excess(1.0, 0.4) == 1.0
    assert excess(0.7, 0.4) == pytest.approx(0.5)  # half of what was not waiting


def test_without_now_or_without_a_quiet_past_there_is_no_excess() -> None:
    assert excess(SILENT, 0.1) is SILENT
    assert excess(0.9, SILENT) is SILENT
    assert isinstance(excess(1.0, 1.0), NoData)


def test_waiting_and_a_neighbour_multiply() -> None:
    # Waiting leaves 1/2, a neighbour 4/5 of that: 0.4 is left, 0.6 lost.
    assert left_over(0.6, 0.5) == pytest.approx(0.2)
    assert left_over(0.6, 0.0) == pytest.approx(0.6)
    assert left_over(0.6, 0.6) == 0.0
    assert left_over(0.6, 1.0) == 0.0


@given(st.floats(0.0, 1.0), st.booleans(), st.floats(0.0, 1.0))
def test_without_the_signal_it_is_never_the_class(lost, hardware, least) -> None:
    assert not is_intra_app(SILENT, lost, hardware=hardware, least_rho_bg=least)


@given(st.floats(0.0, LEAST_EXCESS, exclude_max=True), fractions, st.booleans())
def test_waiting_that_the_goal_tolerates_is_never_the_class(waits, lost, hardware) -> None:
    assert not is_intra_app(waits, lost, hardware=hardware, least_rho_bg=0.15)


@pytest.mark.parametrize(
    ("waits", "lost", "hardware", "expected"),
    [
        (0.4, 0.6, False, True),  # 0.33 is left over, but no hardware shows anything
        (0.4, 0.6, True, False),  # a third of the capacity is not explained by waiting
        (0.55, 0.6, True, True),  # 1 - 0.4/0.45 = 0.11: less than is worth moving load for
        (0.4, SILENT, True, False),  # what is lost is not known: the tree's word stands
        (0.4, SILENT, False, True),
    ],
)
def test_hardware_that_the_tree_names_is_excused_only_if_waiting_explains_it(
    waits, lost, hardware, expected
) -> None:
    assert is_intra_app(waits, lost, hardware=hardware, least_rho_bg=0.15) is expected


@given(fractions, fractions)
def test_no_more_is_left_over_than_is_lost(lost, waits) -> None:
    assert 0.0 <= left_over(lost, waits) <= lost + 1e-12
