"""How much more than by sampling T_x and CPU times vary at a backend."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.controller import fading
from dial.controller.history import History, Read, Witnesses
from dial.controller.noise import Costs, Noise, noise, rate_deviation
from dial.detector import CusumState
from dial.estimator import Tracker
from dial.queueing import t_x_error


def costs(slowdowns, requests=100.0, trusted=True, *, first=1.0):
    """Learnt of intervals that are compared with the one before them in the list, or ``first``."""
    found = Costs.blank(1)
    for two in pairwise([first, *slowdowns]):
        slowdown = tuple(np.array([each]) for each in two)
        n = (np.array([requests]),) * 2
        found = found.learn(slowdown, n, np.array([trusted]), memory_intervals=10**9)
    return found


def residual(weight, variance, requests=100.0):
    """A detector that has learnt as many intervals of this variance."""
    one = CusumState.blank(1)
    return one.but(
        weight=np.array([weight]),
        m2=np.array([variance * max(weight - 1.0, 0.0)]),
        requests=np.array([requests]),
    )


def noise_of(found=None, seen=None, rho_fg=0.5):
    of = noise(found or Costs.blank(1), seen or residual(0.0, 0.0), np.array([rho_fg]), 90.0)
    return float(of.t_x[0]), float(of.cpu_time[0])


def test_nothing_is_known_at_first_so_errors_are_those_of_sampling():
    assert noise_of() == (1.0, 1.0)
    assert noise_of(rho_fg=np.nan) == (1.0, 1.0)


def test_costs_that_vary_by_their_mean_are_what_is_assumed():
    # Means of 100 costs are off by a tenth, and two of them differ by twice that, or not at all.
    found = costs([1.1, 1.1, 0.9, 0.9] * 10, first=0.9)
    assert found.variation() == pytest.approx(1.0)
    assert noise_of(found)[1] == pytest.approx(1.0)


def test_costs_that_vary_by_twice_their_mean_double_the_error_in_time():
    # Thirty intervals are assumed to have varied by the mean, and sixty did by twice as much.
    found = costs([1.2, 1.2, 0.8, 0.8] * 15, first=0.8)
    assert noise_of(found)[1] == pytest.approx(np.sqrt(270.0 / 90.0))


def test_errors_are_never_less_than_those_of_sampling():
    assert noise_of(costs([1.0] * 50), residual(50.0, 1e-6)) == (1.0, 1.0)


def test_only_the_first_interval_beside_a_neighbour_widens_anything():
    before = costs([1.1, 1.1, 0.9, 0.9] * 25)
    first = costs([1.1, 1.1, 0.9, 0.9] * 25 + [3.0])
    assert noise_of(first)[1] < 1.1 * noise_of(before)[1]
    for intervals in range(2, 12):
        found = costs([1.1, 1.1, 0.9, 0.9] * 25 + [3.0] * intervals)
        assert noise_of(found)[1] < noise_of(first)[1]


def test_one_heavy_request_widens_little_and_is_known_for_what_it_is():
    past = costs([1.1, 1.1, 0.9, 0.9] * 25 + [10.0], first=0.9)
    found = noise(past, residual(0.0, 0.0), np.array([0.5]), 90.0)
    # 100 requests that together cost 910 more than 100 before: 9.1^2 / 0.02 over 30 + 101.
    assert found.costs[0] == pytest.approx(np.sqrt((130.0 + 4140.5) / 131.0))
    assert found.cpu_time[0] < 1.05


def test_before_it_is_known_what_is_usual_nothing_is_far_out():
    """The first sample may be of a time without requests; the next one is eight times as dear."""
    found = costs([8.0], trusted=False)
    assert found.variation(far=True) == found.variation() == pytest.approx((30.0 + 9.0) / 31.0)
    assert costs([8.0]).variation(far=True) == pytest.approx((30.0 + 2450.0) / 31.0)


def test_without_a_sample_or_a_request_nothing_is_learnt():
    assert costs([np.nan, np.nan]) == Costs.blank(1)


def test_a_tail_that_varies_three_times_as_much_has_three_times_the_error():
    by_sampling = float(t_x_error(100.0, 0.5, 90.0))
    seen = residual(1e6, 9.0 * by_sampling**2)
    assert noise_of(seen=seen)[0] == pytest.approx(3.0, rel=1e-4)


def test_a_deviation_is_that_of_sampling_until_something_is_learnt():
    tenth, n = np.array([0.1]), np.array([100.0])
    assert rate_deviation(residual(0.0, 0.0), tenth, n) == pytest.approx(0.1)
    # Ten intervals are assumed to have been like that, and of eleven the mean takes one.
    assert rate_deviation(residual(11.0, 0.04), tenth, n) == pytest.approx(np.sqrt(0.025))
    assert rate_deviation(residual(1e6, 0.04), tenth, n) == pytest.approx(0.2, rel=1e-4)


def test_a_rate_is_never_held_to_be_surer_than_half_of_poissons_deviation():
    found = rate_deviation(residual(1e6, 1e-6), np.array([0.2]), np.array([100.0]))
    assert found == pytest.approx(0.1)


def test_of_fewer_requests_than_usual_a_residual_is_less_sure():
    learnt = residual(1e6, 0.04)
    found = rate_deviation(learnt, np.array([0.1]), np.array([25.0]))
    assert found == pytest.approx(0.4, rel=1e-4)


def read_of(**said: np.ndarray) -> Read:
    """One interval of two backends, of which nothing else is known."""
    nothing = dict.fromkeys(Read.__slots__, np.full(2, np.nan))
    return Read(**nothing | {"t_x_requests": 50.0 * np.ones(2), "overlap": np.ones(2)} | said)


def test_a_sample_of_two_intervals_is_of_twice_the_requests_and_not_seen_twice():
    two, rows = np.ones(2), np.array([[0, 1]])

    def one_and_two(overlap, intervals=60.0):
        """Errors of one interval's CPU time, and of the mean of two."""
        read = read_of(slowdown=1.5 * two, requests=50.0 * two, overlap=overlap * two)
        history, nobody = History.blank(2).then(read), Noise(two, two, two, intervals * two)
        says = Witnesses(history, Tracker(model_error=0.0), 90.0, nobody)
        once = fading.means(says.by_cpu_time(rows))[1]
        says = Witnesses(history.then(read), Tracker(model_error=0.0), 90.0, nobody)
        return once[0, 0], fading.means(says.by_cpu_time(rows))[1][0, 0]

    apart, overlapping = one_and_two(1.0), one_and_two(2.0)
    assert overlapping[0] == pytest.approx(apart[0] / np.sqrt(2.0))
    assert apart[1] == pytest.approx(apart[0] * np.hypot(0.85, 1.0) / 1.85, rel=1e-5)
    # Where one request may be heavy it is in both: the sample is as sure as one interval.
    assert one_and_two(2.0, intervals=14.0)[0] == pytest.approx(apart[0])
    # Of three intervals' requests, not of four.
    assert overlapping[1] == pytest.approx(apart[0] * np.sqrt(1.5) / 2.0, rel=0.05)


