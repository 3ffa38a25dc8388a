"""The exact optimum of Eq. 2: against two outside witnesses, by hand, and by properties."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from benchmarks.support.convex import Case, cost, random_cases, relative_gap_bound, solve
from dial.optimizer import lemma1, proportional_shares, tail_optimal_shares

rates = st.lists(st.floats(1.0, 1e3), min_size=1, max_size=12).map(np.array)
load = st.floats(0.001, 0.999)
of_even = st.floats(0.0, 1.0)


@st.composite
def cases(draw):
    r = draw(rates)
    return Case(r, draw(load) * float(r.sum()), draw(of_even) / r.size)


def shares_of(case):
    split = tail_optimal_shares(case.throughput_per_s, case.arrival_per_s, floor=case.floor)
    assert not split.overload
    return split.shares


# ---------------------------------------------------------------- outside witnesses


def test_t_x_agrees_with_a_general_convex_solver_to_1e_9_on_1000_cases():
    for case in random_cases(1_000, seed=2026):
        ours, solvers = cost(case, shares_of(case)), cost(case, solve(case))
        assert ours <= solvers * (1.0 + 1e-9), f"the solver beats us: {case}"
        assert solvers <= ours * (1.0 + 1e-9), f"the solver did not get there: {case}"


def test_convexity_alone_leaves_no_room_of_1e_9_for_a_better_split_on_1000_cases():
    for case in random_cases(1_000, seed=7):
        assert relative_gap_bound(case, shares_of(case)) <= 1e-9, case


def test_the_random_cases_cover_what_is_hard():
    seen = list(random_cases(1_000, seed=2026))
    some_at_floor = sum(bool(np.any(shares_of(case) <= case.floors * (1 + 1e-9))) for case in seen)
    lemma_fails = sum(lemma1(c.throughput_per_s, c.arrival_per_s).min() < 0 for c in seen)
    lowered = sum(bool(np.any(c.floors < c.floor)) for c in seen)
    assert {case.throughput_per_s.size for case in seen} == set(range(1, 21))
    assert min(some_at_floor, lemma_fails, lowered) > 100


def test_the_witness_by_convexity_sees_a_wrong_split():
    # r = 100, 25, a = 75: the optimum is 8/9 (Lemma 1 by hand); the even split is not it.
    case = Case(np.array([100.0, 25.0]), 75.0, 0.0)
    assert relative_gap_bound(case, np.array([8 / 9, 1 / 9])) == pytest.approx(0.0, abs=1e-12)
    slightly_wrong = np.array([8 / 9 + 1e-3, 1 / 9 - 1e-3])
    true_gap = cost(case, slightly_wrong) / cost(case, np.array([8 / 9, 1 / 9])) - 1.0
    assert 1e-9 < true_gap <= relative_gap_bound(case, slightly_wrong) * (1 + 1e-6)


@pytest.mark.parametrize("floor", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.6, 0.95])
def test_no_point_of_a_fine_grid_is_better_for_two(fraction, floor):
    r = np.array([100.0, 13.0])
    case = Case(r, fraction * 113.0, floor)
    first = np.linspace(0.0, 1.0, 100_001)
    grid = np.stack([first, 1.0 - first], axis=1)
    best = grid_best(case, grid)
    # At a floor the cost is not flat: a step of 1e-5 off it may cost 1e-4 (and shows that the
    # grid came near at all).
    assert best * (1.0 - 1e-4) <= cost(case, shares_of(case)) <= best * (1.0 + 1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.9])
def test_no_point_of_a_fine_grid_is_better_for_three(fraction, floor):
    r = np.array([100.0, 40.0, 10.0])
    case = Case(r, fraction * 150.0, floor)
    axis = np.linspace(0.0, 1.0, 1_001)
    first, second = (x.ravel() for x in np.meshgrid(axis, axis))
    grid = np.stack([first, second, 1.0 - first - second], axis=1)
    best = grid_best(case, grid)
    # The step is 1e-3 of all the load.
    assert best * (1.0 - 1e-2) <= cost(case, shares_of(case)) <= best * (1.0 + 1e-12)


def grid_best(case, grid):
    floors = case.floors - 1e-12
    stable = case.arrival_per_s * grid < case.throughput_per_s
    grid = grid[np.all(grid >= floors, axis=1) & np.all(stable, axis=1)]
    return float((grid / (case.throughput_per_s - case.arrival_per_s * grid)).sum(axis=1).min())


# ---------------------------------------------------------------- by hand


def test_it_is_lemma_1_by_hand_where_nothing_binds():
    # See test_lemma1: r = 100, 25, a = 75 gives 8/9.
    split = tail_optimal_shares(np.array([100.0, 25.0]), 75.0)
    assert split.shares == pytest.approx([8 / 9, 1 / 9], rel=1e-14)


def test_low_load_drops_the_slow_and_solves_the_rest_again():
    # r = 100, 100, 1, a = 20: alone the two halves leave 90 each; the marginal cost there is
    # 100/90^2 = 0.0123, a first request on the third costs 1/1 = 1.  So it gets nothing.
    split = tail_optimal_shares(np.array([100.0, 1.0, 100.0]), 20.0)
    assert split.shares == pytest.approx([0.5, 0.0, 0.5], abs=1e-15)


def test_the_floor_is_kept_inside_the_optimum():
    # r = 100, 100, 10 with a floor of 0.1 at a = 20 (2/s of 10: less than half of it): the
    # rest, 0.9, is halved between the equal two.
    split = tail_optimal_shares(np.array([100.0, 100.0, 10.0]), 20.0, floor=0.1)
    assert split.shares == pytest.approx([0.45, 0.45, 0.1])


def test_a_floor_that_would_fill_more_than_half_a_backend_is_lowered():
    # r = 100, 1, a = 60, floor 0.1 would be 6/s for a backend of 1/s: it gets 0.5/s instead.
    split = tail_optimal_shares(np.array([100.0, 1.0]), 60.0, floor=0.1)
    assert split.shares == pytest.approx([59.5 / 60, 0.5 / 60])


def test_a_floor_of_the_even_share_leaves_no_choice():
    split = tail_optimal_shares(np.array([100.0, 90.0, 80.0]), 60.0, floor=1.0 / 3)
    assert split.shares == pytest.approx([1 / 3] * 3)


def test_without_load_all_goes_to_the_fastest():
    # The limit a -> 0; ties share.
    assert list(tail_optimal_shares(np.array([3.0, 7.0, 5.0]), 0.0).shares) == [0, 1, 0]
    assert list(tail_optimal_shares(np.array([7.0, 7.0, 5.0]), 0.0).shares) == [0.5, 0.5, 0]


def test_without_load_the_floor_is_kept_too():
    split = tail_optimal_shares(np.array([100.0, 10.0, 10.0]), 0.0, floor=0.01)
    assert split.shares == pytest.approx([0.98, 0.01, 0.01])


@pytest.mark.parametrize("a", [1e-3, 1e-9, 1e-16, 1e-20, 1e-200, 1e-300])
def test_a_trickle_is_split_as_exactly_as_a_stream(a):
    # In r_i - s sqrt(r_i) nothing is left of a load of 1e-16 of the capacity.
    split = tail_optimal_shares(np.array([100.0, 10.0, 10.0]), a, floor=0.01)
    assert split.shares == pytest.approx([0.98, 0.01, 0.01], rel=1e-12)


def test_one_backend_gets_everything():
    for a in (0.0, 1e-300, 0.5, 0.999999, 1.0, 5.0):
        assert list(tail_optimal_shares(np.array([1.0]), a, floor=1.0).shares) == [1.0]


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_only_ratios_of_rates_matter(scale):
    r = np.array([100.0, 40.0, 1.0])
    expected = tail_optimal_shares(r, 50.0, floor=0.01).shares
    found = tail_optimal_shares(scale * r, scale * 50.0, floor=0.01).shares
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_backend_that_is_next_to_nothing_spoils_nothing():
    split = tail_optimal_shares(np.array([1e-300, 100.0]), 50.0, floor=0.1)
    assert split.shares == pytest.approx([0.0, 1.0])
    assert np.all(np.isfinite(split.shares))


def test_ten_thousand_equal_backends_share_equally():
    shares = tail_optimal_shares(np.full(10_000, 37.0), 0.99 * 370_000.0, floor=1e-5).shares
    assert shares == pytest.approx(np.full(10_000, 1e-4), rel=1e-9)


def test_ten_thousand_unequal_backends_are_at_the_optimum():
    r = 10.0 ** np.random.default_rng(5).uniform(0.0, 3.0, 10_000)
    for fraction in (0.001, 0.3, 0.99):
        case = Case(r, fraction * float(r.sum()), 0.1 / r.size)
        assert relative_gap_bound(case, shares_of(case)) <= 1e-9


# ---------------------------------------------------------------- overload and bad input


@pytest.mark.parametrize("a", [40.0, 40.001, 4000.0])
def test_overload_is_said_and_split_by_capacity(a):
    split = tail_optimal_shares(np.array([10.0, 30.0]), a, floor=0.4)
    assert split.overload
    assert split.shares == pytest.approx([0.25, 0.75])


def test_just_below_capacity_is_no_overload_and_near_the_split_by_capacity():
    split = tail_optimal_shares(np.array([10.0, 30.0]), math.nextafter(40.0, 0.0))
    assert not split.overload
    assert split.shares == pytest.approx([0.25, 0.75], rel=1e-9)


@pytest.mark.parametrize(
    ("r", "a", "floor", "complaint"),
    [
        ([], 1.0, 0.0, r"throughput of shape \(0,\)"),
        ([[1.0, 2.0]], 1.0, 0.0, r"throughput of shape \(1, 2\)"),
        ([1.0, 0.0], 1.0, 0.0, r"throughput \[1\. 0\.\]: each must be finite and positive"),
        ([1.0, -2.0], 1.0, 0.0, "throughput"),
        ([1.0, math.nan], 1.0, 0.0, "throughput"),
        ([1.0, math.inf], 1.0, 0.0, "throughput"),
        ([1e308, 1e308], 1.0, 0.0, "throughput"),
        ([1.0, 2.0], -1.0, 0.0, "arrival rate -1.0: must be finite and not negative"),
        ([1.0, 2.0], math.nan, 0.0, "arrival rate nan"),
        ([1.0, 2.0], math.inf, 0.0, "arrival rate inf"),
        ([1.0, 2.0], 1.0, -0.1, r"floor -0\.1: must lie in \[0, 1/2\]"),
        ([1.0, 2.0], 1.0, 0.51, r"floor 0\.51: must lie in \[0, 1/2\]"),
        ([1.0, 2.0], 1.0, math.nan, "floor nan"),
    ],
)
def test_bad_input_is_refused_by_name(r, a, floor, complaint):
    with pytest.raises(ValueError, match=complaint):
        tail_optimal_shares(np.array(r), a, floor=floor)


# ---------------------------------------------------------------- properties


@given(case=cases())
def test_shares_sum_to_1_keep_their_floor_and_overload_nobody(case):
    shares = shares_of(case)
    assert shares.sum() == pytest.approx(1.0, abs=1e-14)
    assert np.all(shares >= 0.0)
    assert np.all(shares >= case.floors * (1.0 - 1e-12))
    assert np.all(case.arrival_per_s * shares < case.throughput_per_s)


# Found by chance: at 0.999 of what five can serve the rounding of the largest was too much.
@given(case=cases())
@example(case=Case(np.array([25.0, 992.0, 1.0, 156.0, 2.0]), 1174.824, 0.0))
@example(case=Case(np.array([27.0, 9.0, 6.0, 383.0, 54.0, 8.0, 21.0]), 0.999 * 508.0, 0.0))
def test_there_is_no_better_split(case):
    assert relative_gap_bound(case, shares_of(case)) <= 1e-9


@given(r=rates, fraction=load)
def test_it_is_lemma_1_wherever_that_has_no_negative_share(r, fraction):
    a = fraction * float(r.sum())
    expected = lemma1(r, a)
    assume(expected.min() >= 0.0)
    assert tail_optimal_shares(r, a).shares == pytest.approx(expected, abs=1e-9)


@given(case=cases(), data=st.data())
def test_permuting_the_backends_permutes_the_shares(case, data):
    order = np.array(data.draw(st.permutations(range(case.throughput_per_s.size))))
    permuted = Case(case.throughput_per_s[order], case.arrival_per_s, case.floor)
    assert shares_of(permuted) == pytest.approx(shares_of(case)[order], abs=1e-12)


@given(case=cases())
def test_a_faster_backend_never_has_the_smaller_share(case):
    shares = shares_of(case)[np.argsort(case.throughput_per_s)]
    assert np.all(np.diff(shares) >= -1e-12)


@given(case=cases(), data=st.data(), factor=st.floats(1.0, 100.0))
def test_speeding_a_backend_up_never_lowers_its_share(case, data, factor):
    which = data.draw(st.integers(0, case.throughput_per_s.size - 1))
    r = case.throughput_per_s.copy()
    r[which] *= factor
    after = shares_of(Case(r, case.arrival_per_s, case.floor))
    assert after[which] >= shares_of(case)[which] - 1e-12


@given(case=cases(), data=st.data(), left=st.floats(1e-3, 1.0))
def test_slowing_a_backend_never_raises_its_share_nor_lowers_anothers(case, data, left):
    which = data.draw(st.integers(0, case.throughput_per_s.size - 1))
    r = case.throughput_per_s.copy()
    r[which] *= left
    after = tail_optimal_shares(r, case.arrival_per_s, floor=case.floor)
    assume(not after.overload)  # then by capacity: another rule
    others = np.arange(r.size) != which
    before = shares_of(case)
    assert after.shares[which] <= before[which] + 1e-12
    assert np.all(after.shares[others] >= before[others] - 1e-12)


@given(case=cases(), more=st.floats(1.0, 1e3))
def test_more_load_never_makes_the_split_less_even(case, more):
    a = min(case.arrival_per_s * more, 0.999 * float(case.throughput_per_s.sum()))
    assume(a > case.arrival_per_s)
    before = tail_optimal_shares(case.throughput_per_s, case.arrival_per_s).shares
    after = tail_optimal_shares(case.throughput_per_s, a).shares
    assert after.max() <= before.max() + 1e-12


@given(case=cases())
def test_the_arguments_are_left_as_they_were(case):
    before = case.throughput_per_s.copy()
    shares_of(case)
    assert np.array_equal(case.throughput_per_s, before)


# ---------------------------------------------------------------- by capacity


def test_proportional_shares_by_hand():
    assert list(proportional_shares(np.array([1.0, 3.0, 0.0]))) == [0.25, 0.75, 0.0]


@pytest.mark.parametrize("capacity", [[0.0, 0.0], [1.0, -0.5], [math.nan, 1.0]])
def test_proportional_shares_refuse_what_cannot_be_shared(capacity):
    with pytest.raises(ValueError, match="capacity"):
        proportional_shares(np.array(capacity))
