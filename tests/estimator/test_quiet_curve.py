"""rho_bg of one interval by the inverse of Eq. 1, and the curve learnt in quiet times."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.columns import column
from dial.estimator import QuietCurve, Reading, Tracker
from dial.queueing import TailCurve
from dial.types import NoData

CURVE = TailCurve(0.0, 6.0, 0.0)
"""6/(1 - rho) ms: 10 ms at rho 0.4, 20 ms at 0.7, 60 ms at 0.9."""


def learn(*intervals, past=None, memory_intervals=10**18):
    """What one backend's curve is after intervals of T_x and rho_fg."""
    past = past or QuietCurve.blank(1)
    for t_x_ms, rho_fg in intervals:
        past = past.learn(column([t_x_ms]), column([rho_fg]), memory_intervals=memory_intervals)
    return past


def rho_bg(curve, t_x_ms, rho_fg):
    return Tracker().begin(Reading(curve, t_x_ms, rho_fg, requests=1e30)).mean


def test_rho_bg_is_what_rho_fg_does_not_explain():
    # 20 ms means rho 0.7, of which the tenant uses 0.4.
    assert rho_bg(CURVE, 20.0, 0.4) == pytest.approx(0.3)


def test_expected_latency_means_no_neighbour():
    assert rho_bg(CURVE, 10.0, 0.4) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("t_x_ms", [0.0, 5.0, 9.9])
def test_faster_than_expected_is_no_neighbour(t_x_ms):
    assert Tracker().begin(Reading(CURVE, t_x_ms, 0.4, requests=1e30)).value == 0.0


def test_beyond_all_measure_is_all_the_rest():
    assert rho_bg(CURVE, 1e12, 0.4) == pytest.approx(0.6, abs=1e-9)
    assert rho_bg(CURVE, 1e300, 0.4) == 0.6
    assert rho_bg(CURVE, 100.0, 1.0) < 0.0  # the tenant itself uses everything


@given(t_x_ms=st.floats(0.0, 1e9), rho_fg=st.floats(0.0, 1.0))
def test_rho_bg_is_never_more_than_the_tenant_leaves(t_x_ms, rho_fg):
    assert -rho_fg <= rho_bg(CURVE, t_x_ms, rho_fg) <= 1.0 - rho_fg


@given(
    curve=st.builds(TailCurve, st.floats(0.0, 10.0), st.floats(0.1, 10.0), st.floats(0.0, 10.0)),
    rho_fg=st.floats(0.0, 0.9),
    taken=st.floats(0.0, 1.0),
)
def test_the_true_rho_bg_is_found_where_eq_1_holds(curve, rho_fg, taken):
    true = taken * (0.95 - rho_fg)
    t_x_ms = curve.t_x_ms(rho_fg + true)
    assert rho_bg(curve, t_x_ms, rho_fg) == pytest.approx(true, abs=1e-9)


def test_the_quiet_curve_is_the_mean_of_t_x_times_what_is_idle():
    # 10 (1 - 0.4) = 6 and 16 (1 - 0.5) = 8: c1 = 7.
    curve = learn((10.0, 0.4), (16.0, 0.5)).curve(0)
    assert (curve.c0_ms, curve.c2_ms) == (0.0, 0.0)
    assert curve.c1_ms == pytest.approx(7.0)


def test_any_shape_finds_its_scale_in_the_same_sums():
    # 3 (0.2 + 0.5 u + 0.3 u^2): u = 2 gives 7.2 ms, u = 1.25 gives 3.88125 ms.
    shape = TailCurve(0.2, 0.5, 0.3)
    curve = learn((7.2, 0.5), (3.88125, 0.2)).curve(0, shape)
    assert (curve.c0_ms, curve.c1_ms, curve.c2_ms) == pytest.approx((0.6, 1.5, 0.9))


def test_the_quiet_curve_fades():
    # memory 10: (0.9 * 6 + 8)/(0.9 + 1) = 13.4/1.9.
    learnt = learn((10.0, 0.4), (16.0, 0.5), memory_intervals=10)
    assert learnt.curve(0).c1_ms == pytest.approx(13.4 / 1.9)


@pytest.mark.parametrize(
    ("t_x_ms", "rho_fg"), [(NoData("no T_x"), 0.4), (10.0, NoData("no rho_fg"))]
)
def test_half_a_measurement_teaches_the_quiet_curve_nothing(t_x_ms, rho_fg):
    learnt = QuietCurve(*(column([each]) for each in (2.0, 14.0, 1.0, 4.0)))
    assert learn((t_x_ms, rho_fg), past=learnt, memory_intervals=10) == learnt


@pytest.mark.parametrize("sums", [(0.0, 0.0, 0.0, 0.0), (3.0, 0.0, 0.0, 0.0)])
def test_there_is_no_curve_before_a_quiet_interval(sums):
    learnt = QuietCurve(*(column([each]) for each in sums))
    assert learnt.curve(0) == NoData("no quiet interval with both T_x and rho_fg yet")


def test_a_saturated_interval_alone_gives_no_curve():
    # At rho 0.95 and more Eq. 1 says nothing.
    assert isinstance(learn((10.0, 1.0)).curve(0), NoData)


def test_a_backend_learnt_quiet_reads_as_without_neighbour_at_any_load():
    # An M/M/1 backend of demand 2 ms swings between 10 and 80 % of load; then half of it is
    # taken at rho_fg 0.3: T_x is 4.6/(1 - 0.8).
    quiet = ((4.6 / (1.0 - rho), rho) for rho in (0.1, 0.8, 0.3, 0.5))
    curve = learn(*quiet, memory_intervals=300).curve(0)
    for rho in (0.05, 0.45, 0.85):
        assert rho_bg(curve, 4.6 / (1.0 - rho), rho) == pytest.approx(0.0, abs=1e-12)
    assert rho_bg(curve, 4.6 / 0.2, 0.3) == pytest.approx(0.5)


def test_the_usual_utilisation_is_the_mean_of_what_was_learnt():
    assert learn((10.0, 0.4), (16.0, 0.6)).usual_rho_fg() == pytest.approx([0.5])
    assert math.isnan(QuietCurve.blank(1).usual_rho_fg()[0])
