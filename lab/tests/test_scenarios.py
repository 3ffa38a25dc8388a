"""Scenarios: what the tenant's own load does."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dial_lab.arrivals import Swing, draw
from dial_lab.scenarios import day_factors, scenario


def test_load_grows_once_for_the_whole_phase() -> None:
    assert scenario("load").swings(23.0, 68.0) == [Swing(23.0, 68.0, rate_factor=1.5)]


def test_who_visits_is_named_once_whether_the_scenario_says_which_program_or_not() -> None:
    assert scenario("none").neighbours == ()
    assert scenario("two-victims").neighbours == ("stress-ng-cpu",)
    assert scenario("mixed").neighbours == ("iperf3", "stress-ng-cpu")


def test_a_day_is_three_times_as_busy_as_its_night() -> None:
    # a = (3 - 1)/(3 + 1) = 1/2: 1.5 at the sixth hour, 0.5 at the eighteenth, 1 between them.
    factors = day_factors(3.0)
    assert factors[0] == 1.0
    assert max(factors) == factors[6] == pytest.approx(1.5)
    assert min(factors) == factors[18] == pytest.approx(0.5)
    assert sum(factors) / 24 == pytest.approx(1.0)


def test_no_hour_is_far_from_the_one_before_or_from_the_day_before() -> None:
    # The sine is steepest at the mean: sin(15 degrees)/2 = 0.129.
    factors = day_factors(3.0)
    assert max(abs(b - a) for a, b in pairwise((*factors, factors[0]))) < 0.13


def test_six_days_fill_the_phase_without_a_gap() -> None:
    swings = scenario("day-night").swings(123.0, 1923.0)
    assert len(swings) == 6 * 24
    assert (swings[0].begin_s, swings[-1].end_s) == (123.0, 1923.0)
    assert all(one.end_s == following.begin_s for one, following in pairwise(swings))
    assert swings[6].rate_factor == swings[30].rate_factor  # the same hour of the next day


def test_arrivals_follow_the_hours() -> None:
    swings = scenario("day-night").swings(0.0, 1440.0)
    at_s = draw(7, 0, 500.0, duration_s=1440.0, mean_cost=2000.0, swings=swings).at_s
    # Six days of 240 s, hours of 10 s: noon is the seventh, from 60 s on.
    noon = sum(int(((at_s >= d + 60.0) & (at_s < d + 70.0)).sum()) for d in range(0, 1440, 240))
    midnight = sum(
        int(((at_s >= d + 180.0) & (at_s < d + 190.0)).sum()) for d in range(0, 1440, 240)
    )
    # 45,000 and 15,000 expected.
    assert abs(noon - 45_000) < 5 * 45_000**0.5
    assert abs(midnight - 15_000) < 5 * 15_000**0.5
