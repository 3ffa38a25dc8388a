"""Arrivals: the same for every policy, Poisson, with the mean that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from dial_lab.arrivals import Swing, draw, out_of_step


def test_the_same_seed_and_stream_give_the_same_requests() -> None:
    one, other = (
        draw(7, 0, 100.0, duration_s=20.0, mean_cost=2000.0),
        draw(7, 0, 100.0, duration_s=20.0, mean_cost=2000.0),
    )
    assert np.array_equal(one.at_s, other.at_s)
    assert np.array_equal(one.amount, other.amount)


def test_another_stream_gives_other_requests() -> None:
    assert not np.array_equal(
        draw(7, 0, 100.0, duration_s=5.0, mean_cost=2000.0).amount[:50],
        draw(7, 1, 100.0, duration_s=5.0, mean_cost=2000.0).amount[:50],
    )


def test_arrivals_are_ascending_and_within_the_block() -> None:
    at_s = draw(1, 0, 500.0, duration_s=10.0, mean_cost=2000.0).at_s
    assert (np.diff(at_s) > 0).all()
    assert at_s[0] > 0.0
    assert at_s[-1] < 10.0


def test_rate_and_cost_have_the_means_asked_for() -> None:
    arrivals = draw(3, 0, 200.0, duration_s=500.0, mean_cost=2000.0)
    # 100,000 expected, standard deviation 316; mean cost 2 ms, standard error 6.3 us.
    assert abs(len(arrivals) - 100_000) < 5 * 316
    assert abs(float(arrivals.amount.mean()) - 2000.0) < 5 * 6.3 + 1.0


def test_a_swing_changes_rate_and_cost_between_its_moments_only() -> None:
    swing = Swing(100.0, 200.0, rate_factor=1.5, cost_factor=2.0)
    arrivals = draw(3, 0, 200.0, duration_s=300.0, mean_cost=2000.0, swings=[swing])
    for begin_s, rate, cost in (
        (0.0, 200.0, 2000.0),
        (100.0, 300.0, 4000.0),
        (200.0, 200.0, 2000.0),
    ):
        inside = (arrivals.at_s >= begin_s) & (arrivals.at_s < begin_s + 100.0)
        count = int(inside.sum())
        assert abs(count - 100 * rate) < 5 * (100 * rate) ** 0.5
        assert abs(float(arrivals.amount[inside].mean()) - cost) < 5 * cost / count**0.5


def test_swings_follow_each_other_and_leave_the_time_between_alone() -> None:
    swings = [Swing(10.0, 20.0, rate_factor=0.5), Swing(20.0, 30.0, rate_factor=2.0)]
    at_s = draw(3, 0, 1000.0, duration_s=40.0, mean_cost=2000.0, swings=swings).at_s
    for begin_s, rate in ((0.0, 1000.0), (10.0, 500.0), (20.0, 2000.0), (30.0, 1000.0)):
        count = int(((at_s >= begin_s) & (at_s < begin_s + 10.0)).sum())
        assert abs(count - 10 * rate) < 5 * (10 * rate) ** 0.5


@pytest.mark.parametrize(
    "swings",
    [
        [Swing(5.0, 4.0)],
        [Swing(0.0, 6.0), Swing(5.0, 8.0)],
        [Swing(5.0, 8.0), Swing(0.0, 2.0)],
        [Swing(5.0, 11.0)],
    ],
)
def test_swings_out_of_order_or_of_the_block_are_refused(swings: list[Swing]) -> None:
    with pytest.raises(ValueError, match=r"not in order within 0 to 10 s"):
        draw(3, 0, 100.0, duration_s=10.0, mean_cost=2000.0, swings=swings)


def test_blocks_begin_anywhere_in_an_interval() -> None:
    parts = np.array([out_of_step(1, stream) for stream in range(2000)])
    # Uniform: 200 expected in each tenth, standard deviation 13.
    counts, _ = np.histogram(parts, bins=10, range=(0.0, 1.0))
    assert counts.sum() == 2000
    assert abs(counts - 200).max() < 5 * 13


def test_the_same_round_begins_at_the_same_part_of_an_interval_under_every_policy() -> None:
    assert out_of_step(7, 3) == out_of_step(7, 3)
    assert out_of_step(7, 3) != out_of_step(8, 3)
