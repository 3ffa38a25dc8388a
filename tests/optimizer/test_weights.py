"""Shares to integer weights, in the balancer's own meaning."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dial.optimizer import (
    integer_weights,
    rate_units,
    rate_weights,
    shares_of_weights,
    tail_optimal_shares,
)
from dial.optimizer.weights import concurrency_weights, ideal_weights
from dial.types import WeightKind, WeightMeaning

HAPROXY = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)
LEASTCONN = WeightMeaning(WeightKind.CONCURRENCY, minimum=1, maximum=256, zero_drains=True)
ENVOY = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=2**31, zero_drains=False)
NARROW = WeightMeaning(WeightKind.REQUESTS, minimum=3, maximum=10, zero_drains=True)
BY_DELAY = WeightMeaning(WeightKind.SERVICE_RATE, minimum=1, maximum=256, zero_drains=True)
meanings = st.sampled_from([HAPROXY, ENVOY, NARROW])
ideals = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=1, max_size=30).filter(
    lambda values: sum(values) > 0.0
)


def weights_of(ideal, meaning=HAPROXY, configured=None):
    return integer_weights(np.array(ideal), meaning, configured or [100] * len(ideal))


# ---------------------------------------------------------------- by hand


def test_an_admin_who_wrote_100_100_100_reads_the_same_scale():
    # 300 units: 0.08 -> 24, 0.46 -> 138.
    assert weights_of([0.08, 0.46, 0.46]) == [24, 138, 138]


def test_units_left_over_go_to_the_largest_remainders():
    # 300 units: 63.9, 100.3, 135.8 -> whole parts 63, 100, 135; 2 are left: .9 and .8.
    assert weights_of([0.213, 0.100_3 / 0.3, 0.135_8 / 0.3]) == [64, 100, 136]


def test_equal_remainders_are_served_in_the_order_of_the_backends():
    # 400 units in three: 133 each, and one left.
    assert weights_of([1.0, 1.0, 1.0], configured=[200, 100, 100]) == [134, 133, 133]


def test_configured_weights_of_1_are_made_finer():
    # 3 units could only say thirds; 100 a backend instead.
    assert weights_of([0.2, 0.4, 0.4], configured=[1, 1, 1]) == [60, 120, 120]


def test_the_maximum_lowers_the_scale_and_keeps_the_ratios():
    # 600 units would give 480; 256 is the most, so 256/0.8 = 320 units.
    assert weights_of([0.8, 0.1, 0.1], configured=[200, 200, 200]) == [256, 32, 32]


def test_configured_256_256_1_is_reproduced_by_its_own_shares():
    shares = shares_of_weights([256, 256, 1])
    assert integer_weights(shares, HAPROXY, [256, 256, 1]) == [256, 256, 1]


def test_zero_drains_where_the_balancer_drains_at_zero():
    assert weights_of([0.5, 0.0, 0.5]) == [150, 0, 150]
    assert weights_of([0.5, 0.0, 0.5], ENVOY) == [150, 1, 150]


def test_a_share_too_small_for_a_unit_still_gets_the_minimum():
    # 300 units: 0.3 of one.  Drained it would never give a sample again.
    assert weights_of([0.001, 0.4995, 0.4995])[0] == 1


def test_one_backend_has_its_configured_weight_back():
    assert weights_of([1.0], configured=[100]) == [100]
    assert weights_of([0.3], configured=[256]) == [256]


def test_ten_thousand_backends_each_get_their_weight():
    shares = tail_optimal_shares(np.full(10_000, 50.0), 100_000.0).shares
    assert integer_weights(shares, HAPROXY, [100] * 10_000) == [100] * 10_000


@pytest.mark.parametrize("tiny", [1e-300, 5e-324])
def test_any_scale_will_do(tiny):
    assert weights_of([tiny, tiny]) == [100, 100]


@pytest.mark.parametrize(
    "ideal", [[0.0, 0.0], [-0.1, 1.1], [math.nan, 1.0], [math.inf, 1.0]], ids=str
)
def test_what_is_no_set_of_weights_is_refused(ideal):
    with pytest.raises(ValueError, match="must be finite, >= 0 and not all 0"):
        weights_of(ideal)


def test_shares_of_weights_by_hand():
    assert list(shares_of_weights([1, 3, 0])) == [0.25, 0.75, 0.0]
    assert list(shares_of_weights([0, 0])) == [0.5, 0.5]  # all drained: nobody preferred


# ---------------------------------------------------------------- properties


@given(ideal=ideals, meaning=meanings, each=st.sampled_from([1, 10, 100, 256]))
def test_weights_are_in_range_and_zero_only_drains(ideal, meaning, each):
    found = weights_of(ideal, meaning, [each] * len(ideal))
    for value, weight in zip(ideal, found, strict=True):
        drained = meaning.zero_drains and value == 0.0
        assert weight == 0 if drained else meaning.minimum <= weight <= meaning.maximum


@given(ideal=ideals, meaning=meanings)
@example(ideal=[1.0, 0.9999999999999999, 1.0], meaning=HAPROXY)
def test_the_order_of_shares_is_never_reversed(ideal, meaning):
    # Shares that differ in their last bit only have the same quota: equal, for a weight.
    ideal = [round(value, 9) for value in ideal]
    found = weights_of(ideal, meaning)
    by_share = [weight for _, weight in sorted(zip(ideal, found, strict=True))]
    assert by_share == sorted(by_share)


@given(ideal=ideals, each=st.sampled_from([1, 100, 256]))
def test_each_weight_is_within_one_unit_of_its_quota(ideal, each):
    units = min(max(each, 100) * len(ideal), int(256 * sum(ideal) / max(ideal)))
    assume(units > 0)
    found = weights_of(ideal, HAPROXY, [each] * len(ideal))
    for value, weight in zip(ideal, found, strict=True):
        assert abs(weight - value / sum(ideal) * units) <= 1.0 + 1e-9 * units


@given(ideal=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=30))
def test_all_units_are_handed_out_where_no_limit_is_met(ideal):
    # 0.05/1 of 100 is 5 units: nobody is raised to the minimum.
    assert sum(weights_of(ideal, ENVOY)) == 100 * len(ideal)


@given(ideal=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=30))
def test_a_round_robin_of_the_weights_is_the_shares_again(ideal):
    shares = np.array(ideal) / sum(ideal)
    found = shares_of_weights(weights_of(ideal, ENVOY))
    assert found == pytest.approx(shares, abs=1.0 / (100 * len(ideal)))


# ---------------------------------------------------------------- concurrency


def test_concurrency_weights_by_hand():
    # r/(r - a p): 100/(100 - 60*0.75) = 100/55 and 50/(50 - 15) = 50/35.
    found = concurrency_weights(np.array([0.75, 0.25]), np.array([100.0, 50.0]), 60.0)
    assert found == pytest.approx([100 / 55, 50 / 35])


@given(
    r=st.lists(st.floats(10.0, 100.0), min_size=1, max_size=10).map(np.array),
    fraction=st.floats(0.7, 0.99),
)
def test_the_optimal_shares_come_to_root_r_whatever_the_load(r, fraction):
    a = fraction * float(r.sum())
    shares = tail_optimal_shares(r, a).shares
    assume(shares.min() > 0.0)
    found = concurrency_weights(shares, r, a) / np.sqrt(r)
    assert found == pytest.approx(np.full(r.size, found[0]), rel=1e-7)


def test_concurrency_weights_refuse_a_saturated_backend():
    with pytest.raises(ValueError, match="exceeds its backend's throughput"):
        concurrency_weights(np.array([0.5, 0.5]), np.array([30.0, 100.0]), 60.0)


@pytest.mark.parametrize("kind", [WeightKind.REQUESTS, WeightKind.DRAW])
def test_request_and_draw_weights_are_the_shares(kind):
    shares, meaning = np.array([0.75, 0.25]), replace(HAPROXY, kind=kind)
    assert list(ideal_weights(shares, meaning, np.array([100.0, 50.0]), 60.0)) == [0.75, 0.25]


def test_ideal_concurrency_weights_drain_what_has_no_share():
    # Alone in the pool: 100/(100 - 60) = 2.5.
    found = ideal_weights(np.array([1.0, 0.0]), LEASTCONN, np.array([100.0, 50.0]), 60.0)
    assert list(found) == [2.5, 0.0]


@pytest.mark.parametrize("r", [None, np.array([30.0, 100.0])], ids=["unknown", "saturated"])
def test_where_concurrency_cannot_be_foreseen_the_shares_stand(r):
    found = ideal_weights(np.array([0.5, 0.5]), LEASTCONN, r, 60.0)
    assert list(found) == [0.5, 0.5]


def biased(bias: float, balancers: int = 1) -> WeightMeaning:
    return replace(ENVOY, in_flight_bias=bias, balancers=balancers)


def test_envoys_least_request_reckons_with_the_requests_in_flight():
    # 45/s of 100 and 15/s of 50: rho = 0.45 and 0.3, in flight + 1 is 1/0.55 and 1/0.7.
    shares, r = np.array([0.75, 0.25]), np.array([100.0, 50.0])
    plus_1 = np.array([1.0 / 0.55, 1.0 / 0.7])
    for bias in (0.0, 0.5, 1.0):
        found = ideal_weights(shares, biased(bias), r, 60.0)
        assert list(found) == pytest.approx(list(shares * plus_1**bias))


def test_each_of_several_envoys_counts_its_own_part_of_the_requests_in_flight():
    # 0.45/0.55 = 0.818 and 0.3/0.7 = 0.429 in flight, a quarter of them at each of four.
    found = ideal_weights(np.array([0.75, 0.25]), biased(1.0, 4), np.array([100.0, 50.0]), 60.0)
    assert list(found) == pytest.approx([0.75 * (1 + 0.818 / 4), 0.25 * (1 + 0.4286 / 4)], rel=1e-3)


def test_a_bias_is_left_alone_where_throughputs_are_not_known():
    shares = np.array([0.75, 0.25])
    assert list(ideal_weights(shares, biased(1.0), None, 60.0)) == [0.75, 0.25]


def test_near_saturation_and_past_it_the_bias_has_a_limit():
    # rho of 1.125 and 0.3 counts as 0.8 and 0.3: in flight + 1 is 5 and 1/0.7.
    found = ideal_weights(np.array([0.75, 0.25]), biased(1.0), np.array([40.0, 50.0]), 60.0)
    assert list(found) == pytest.approx([0.75 * 5.0, 0.25 / 0.7])


def test_the_first_step_of_a_shift_takes_weight_from_the_victim():
    # A third of 200/s is 1.9 times what the victim can serve, and half a step later 0.95 times:
    # by the formula alone it would get 124 of 300 where it had 100.
    r, aim, step = np.array([35.0, 100.0, 100.0]), [0.135, 0.4325, 0.4325], [1 / 6, 5 / 12, 5 / 12]
    ideal = ideal_weights(np.array(step), biased(1.0), r, 200.0, aim=np.array(aim))
    assert weights_of(ideal, ENVOY)[0] <= 50


@given(
    fraction=st.floats(0.05, 0.98),
    left=st.floats(0.05, 0.95),
    moved=st.floats(0.01, 1.0),
    bias=st.floats(0.0, 2.0),
)
def test_no_step_towards_the_optimum_raises_the_weight_of_the_victim(fraction, left, moved, bias):
    r = np.array([100.0 * left, 100.0, 100.0])
    a = fraction * float(r.sum())
    aim = tail_optimal_shares(r, a).shares
    even = np.full(3, 1 / 3)
    step = even + moved * (aim - even)
    ideal = ideal_weights(step, biased(bias), r, a, aim=aim)
    assert ideal[0] / ideal.sum() <= 1 / 3 + 1e-9


def test_on_the_way_out_a_victims_weight_under_leastconn_never_rises() -> None:
    # r = (30, 100, 100), a = 60: from even shares, the victim on its way to none.
    throughput = np.array([30.0, 100.0, 100.0])
    aim = np.array([0.0, 0.5, 0.5])
    for share in (0.3, 0.17, 0.01):
        shares = np.array([share, (1 - share) / 2, (1 - share) / 2])
        ideal = ideal_weights(shares, LEASTCONN, throughput, 60.0, aim=aim)
        assert ideal[0] < ideal[1] == ideal[2]
    assert ideal_weights(aim, LEASTCONN, throughput, 60.0, aim=aim)[0] == 0.0


# ---------------------------------------------------------------- service rates


@pytest.mark.parametrize(
    ("left", "configured", "weights"),
    [
        ([1.0, 1.0, 0.5], [100, 100, 100], [100, 100, 50]),
        ([1.0, 1.0, 0.5], [100, 100, 50], [100, 100, 25]),
        ([0.5, 1.0], [50, 50], [25, 50]),  # nobody else's weight changes
        ([0.5, 1.0], [1, 2], [50, 200]),  # in finer units
        ([0.55, 1.0], [4, 100], [6, 256]),  # as fine as they get: 2.2 of 4 would be 2
        ([0.5, 1.0], [256, 256], [128, 256]),
        ([0.5, 1.0], [1, 256], [1, 256]),  # coarser than 256 it cannot be, and never 0
        ([0.0, 0.3], [100, 100], [0, 30]),
    ],
)
def test_a_service_rate_is_what_is_left_of_the_configured_weight(left, configured, weights):
    units = rate_units(configured, BY_DELAY)
    assert rate_weights(np.array(left), BY_DELAY, configured, units) == weights


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 256)), min_size=1, max_size=30),
    st.data(),
)
def test_a_backends_service_rate_does_not_depend_on_what_others_have_left(backends, data):
    left, configured = (list(column) for column in zip(*backends, strict=True))
    at = data.draw(st.integers(0, len(left) - 1))
    units = rate_units(configured, BY_DELAY)
    before = rate_weights(np.array(left), BY_DELAY, configured, units)
    left[at] = data.draw(st.floats(0.0, 1.0))
    after = rate_weights(np.array(left), BY_DELAY, configured, units)
    assert [w for i, w in enumerate(before) if i != at] == [
        w for i, w in enumerate(after) if i != at
    ]
    assert all(0 <= weight <= 256 for weight in after)
    assert all((weight == 0) == (part == 0.0) for weight, part in zip(after, left, strict=True))
