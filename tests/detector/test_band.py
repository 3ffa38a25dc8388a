"""The paper's detector: what it learns, when it accuses, and how often it is wrong."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dial.columns import column
from dial.detector import Band, BandState
from dial.types import NoData

from .plain import only

FOREVER = 10**12
"""A memory so long that nothing fades within a test."""


def run(band, values, *, state=None, learn=True):
    """The state of one backend after the values, and the signal of each."""
    state = state or BandState.blank(1)
    signals = []
    for value in values:
        state, signal = band.step(state, column([value]), learn=learn)
        signals.append(only(signal))
    return state, signals


def quiet(band, values=(9.0, 10.0, 11.0, 10.0)):
    return run(band, values)[0]


BAND = Band(confidence=0.95, successive=2, learn_intervals=4, memory_intervals=FOREVER)


def test_the_band_by_hand():
    # 9, 10, 11, 10: mean 10, squared deviations 1+0+1+0 = 2, variance 2/3, d = 0.816497.
    # Student's t with 3 degrees of freedom at 0.975 is 3.182446 (any table).
    # upper = 10 + 3.182446 * 0.816497 * sqrt(1 + 1/4) = 10 + 2.905163.
    assert BAND.upper_ms(quiet(BAND)) == pytest.approx(12.905163, abs=1e-6)


def test_the_band_is_students_prediction_interval():
    values = np.random.default_rng(3).normal(20.0, 2.0, 50)
    t = stats.t.ppf(0.975, df=49)
    expected = values.mean() + t * values.std(ddof=1) * math.sqrt(1 + 1 / 50)
    assert BAND.upper_ms(quiet(BAND, values)) == pytest.approx(expected, rel=1e-9)


def test_there_is_no_band_before_enough_quiet_intervals():
    state, signals = run(BAND, [9.0, 10.0, 11.0])
    assert np.isnan(BAND.upper_ms(state))
    assert [signal.learnt for signal in signals] == [0, 1, 2]
    assert all(math.isnan(signal.upper_ms) for signal in signals)
    state, _ = run(BAND, [10.0], state=state)
    assert not np.isnan(BAND.upper_ms(state))


@pytest.mark.parametrize(("learn", "memory"), [(6, 300), (10, 10), (300, 300), (50, 10)])
def test_the_band_is_there_after_exactly_the_intervals_asked_for(learn, memory):
    # The fading number of intervals never reaches memory_intervals; it must not be waited for.
    band = Band(learn_intervals=learn, memory_intervals=memory)
    state, _ = run(band, [10.0, 11.0] * (learn // 2 - 1) + [10.0])
    assert np.isnan(band.upper_ms(state))
    state, _ = run(band, [11.0], state=state)
    assert not np.isnan(band.upper_ms(state))


@given(st.lists(st.floats(0.001, 1e6), max_size=3))
def test_nothing_is_ever_detected_before_learning_is_done(values):
    _, signals = run(BAND, values)
    assert not any(signal.above or signal.detected for signal in signals)


def test_two_exceedances_in_a_row_are_a_detection():
    _, signals = run(BAND, [13.0, 13.0, 13.0], state=quiet(BAND))
    assert [signal.above for signal in signals] == [True, True, True]
    assert [signal.detected for signal in signals] == [False, True, True]


def test_two_exceedances_apart_are_none():
    _, signals = run(BAND, [13.0, 10.0, 13.0, 10.0], state=quiet(BAND), learn=False)
    assert [signal.above for signal in signals][::2] == [True, True]
    assert not any(signal.detected for signal in signals)


@pytest.mark.parametrize("successive", [1, 2, 3, 5])
def test_as_many_exceedances_as_asked_for_detect(successive):
    band = Band(successive=successive, learn_intervals=4, memory_intervals=FOREVER)
    _, signals = run(band, [99.0] * 5, state=quiet(band))
    assert [signal.detected for signal in signals].index(True) == successive - 1


def test_the_edge_itself_is_not_above():
    state = quiet(BAND)
    upper_ms = BAND.upper_ms(state)
    _, at_edge = BAND.step(state, upper_ms, learn=False)
    _, beyond = BAND.step(state, np.nextafter(upper_ms, math.inf), learn=False)
    assert (at_edge.above, beyond.above) == (False, True)


def test_a_single_exceedance_is_learnt_when_the_next_interval_is_quiet():
    state, _ = run(BAND, [13.0], state=quiet(BAND))
    assert (only(state).learnt, only(state).held_back_ms) == (4, [13.0])  # not learnt yet
    state, _ = run(BAND, [10.0], state=state)
    # 9, 10, 11, 10, 13, 10: mean 63/6 = 10.5, squares 2.25+.25+.25+.25+6.25+.25 = 9.5.
    assert (only(state).learnt, only(state).held_back_ms) == (6, [])
    assert state.mean_ms == pytest.approx(10.5)
    assert state.m2_ms2 == pytest.approx(9.5)


def test_what_was_a_detection_is_never_learnt_as_normal():
    # No load was shifted (shadow mode, unknown cause), so learn stays true all the while.
    before = quiet(BAND)
    state, _ = run(BAND, [100.0] * 7 + [10.0], state=before)
    # Only the last 10 was learnt: 9, 10, 11, 10, 10.
    assert (only(state).learnt, only(state).mean_ms) == (5, pytest.approx(10.0))
    assert state.m2_ms2 == pytest.approx(2.0)


def test_while_load_is_shifted_nothing_is_learnt():
    before = quiet(BAND)
    state, _ = run(BAND, [10.0, 5.0, 13.0, 10.0, 99.0, 99.0, 10.0], state=before, learn=False)
    assert state == before


def test_an_interval_without_data_leaves_everything_as_it_is():
    state, _ = run(BAND, [13.0], state=quiet(BAND))
    after, (signal,) = run(BAND, [NoData("no request")], state=state)
    assert after == state
    assert (signal.above, signal.detected) == (False, False)
    # The run goes on after the gap.
    _, (signal,) = run(BAND, [13.0], state=after)
    assert signal.detected


def test_the_past_fades_at_the_rate_of_the_memory():
    # memory 10: each interval counts 0.9 of the next.  10 then 20: weight 1.9,
    # mean (0.9*10 + 20)/1.9 = 15.2632, squares 0.9*(5.2632)^2 + (4.7368)^2 = 47.3684.
    band = Band(learn_intervals=4, memory_intervals=10)
    state, _ = run(band, [10.0, 20.0])
    assert state.weight == pytest.approx(1.9)
    assert state.mean_ms == pytest.approx(29.0 / 1.9)
    assert state.m2_ms2 == pytest.approx(0.9 * (29 / 1.9 - 10) ** 2 + (20 - 29 / 1.9) ** 2)


def test_the_band_follows_a_slow_drift_and_stays_quiet():
    # 0.5 % an interval over 400 intervals: sevenfold, but each step well within the band.
    band = Band(memory_intervals=20)
    rng = np.random.default_rng(11)
    values = 10.0 * 1.005 ** np.arange(400) * rng.normal(1.0, 0.1, 400)
    _, signals = run(band, values)
    assert sum(signal.detected for signal in signals) <= 4  # 1 % of the intervals


@given(st.lists(st.floats(0.001, 1e6), min_size=4, max_size=50), st.floats(0.001, 1e3))
def test_only_ratios_of_latencies_matter(values, scale):
    # Milliseconds or seconds, the same intervals are learnt and the band scales along.
    state = quiet(BAND, values)
    scaled = quiet(BAND, [scale * value for value in values])
    if state.learnt == scaled.learnt and state.learnt >= 4:  # no value exactly at the edge
        assert BAND.upper_ms(scaled) == pytest.approx(scale * BAND.upper_ms(state), rel=1e-6)


def test_quiet_intervals_exceed_the_band_in_one_of_forty():
    # Two-sided 95 % leaves 2.5 % above.  20,000 independent normal intervals: 500 expected,
    # binomial deviation sqrt(20000 * 0.025 * 0.975) = 22.1; five of them either side is a
    # chance of 6e-7 for any seed.
    values = np.random.default_rng(2026).normal(20.0, 2.0, 20_000)
    _, signals = run(Band(), values)
    above = sum(signal.above for signal in signals)
    deviation = math.sqrt(20_000 * 0.025 * 0.975)
    assert abs(above - 500) <= 5 * deviation


def test_quiet_intervals_are_accused_about_once_in_1600():
    # Two independent exceedances in a row: 0.025^2 = 1/1600, so 12.5 in 20,000; a run of
    # three adds one more.  Poisson: 12.5 + 5 * 3.5 = 30.
    values = np.random.default_rng(7).normal(20.0, 2.0, 20_000)
    _, signals = run(Band(), values)
    assert 0 < sum(signal.detected for signal in signals) <= 30


def test_a_log_of_whole_milliseconds_does_not_make_a_band_without_width():
    # Ten intervals of exactly 5 ms: 5 % of 5 ms is 0.25, t(9) = 2.262, sqrt(1.1) = 1.049.
    band = Band(memory_intervals=10**9)
    state, _ = run(band, [5.0] * 10)
    assert band.upper_ms(state) == pytest.approx(5.0 + 2.262 * 0.25 * 1.0488, abs=1e-3)
