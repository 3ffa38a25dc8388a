"""The arrival rate that load is split for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.controller.arrivals import Arrivals


def after(*rates_per_s: float) -> Arrivals:
    first, *others = rates_per_s
    found = Arrivals.begin(first)
    for rate_per_s in others:
        found = found.step(rate_per_s)
    return found


def test_a_steady_load_is_its_own_peak():
    assert after(40.0, 40.0, 40.0) == Arrivals(40.0, 40.0)


def test_load_that_comes_is_believed_as_fast_as_the_mean_follows():
    # 100, then 100 + 60/4 = 115, then 115 + 45/4 = 126.25.
    assert after(100.0, 160.0, 160.0) == Arrivals(126.25, 126.25)


def test_load_that_pauses_is_remembered():
    # 40 (3/4)^20 = 0.13 in the mean; 40 exp(-20/60) = 28.7 in the peak.
    found = after(40.0, *(20 * [0.0]))
    assert found.mean_per_s == pytest.approx(0.127, abs=0.001)
    assert found.peak_per_s == pytest.approx(28.66, abs=0.01)


def test_load_that_went_is_forgotten_in_minutes():
    # exp(-180/60) = 0.05.
    assert after(40.0, *(180 * [0.0])).peak_per_s == pytest.approx(40.0 * math.exp(-3.0))


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_the_peak_lies_between_the_mean_and_the_largest_rate(rates):
    found = after(*rates)
    assert found.mean_per_s <= found.peak_per_s <= max(rates)
