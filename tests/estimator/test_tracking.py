"""rho_bg followed over time: the error bars, steadiness and quick answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.estimator import SLOWDOWN, Reading, RhoBg, Tracker
from dial.queueing import TailCurve

CURVE = TailCurve(0.0, 10.0, 0.0)  # T = 10 ms / (1 - rho)
EXACT = Tracker(model_error=0.0)


def reading(t_x_ms, rho_fg, requests):
    return Reading(CURVE, t_x_ms, rho_fg, EXACT.t_x_error(requests))


def test_the_error_of_a_percentile_by_hand():
    # sqrt(0.9 / (0.1 * 25)) / ln 10 = sqrt(0.36) / 2.3026 = 0.6 / 2.3026
    assert EXACT.t_x_error(25) == pytest.approx(0.26058, abs=1e-5)


def test_that_error_is_what_sampling_shows():
    # The logarithms of P90 of 400 exponential times, 4,000 times over: theory 0.06514.
    random = np.random.default_rng(5)
    p90 = np.percentile(random.exponential(1.0, (4000, 400)), 90, axis=1)
    assert np.std(np.log(p90)) == pytest.approx(EXACT.t_x_error(400), rel=0.05)


def test_one_interval_alone_by_hand():
    # T = 40: 1 - rho = 10/40 = 0.25, less the bias of 1/T: 0.25/(1 + 0.26058^2) = 0.234103;
    # rho_bg = 1 - 0.234103 - 0.25; its error 0.234103 * 0.26058.
    found = EXACT.begin(reading(40.0, 0.25, 25))
    assert found.mean == pytest.approx(0.515897, abs=1e-5)
    assert found.sd == pytest.approx(0.061003, abs=1e-5)


def test_faster_than_expected_is_a_negative_mean_and_a_value_of_zero():
    # T = 12.5: rho = 0.2, and the tenant alone uses 0.3.
    found = EXACT.begin(reading(12.5, 0.3, 10**9))
    assert found.mean == pytest.approx(-0.1)
    assert found.value == 0.0


def test_a_slowdown_of_1_is_no_neighbour_however_few_requests_it_rests_on():
    measured = Reading(SLOWDOWN, 1.0, rho_fg=0.0, error=1.0, skewed=False)
    assert EXACT.begin(measured).mean == 0.0
    assert EXACT.begin(measured).sd == pytest.approx(1.0)
    assert EXACT.begin(Reading(SLOWDOWN, 2.5, 0.0, 0.1, skewed=False)).mean == pytest.approx(0.6)


def test_one_step_by_hand():
    # Expected rho 0.75, T 40; seen 44: 1 - rho = 10/44/(1 + 0.26058^2) = 0.212822, so the
    # newest rho_bg = 1 - 0.212822 - 0.25 = 0.537178.
    # sd = hypot(0.04, 0.03) = 0.05; noise = 0.25 * 0.26058 = 0.065145;
    # gain = 0.0025 / (0.0025 + 0.0042439) = 0.37071.
    found = EXACT.step(RhoBg(0.5, 0.04), reading(44.0, 0.25, 25))
    assert found.mean == pytest.approx(0.5 + 0.37071 * 0.037178, abs=1e-5)
    assert found.sd == pytest.approx(math.sqrt((1 - 0.37071) * 0.0025), abs=1e-5)
    assert found.surprise == 0


def test_one_surprise_is_set_aside_and_a_second_on_the_same_side_is_believed():
    steady = RhoBg(0.6, 0.03)
    once = Tracker().step(steady, reading(11.0, 0.1, 60))
    assert (once.mean, once.surprise) == (0.6, -1)
    twice = Tracker().step(once, reading(11.0, 0.1, 60))
    assert twice == Tracker().begin(reading(11.0, 0.1, 60))
    assert abs(twice.mean) < 0.05
    assert twice.surprise == 0


def test_surprises_on_two_sides_are_noise():
    once = Tracker().step(RhoBg(0.6, 0.03), reading(10.0, 0.1, 60))
    twice = Tracker().step(once, reading(200.0, 0.1, 60))
    assert (once.surprise, twice.surprise) == (-1, 1)
    assert twice.mean == 0.6


def test_many_requests_count_more_than_few():
    few = Tracker().step(RhoBg(0.5, 0.05), reading(50.0, 0.25, 20))
    many = Tracker().step(RhoBg(0.5, 0.05), reading(50.0, 0.25, 2000))
    assert 0.5 < few.mean < many.mean


def test_a_log_that_says_zero_milliseconds_is_no_error():
    assert math.isfinite(Tracker().step(RhoBg(0.5, 0.05), reading(0.0, 0.1, 30)).mean)


@pytest.mark.parametrize("rho_bg", [0.0, 0.3, 0.6])
def test_the_running_estimate_is_unbiased_and_its_error_bar_honest(rho_bg):
    # M/M/1 with the true curve: 100 intervals of 30 requests, 200 times over.
    random = np.random.default_rng(11)
    log10 = math.log(10.0)
    means, sds = [], []
    for _ in range(200):
        estimate = None
        for _ in range(100):
            mean_ms = CURVE.t_x_ms(0.2 + rho_bg) / log10
            t90 = float(np.percentile(random.exponential(mean_ms, 30), 90))
            estimate = (
                EXACT.begin(reading(t90, 0.2, 30))
                if estimate is None
                else EXACT.step(estimate, reading(t90, 0.2, 30))
            )
        means.append(estimate.mean)
        sds.append(estimate.sd)
    assert np.mean(means) == pytest.approx(rho_bg, abs=0.025)
    assert 0.5 < np.std(means) / np.mean(sds) < 1.3


@given(
    mean=st.floats(-1.0, 1.0),
    sd=st.floats(0.0, 1.0),
    t_x_ms=st.floats(0.0, 1e9),
    rho_fg=st.floats(0.0, 1.0),
    requests=st.integers(0, 10**9),
)
def test_the_estimate_is_finite_whatever_comes(mean, sd, t_x_ms, rho_fg, requests):
    found = Tracker().step(RhoBg(mean, sd), reading(t_x_ms, rho_fg, requests))
    assert math.isfinite(found.mean)
    assert found.sd >= 0.0
    assert 0.0 <= found.value <= 1.0
