"""Eq. 1, its inverse and fit, Eq. 2."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.queueing import (
    TailCurve,
    fit_tail_curve,
    percentile_factor,
    t_x_error,
    tail_latency_s,
)

milliseconds = st.floats(1e-3, 1e5)
coefficient = st.one_of(st.just(0.0), st.floats(1e-3, 1e4))
utilisation = st.floats(0.0, 0.999)
curves = st.builds(TailCurve, coefficient, milliseconds, coefficient)


def test_the_90th_percentile_is_ln_10_mean_sojourn_times():
    # Exp(1) exceeds ln 10 with probability exp(-ln 10) = 1/10.
    assert percentile_factor(90.0) == pytest.approx(math.log(10.0), rel=1e-15)
    # The paper's other example: the 95th gives ln 20.
    assert percentile_factor(95.0) == pytest.approx(math.log(20.0), rel=1e-14)


def test_a_percentile_near_0_does_not_cancel():
    # -ln(1 - y) = y + y^2/2 + ...; the naive 1 - 1e-18 would give 0.
    assert percentile_factor(1e-16) == pytest.approx(1e-18, rel=1e-12)


@pytest.mark.parametrize("percentile", [0.0, 100.0, -1.0, 100.1, math.nan, math.inf])
def test_percentile_factor_refuses_what_is_no_percentile(percentile):
    with pytest.raises(ValueError, match="percentile = "):
        percentile_factor(percentile)


def test_the_error_of_a_percentile_of_few_independent_times_by_hand():
    # sqrt(0.9 / (0.1 * 400)) / ln 10 = 0.15 / 2.302585 = 0.065144; levelled: times 0.6/0.60353.
    assert t_x_error(400, 0.0, 90.0) == pytest.approx(0.064763, abs=1e-6)


def test_the_error_of_a_percentile_of_a_busy_queue_by_hand():
    # f(0.5) = 0.5 * 3.625 / 0.25 = 7.25; 0.260576 sqrt(8.25) = 0.748446, levelled 0.468142.
    assert t_x_error(25, 0.5, 90.0) == pytest.approx(0.468142, abs=1e-5)


@pytest.mark.parametrize("requests", [30, 85, 300])
@pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
def test_that_error_is_what_simulated_queues_show(requests, rho):
    random = np.random.default_rng(3)
    ticks = 3000
    service = random.exponential(1.0, ticks * requests)
    steps = service[:-1] - random.exponential(1.0 / rho, ticks * requests - 1)
    sums = np.concatenate([[0.0], np.cumsum(steps)])
    times = service + sums - np.minimum.accumulate(sums)
    t90 = np.percentile(times.reshape(ticks, requests), 90, axis=1)
    assert t_x_error(requests, rho, 90.0) == pytest.approx(np.std(np.log(t90)), rel=0.2)


def test_tail_latency_is_eq_2():
    # p/(r - a p): 0.75/(100 - 45) + 0.25/(50 - 15) = 0.0136364 + 0.0071429 = 0.0207792 s,
    # times ln 10 = 2.3025851 is 0.0478459 s.
    found = tail_latency_s(np.array([0.75, 0.25]), np.array([100.0, 50.0]), 60.0, 90.0)
    assert found == pytest.approx(0.0478459, rel=1e-5)


def test_tail_latency_is_infinite_at_and_beyond_saturation():
    r = np.array([30.0, 50.0])
    assert tail_latency_s(np.array([0.5, 0.5]), r, 60.0, 90.0) == math.inf  # 30 of 30
    assert tail_latency_s(np.array([0.9, 0.1]), r, 60.0, 90.0) == math.inf  # 54 of 30


def test_a_backend_without_a_share_adds_nothing_however_slow():
    # 1/(100 - 60) = 0.025 s.
    found = tail_latency_s(np.array([1.0, 0.0]), np.array([100.0, 1e-9]), 60.0, 90.0)
    assert found == pytest.approx(0.025 * math.log(10.0))


def test_eq_1_by_hand():
    # u = 1/(1 - 0.5) = 2: 2 + 3*2 + 4*4 = 24.  u = 1 at rho = 0: 2 + 3 + 4 = 9.
    curve = TailCurve(2.0, 3.0, 4.0)
    assert curve.t_x_ms(0.5) == 24.0
    assert curve.t_x_ms(0.0) == 9.0
    assert curve.t_x_ms(1.0) == math.inf
    assert curve.t_x_ms(1.5) == math.inf


def test_the_inverse_by_hand():
    # 24 - 2 = 22 = 3u + 4u^2 has the root u = (-3 + sqrt(9 + 352))/8 = (19 - 3)/8 = 2.
    assert TailCurve(2.0, 3.0, 4.0).utilisation(24.0) == 0.5
    # c2 = 0: 10 = 5u.  c1 = 0: 36 = 4u^2, u = 3.
    assert TailCurve(0.0, 5.0, 0.0).utilisation(10.0) == 0.5
    assert TailCurve(0.0, 0.0, 4.0).utilisation(36.0) == pytest.approx(2.0 / 3.0, rel=1e-15)


@pytest.mark.parametrize("c2_ms", [0.0, 1e-300, 1e-18, 1e-9, 1.0, 1e6])
def test_the_inverse_is_exact_from_no_quadratic_term_to_nothing_else(c2_ms):
    curve = TailCurve(1.0, 5.0, c2_ms)
    for rho in (0.01, 0.5, 0.9, 0.999):
        assert curve.utilisation(curve.t_x_ms(rho)) == pytest.approx(rho, rel=1e-12)


@given(curve=curves, rho=utilisation)
def test_the_inverse_undoes_eq_1(curve, rho):
    # Where c0 is the whole of T_x, T_x has lost the digits that tell u: allow for that.
    t_x_ms = curve.t_x_ms(rho)
    lost = 1e-12 * (1.0 + curve.c0_ms / (t_x_ms - curve.c0_ms))
    assert curve.utilisation(t_x_ms) == pytest.approx(rho, abs=lost)


@given(curve=curves, times=st.tuples(st.floats(0.0, 1e6), st.floats(0.0, 1e6)))
def test_more_latency_never_means_less_use(curve, times):
    low, high = sorted(times)
    assert 0.0 <= curve.utilisation(low) <= curve.utilisation(high) <= 1.0


@given(curve=curves, rhos=st.tuples(utilisation, utilisation))
def test_more_use_never_means_less_latency(curve, rhos):
    low, high = sorted(rhos)
    assert curve.t_x_ms(low) <= curve.t_x_ms(high)


@pytest.mark.parametrize("t_x_ms", [0.0, 1.0, 2.0, 8.99, 9.0])
def test_faster_than_idle_means_no_use(t_x_ms):
    assert TailCurve(2.0, 3.0, 4.0).utilisation(t_x_ms) == 0.0


@given(factor=st.floats(1e-3, 1e3), rho=st.floats(0.0, 0.99))
def test_a_scaled_curve_has_the_same_shape(factor, rho):
    curve = TailCurve(0.2, 0.5, 0.3)
    scaled = curve.scaled(factor)
    assert scaled.t_x_ms(rho) == pytest.approx(factor * curve.t_x_ms(rho))
    assert scaled.utilisation(scaled.t_x_ms(rho)) == pytest.approx(rho, abs=1e-9)


@pytest.mark.parametrize(
    ("coefficients", "complaint"),
    [
        ((-1.0, 1.0, 1.0), "finite and >= 0"),
        ((1.0, math.nan, 1.0), "finite and >= 0"),
        ((1.0, 1.0, math.inf), "finite and >= 0"),
        ((1.0, 0.0, 0.0), "no slope"),
    ],
)
def test_a_curve_that_cannot_be_inverted_is_refused(coefficients, complaint):
    with pytest.raises(ValueError, match=complaint):
        TailCurve(*coefficients)


@pytest.mark.parametrize("known", [(2.0, 3.0, 4.0), (0.0, 5.0, 0.0), (1.0, 0.0, 0.5)])
def test_the_fit_finds_the_coefficients_that_made_the_points(known):
    rho = np.linspace(0.05, 0.95, 19)
    made = TailCurve(*known)
    found = fit_tail_curve(rho, [made.t_x_ms(x) for x in rho])
    assert (found.c0_ms, found.c1_ms, found.c2_ms) == pytest.approx(known, rel=1e-8, abs=1e-9)


def test_the_fit_is_never_negative_where_a_free_one_would_be():
    # T = 10 u^2 - 10 u on u = 1.25, 2, 5: the free fit has c1 = -10.
    rho = np.array([0.2, 0.5, 0.8])
    found = fit_tail_curve(rho, [3.125, 20.0, 200.0])
    assert min(found.c0_ms, found.c1_ms, found.c2_ms) >= 0.0


@given(
    points=st.lists(
        st.tuples(st.floats(0.0, 0.95), st.floats(0.1, 1e4)),
        min_size=3,
        max_size=20,
        unique_by=lambda point: round(point[0], 2),
    )
)
def test_the_fit_is_a_curve_or_a_refusal_whatever_the_points(points):
    rho, t_x_ms = zip(*points, strict=True)
    refusal = ""
    try:
        found = fit_tail_curve(rho, t_x_ms)
    except ValueError as error:
        refusal = str(error)
    assert "no slope" in refusal or min(found.c0_ms, found.c1_ms, found.c2_ms) >= 0.0


def test_the_fit_leaves_out_what_is_too_steep_or_no_measurement():
    rho = [0.1, 0.5, 0.9, 0.99, 0.3, 0.4, math.nan, -0.1]
    made = TailCurve(2.0, 3.0, 4.0)
    t_x_ms = [made.t_x_ms(x) for x in (0.1, 0.5, 0.9)] + [1.0, math.nan, math.inf, 5.0, 5.0]
    found = fit_tail_curve(rho, t_x_ms)
    assert (found.c0_ms, found.c1_ms, found.c2_ms) == pytest.approx((2.0, 3.0, 4.0), rel=1e-8)


@pytest.mark.parametrize(
    ("rho", "t_x_ms"),
    [
        ([0.1, 0.5], [1.0, 2.0]),
        ([0.1, 0.5, 0.99], [1.0, 2.0, 3.0]),
        ([0.1, 0.5, 0.9], [1.0, 2.0, -3.0]),
        ([0.5, 0.5, 0.5, 0.5], [1.0, 1.1, 0.9, 1.0]),  # one utilisation tells no slope
    ],
)
def test_the_fit_refuses_fewer_than_three_utilisations(rho, t_x_ms):
    with pytest.raises(ValueError, match="at least 3"):
        fit_tail_curve(rho, t_x_ms)


def test_the_fit_refuses_points_without_a_slope():
    with pytest.raises(ValueError, match="no slope"):
        fit_tail_curve([0.1, 0.5, 0.9], [9.0, 9.0, 9.0])


def test_the_fit_refuses_columns_of_unequal_length():
    with pytest.raises(ValueError, match=r"want two \(n,\) arrays"):
        fit_tail_curve([0.1, 0.5, 0.9], [1.0, 2.0])
