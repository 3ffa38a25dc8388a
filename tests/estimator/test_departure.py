"""Evidence that a neighbour has gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.estimator import Reading, departed
from dial.queueing import TailCurve, t_x_error

CURVE = TailCurve(0.0, 10.0, 0.0)


def reading(t_x_ms, *, rho_fg=0.2, requests=100):
    return Reading(CURVE, t_x_ms, rho_fg, requests, 90.0)


def after(times_ms, *, strength=0.6, enough=5.0, intervals=1.0, fewest_intervals=3, **how):
    evidence = 0.0
    for t_x_ms in times_ms:
        evidence = departed(
            evidence,
            reading(t_x_ms, **how),
            strength,
            model_error=0.2,
            enough=enough,
            intervals=intervals,
            fewest_intervals=fewest_intervals,
        )
    return evidence


def test_the_evidence_of_one_interval_is_the_log_of_the_likelihood_ratio():
    # Quiet T90 is 10/0.8 = 12.5 ms, contended 10/0.2 = 50: ln 4 apart.  At 30 ms:
    # ln 4 (ln sqrt(12.5 * 50) - ln 30)/sd^2 < 0; at 20 ms it is ln 4 ln(25/20)/sd^2.
    variance = t_x_error(100, 0.2 / 0.4, 90.0) ** 2 + 0.2**2
    assert after([20.0], enough=10.0) == pytest.approx(1.3863 * 0.22314 / variance, rel=1e-3)
    assert after([30.0]) == 0.0


def test_two_intervals_are_never_enough_and_three_are():
    assert after([1.0]) == 2.0
    assert after([1.0] * 2) < 5.0
    assert after([12.5] * 3) >= 5.0


def test_the_halves_of_two_intervals_are_never_enough_either():
    assert after([1.0] * 4, intervals=0.5) == 4.0
    assert after([1.0] * 6, intervals=0.5) >= 5.0


def test_of_what_pauses_for_ten_intervals_eleven_are_enough_and_ten_are_not():
    assert after([1.0] * 10, fewest_intervals=11) < 5.0 <= after([1.0] * 11, fewest_intervals=11)
    assert after([1.0] * 20, fewest_intervals=11, intervals=0.5) < 5.0
    assert after([1.0] * 5, fewest_intervals=11, intervals=2.0) < 5.0
    assert after([1.0] * 6, fewest_intervals=11, intervals=2.0) >= 5.0


def test_of_few_requests_it_takes_longer():
    assert after([12.5] * 3, strength=0.4, requests=10) < 5.0 <= after([12.5] * 3, strength=0.4)


def test_a_weak_neighbour_takes_longer():
    assert after([12.5] * 6, strength=0.15) < 5.0


def test_as_slow_as_beside_the_neighbour_is_no_evidence_and_takes_evidence_away():
    assert after([50.0] * 50) == 0.0
    assert after([12.5, 50.0]) == 0.0


@given(
    st.lists(st.floats(0.0, 1e6), max_size=20),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.integers(0, 10**6),
)
def test_evidence_is_finite_and_never_negative(times_ms, strength, rho_fg, requests):
    found = after(times_ms, strength=strength, rho_fg=rho_fg, requests=requests)
    assert 0.0 <= found <= 2.0 * max(len(times_ms), 1)
