"""The summed-up evidence: what it takes for a detection, what is learnt, how often it is wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.columns import column
from dial.detector import Cusum, CusumState
from dial.detector.held_back import forget
from dial.types import NoData

from .plain import only

CUSUM = Cusum()
QUIET_MS = (9.0, 11.0, 10.0, 10.0, 9.5, 10.5)


def run(detector, intervals, state=None, *, rho_fg=0.0, requests=100, learn=True):
    """The state of one backend after some T_x, and the signal of each."""
    state = CusumState.blank(1) if state is None else state
    signals = []
    for t_x_ms in intervals:
        state, signal = detector.step(
            state, column([t_x_ms]), column([rho_fg]), np.array([requests]), learn=learn
        )
        signals.append(only(signal))
    return state, signals


def learnt(intervals=QUIET_MS * 50, **options):
    return run(Cusum(memory_intervals=10**9), intervals, **options)[0]


def test_nothing_is_said_before_enough_was_learnt():
    state, signals = run(CUSUM, (10.0, 10.0, 10.0, 10.0, 10.0, 1e6))
    assert math.isnan(signals[-1].upper_ms)
    assert [signal.learnt for signal in signals] == [0, 1, 2, 3, 4, 5]
    assert not any(signal.detected for signal in signals)
    assert state.learnt == 6


def test_the_evidence_of_one_interval_by_hand():
    # 300 intervals of sd d = 0.0642 of ln T_x; two of them above the mean give z = 2 (t has 299
    # degrees of freedom), so S = 2 - 1.
    state = learnt()
    past = only(state)
    deviation = math.sqrt(past.m2 / (past.weight - 1.0) * (1.0 + 1.0 / past.weight))
    after, (signal,) = run(CUSUM, (math.exp(past.mean + 2.0 * deviation),), state)
    assert after.evidence == pytest.approx(1.0, abs=0.02)
    assert signal.above  # the upper edge is at 1.97
    assert not signal.detected
    assert not signal.calm


def test_one_interval_however_slow_is_nothing_two_are_likely_and_three_are_a_detection():
    _, signals = run(CUSUM, (1e6, 1e6, 1e6), learnt())
    assert [signal.likely for signal in signals] == [False, True, True]
    assert [signal.detected for signal in signals] == [False, False, True]


def test_slow_intervals_with_an_ordinary_one_between_are_a_detection():
    # z at the cap of 3.9 and below 1 by turns: S is 2.9, 2.2, 5.1, 4.4, 7.4.
    _, signals = run(CUSUM, (15.0, 10.2, 15.0, 10.2, 15.0), learnt())
    assert [signal.likely for signal in signals] == [False, False, True, True, True]
    assert [signal.detected for signal in signals] == [False, False, False, False, True]


def test_a_slow_interval_is_forgotten_in_a_few_ordinary_ones():
    state, signals = run(CUSUM, (15.0, 10.0, 10.0, 10.0, 10.0), learnt())
    assert state.evidence == 0.0
    assert signals[-1].calm


@given(rho_fg=st.floats(0.0, 0.95))
def test_load_that_explains_t_x_is_no_evidence(rho_fg):
    # Learnt at rho 0.2, so 8 ms idle; then M/M/1 at any other load.
    state = learnt([t / 0.8 for t in QUIET_MS * 50], rho_fg=0.2)
    after, (signal,) = run(CUSUM, (10.0 / (1.0 - rho_fg),), state, rho_fg=rho_fg)
    assert after.evidence == 0.0
    assert not signal.above


def test_t_x_of_few_requests_is_less_sure():
    state = learnt()
    few, _ = run(CUSUM, (12.0,), state, requests=25)
    many, _ = run(CUSUM, (12.0,), state, requests=400)
    # A quarter of the usual 100 requests: twice the deviation.  More than usual changes nothing.
    assert few.evidence < 0.6 * many.evidence
    assert many.evidence == pytest.approx(run(CUSUM, (12.0,), state)[0].evidence)


def test_an_interval_without_t_x_leaves_the_evidence_as_it_is():
    before, _ = run(CUSUM, (13.0,), learnt())
    after, (signal,) = run(CUSUM, (NoData("3 requests; 20 are needed"),), before)
    assert after == before
    assert not signal.calm


def test_a_single_burst_is_learnt_as_three_deviations_and_not_as_it_was():
    before = learnt()
    edge_ms = run(CUSUM, (10.0,), before)[1][0].upper_ms
    after, signals = run(Cusum(memory_intervals=10**9), (260.0, *(10.0,) * 4), before)
    assert signals[-1].upper_ms < 1.02 * edge_ms
    assert after.learnt == before.learnt + 5


def test_contention_is_never_learnt():
    before = learnt()
    during, _ = run(CUSUM, (40.0,) * 290, before)
    assert (during.mean, during.m2, during.learnt) == (before.mean, before.m2, before.learnt)


def test_what_stays_slow_and_is_no_neighbours_doing_becomes_normal():
    state, _ = run(Cusum(memory_intervals=100), (13.0,) * 110, learnt())
    _, signals = run(CUSUM, (13.0,) * 5, state)
    assert signals[-1].upper_ms == pytest.approx(13.0, rel=0.2)
    assert not signals[-1].detected


def test_a_neighbour_that_load_was_moved_away_from_never_does():
    before = learnt()
    after, signals = run(Cusum(memory_intervals=100), (40.0,) * 500, before, learn=False)
    assert after.learnt == before.learnt
    assert signals[-1].detected


def test_agents_that_come_late_make_it_begin_anew():
    # At rho 0.5 the idle backend's T_x is half of what was learnt without knowing rho.
    state, _ = run(CUSUM, (20.0,) * 20, rho_fg=NoData("no agent yet"))
    _, signals = run(CUSUM, (20.0,) * 20, state, rho_fg=0.5)
    assert math.isnan(signals[0].upper_ms)
    assert signals[0].learnt == 0
    assert signals[-1].upper_ms == pytest.approx(20.0, rel=0.15)


def test_while_load_is_shifted_nothing_is_learnt():
    before = learnt()
    assert run(CUSUM, (10.0,) * 20, before, learn=False)[0].learnt == before.learnt


def test_a_detection_ends_within_six_ordinary_intervals_however_long_it_lasted():
    state, _ = run(CUSUM, (1e6,) * 1000, learnt())
    _, signals = run(CUSUM, (10.0,) * 6, state)
    assert not signals[-1].detected


def test_after_a_neighbour_has_gone_it_takes_two_slow_intervals_and_not_one():
    state, _ = run(CUSUM, (1e6,) * 10, learnt())
    after = CUSUM.ended(state, np.array([True]))
    _, signals = run(CUSUM, (1e6, 1e6), after)
    assert [signal.likely for signal in signals] == [True, True]
    assert [signal.detected for signal in signals] == [False, True]


def test_after_a_neighbour_has_gone_an_interval_is_learnt_only_once_one_was_quiet():
    state, _ = run(CUSUM, (1e6,) * 10, learnt())
    after = CUSUM.ended(state, np.array([True]))
    _, signals = run(CUSUM, (10.2, 10.0), after)
    assert not after.evidence < CUSUM.threshold / 4
    assert signals[-1].calm


def test_what_speaks_for_others_stays_when_a_neighbour_has_gone():
    state, _ = run(CUSUM, (1e6,) * 10, learnt())
    both = state.take(np.zeros(2, np.int64))
    after = CUSUM.ended(both, np.array([True, False]))
    assert after.evidence.tolist() == [CUSUM.threshold / 4, both.evidence[1]]


def test_a_log_that_knows_whole_milliseconds_only_accuses_nobody_of_a_tenth():
    _, signals = run(CUSUM, (5.1,) * 50, learnt((5.0,) * 50))
    assert not any(signal.detected for signal in signals)


def test_false_alarms_are_as_rare_as_the_module_says():
    """Of half the threshold one in 2,000 intervals; 60,000 give 30, off by 6 (one sd)."""
    random = np.random.default_rng(1)
    detector = Cusum(memory_intervals=10**9)
    state = learnt(np.exp(random.normal(2.0, 0.2, 2_000))).take(np.zeros(100, np.int64))
    quiet, requests, alarms = np.zeros(100), np.full(100, 100), 0
    for t_x_ms in np.exp(random.normal(2.0, 0.2, (600, 100))):
        state, signal = detector.step(state, t_x_ms, quiet, requests, learn=True)
        alarms += np.count_nonzero(signal.likely)
        state = state.changed(signal.likely, evidence=quiet)
        state = replace(state, held_back=forget(state.held_back, signal.likely))
    assert 12 <= alarms <= 48


def test_backends_side_by_side_are_what_each_is_alone():
    random = np.random.default_rng(2)
    times = np.exp(random.normal(2.0, 0.3, (80, 5))) * np.array([1.0, 1.0, 2.0, 1.0, 1.2])
    times[random.random(times.shape) < 0.1] = np.nan
    rho_fg = np.where(random.random(times.shape) < 0.02, np.nan, 0.4)
    requests = random.integers(5, 200, times.shape)
    detector, together = Cusum(memory_intervals=20), CusumState.blank(5)
    alone = [CusumState.blank(1) for _ in range(5)]
    for at in range(80):
        learn = at % 40 < 30
        together, signals = detector.step(
            together, times[at], rho_fg[at], requests[at], learn=learn
        )
        for i in range(5):
            mine = slice(i, i + 1)
            alone[i], signal = detector.step(
                alone[i], times[at, mine], rho_fg[at, mine], requests[at, mine], learn=learn
            )
            row = np.array([i])
            assert signals.take(row) == signal
            assert replace(together.take(row), held_back=alone[i].held_back) == alone[i]


@given(
    intervals=st.lists(
        st.one_of(st.just(NoData("?")), st.floats(0.0, 1e12)), min_size=1, max_size=40
    ),
    rho_fg=st.one_of(st.just(NoData("?")), st.floats(0.0, 1.0)),
    requests=st.integers(0, 10**9),
)
def test_no_input_breaks_it(intervals, rho_fg, requests):
    state, signals = run(CUSUM, intervals, rho_fg=rho_fg, requests=requests)
    past = only(state)
    assert 0.0 <= past.evidence <= 1.25 * CUSUM.threshold
    assert all(math.isfinite(v) for v in (past.mean, past.m2, past.weight))
    assert all(math.isnan(s.upper_ms) or s.upper_ms > 0.0 for s in signals)
