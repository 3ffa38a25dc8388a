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
    return Reading(CURVE, t_x_ms, rho_fg, requests)


def test_one_interval_alone_by_hand():
    # T = 40: 1 - rho = 10/40 = 0.25, rho_bg = 0.5; the tenant has 0.25 of the 0.5 that is left, so
    # the error is t_x_error(25, 0.5) = 0.46815.  Less the bias of 1/T: 0.25/(1 + 0.46815^2) =
    # 0.20506; rho_bg = 1 - 0.20506 - 0.25; its error 0.20506 * 0.46815.
    found = EXACT.begin(reading(40.0, 0.25, 25))
    assert found.mean == pytest.approx(0.54494, abs=1e-5)
    assert found.sd == pytest.approx(0.09600, abs=1e-5)


def test_faster_than_expected_is_a_negative_mean_and_a_value_of_zero():
    # T = 12.5: rho = 0.2, and the tenant alone uses 0.3.
    found = EXACT.begin(reading(12.5, 0.3, 10**9))
    assert found.mean == pytest.approx(-0.1)
    assert found.value == 0.0


def test_a_slowdown_of_1_is_no_neighbour_however_few_requests_it_rests_on():
    measured = Reading(SLOWDOWN, 1.0, 0.0, requests=1, percentile=None)
    assert EXACT.begin(measured).mean == 0.0
    assert EXACT.begin(measured).sd == pytest.approx(1.0)
    slowed = Reading(SLOWDOWN, 2.5, 0.0, requests=100, percentile=None)
    assert EXACT.begin(slowed).mean == pytest.approx(0.6)
    assert EXACT.begin(slowed).sd == pytest.approx(0.4 * 0.1)


def test_one_step_by_hand():
    # Expected rho 0.75, T 40; seen 44: 1 - rho = 10/44/(1 + 0.46815^2) = 0.18642, so the
    # newest rho_bg = 1 - 0.18642 - 0.25 = 0.56358.
    # sd = hypot(0.04, 0.03) = 0.05; noise = 0.25 * 0.46815 = 0.117036;
    # gain = 0.0025 / (0.0025 + 0.0136975) = 0.154345.
    found = EXACT.step(RhoBg(0.5, 0.04), reading(44.0, 0.25, 25))
    assert found.mean == pytest.approx(0.5 + 0.154345 * 0.06358, abs=1e-5)
    assert found.sd == pytest.approx(math.sqrt((1 - 0.154345) * 0.0025), abs=1e-5)
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
    """M/M/1 with the true curve: 100 intervals of 60 requests, 200 times over.

    The neighbour leaves a server of 1 - rho_bg, which the tenant's 0.2 uses; its T is that of
    Eq. 1 with rho = 0.2 + rho_bg.
    """
    random = np.random.default_rng(11)
    runs, ticks, requests = 200, 100, 60
    waits = random.exponential(1.0 / (1.0 - rho_bg), (runs, ticks * requests))
    steps = waits[:, :-1] - random.exponential(1.0 / 0.2, (runs, ticks * requests - 1))
    # Lindley's recursion: what waits is the sum of all steps above its least so far.
    sums = np.cumsum(np.pad(steps, ((0, 0), (1, 0))), axis=1)
    waits += sums - np.minimum.accumulate(sums, axis=1)
    scale_ms = CURVE.t_x_ms(0.0) / math.log(10.0)
    t90_ms = scale_ms * np.percentile(waits.reshape(runs, ticks, requests), 90, axis=2)
    means, sds = [], []
    for run in t90_ms:
        estimate = EXACT.begin(reading(float(run[0]), 0.2, requests))
        for t_x_ms in run[1:]:
            estimate = EXACT.step(estimate, reading(float(t_x_ms), 0.2, requests))
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
