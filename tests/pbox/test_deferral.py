"""The fields of a sample, from totals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.pbox.deferral import FIELDS, MOST_LEVEL, Totals, signals
from dial.types import NoData

seconds = st.floats(0.0, 1e9)
totals = st.builds(
    Totals, seconds, seconds, st.dictionaries(st.sampled_from("abc"), seconds, max_size=3)
)


def test_a_fifth_waited_is_a_quarter_of_what_is_left() -> None:
    # T_d/T_e = 2/10, T_f = 2/(10 - 2).
    told = signals(Totals(100.0, 1.0, {"a": 1.0}), Totals(110.0, 3.0, {"a": 1.5, "b": 1.5}))
    assert told["deferral_fraction"] == pytest.approx(0.2)
    assert told["interference_level"] == pytest.approx(0.25)
    assert told["top_resource"] == "b"  # 1.5 s of it in this interval, 0.5 s of a


def test_all_waiting_has_a_level_that_is_finite() -> None:
    told = signals(Totals(), Totals(3.0, 3.0, {"a": 3.0}))
    assert (told["deferral_fraction"], told["interference_level"]) == (1.0, MOST_LEVEL)


def test_a_wait_that_ended_now_and_began_long_ago_is_all_of_the_interval() -> None:
    assert signals(Totals(1.0, 0.0), Totals(2.0, 60.0))["deferral_fraction"] == 1.0


def test_no_activity_is_no_ratio_and_no_waiting_has_no_name() -> None:
    assert set(signals(Totals(5.0, 1.0), Totals(5.0, 1.0)).values()) == {
        NoData("no activity in this interval")
    }
    told = signals(Totals(5.0, 1.0, {"a": 1.0}), Totals(6.0, 1.0, {"a": 1.0}))
    assert told["deferral_fraction"] == 0.0
    assert told["top_resource"] == NoData("nothing was waited for")


@given(totals, totals)
def test_whatever_the_totals_are_the_fields_are_in_their_range(before: Totals, after: Totals):
    told = signals(before, after)
    assert tuple(told) == FIELDS
    fraction, level = told["deferral_fraction"], told["interference_level"]
    if isinstance(fraction, NoData):
        assert isinstance(level, NoData)
    else:
        assert 0.0 <= fraction <= 1.0
        assert 0.0 <= level <= MOST_LEVEL