def test_a_history_of_before_a_field_was_added_knows_nothing_of_it():
    newest = read_of(slowdown=np.full(2, 1.5), stretch=np.full(2, 1.2))
    of_now = History.blank(2).then(newest).latest()
    # Of nine fields, as before the newest two.
    of_before = History(of_now.read[:, :9]).then(newest)
    last = of_before.read[0, :, -2:]
    assert last[3] == pytest.approx([1.5, 1.5])
    assert last[9] == pytest.approx([np.nan, 1.2], nan_ok=True)


@given(st.floats(1.05, 60.0))
def test_errors_of_samples_that_overlap_go_together_by_as_many_as_they_are_long(overlap):
    a = float(read_of(overlap=np.full(2, overlap)).persistence[0])
    assert (1.0 - np.exp(-a)) / a == pytest.approx(1.0 - 1.0 / overlap, rel=0.01)


def test_samples_that_do_not_overlap_have_nothing_to_do_with_each_other():
    assert read_of(overlap=np.ones(2)).persistence[0] > 100.0


def test_how_long_a_request_is_at_the_cpu_is_what_it_uses_and_what_it_waits_for():
    both = read_of(slowdown=np.array([1.25, 1.5]), stretch=np.array([1.2, np.nan]))
    assert both.residence == pytest.approx([1.5, 1.5])


def test_each_witness_of_each_backend_has_its_own_noise():
    two = np.ones(2)
    read = read_of(slow=2.0 * two, rho_fg=0.5 * two, slowdown=1.5 * two, requests=50.0 * two)
    history, rows = History.blank(2).then(read), np.array([[0, 1]])

    def errors(noise):
        says = Witnesses(history, Tracker(model_error=0.0), 90.0, noise)
        return says.by_t_x(rows).sd[0, :, -1], says.by_cpu_time(rows).sd[0, :, -1]

    t_x, cpu_time = errors(Noise(two, two, two, two))
    noisy = errors(Noise(np.array([1.0, 3.0]), np.array([2.0, 1.0]), two, two))
    assert noisy[0] == pytest.approx(t_x * [1.0, 3.0])
    assert noisy[1] == pytest.approx(cpu_time * [2.0, 1.0])
