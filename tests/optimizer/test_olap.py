"""The split of Eq. 6: the paper's case by hand, any placement against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dial.optimizer import tail_optimal_shares
from dial.optimizer.olap import (
    Placement,
    drawn_shares,
    met_by_queries,
    olap_shares,
    replica_weights,
    slow_worker_split,
)

RATES = st.floats(5.0, 200.0)


def objective(shares: np.ndarray, rates: np.ndarray, arrival: float) -> float:
    spare = rates - arrival * shares
    return float("inf") if (spare <= 0.0).any() else float((shares / spare).sum())


def brute_force(rates: np.ndarray, arrival: float, placement: Placement) -> float:
    """Least Eq. 6 by a general solver over all p_gi, from the split by throughput on."""
    where = placement.replicas
    group, worker = np.nonzero(where)

    def shares(p: np.ndarray) -> np.ndarray:
        return np.bincount(worker, placement.load[group] * p, rates.size)

    of_group = np.where(where, rates, 0.0)
    start = (of_group / of_group.sum(axis=1, keepdims=True))[group, worker]
    sums = [
        {"type": "eq", "fun": lambda p, g=g: p[group == g].sum() - 1.0} for g in range(len(where))
    ]

    def value(p: np.ndarray) -> float:
        q = shares(p)
        spare = np.maximum(rates - arrival * q, 1e-3 * rates)
        return float((q / spare).sum() * rates.mean())

    found = minimize(
        value, start, method="SLSQP", bounds=[(0.0, 1.0)] * start.size, constraints=sums,
        options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    return objective(shares(found.x), rates, arrival)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, float, Placement]:
    """Up to five workers and six groups; a load that everyone's own segments leave room for."""
    n = draw(st.integers(2, 5))
    rows = draw(
        st.lists(
            st.lists(st.booleans(), min_size=n, max_size=n).filter(any), min_size=1, max_size=6
        )
    )
    load = np.array(draw(st.lists(st.floats(0.05, 1.0), min_size=len(rows), max_size=len(rows))))
    rates = np.array(draw(st.lists(RATES, min_size=n, max_size=n)))
    placement = Placement(load / load.sum(), np.array(rows))
    alone = drawn_shares(rates, placement)  # one feasible split: its worst worker at 70 %
    arrival = 0.7 * float(np.min(rates[alone > 0] / alone[alone > 0]))
    return rates, arrival * draw(st.floats(0.05, 1.0)), placement


def test_the_papers_case_is_lemma_1_with_n_over_c():
    # n = 6, c = 3: r = 100, r_w = 60, a = 300.  sum sqrt(r) = 50 + sqrt(60) = 57.746,
    # s = (560 - 300) / 57.746 = 4.5025; a q* = 60 - 4.5025 * 7.746 = 25.124, q* = 0.0837.
    rates = np.array([60.0, 100.0, 100.0, 100.0, 100.0, 100.0])
    split = olap_shares(rates, 300.0, Placement.fair(6, 3))
    assert split.shares[0] == pytest.approx(0.0837, abs=1e-4)
    assert slow_worker_split(100.0, 60.0, 300.0, 6, 3) == pytest.approx(0.1675, abs=1e-4)


def test_a_worker_is_never_asked_for_more_than_it_holds():
    # s = (290 - 100) / (20 + 9.487) = 6.4436; a q* = 90 - 6.4436 * 9.487 = 28.87; n/c = 3.
    assert slow_worker_split(100.0, 90.0, 100.0, 3, 1) == pytest.approx(0.8661, abs=1e-3)
    assert slow_worker_split(1.0, 200.0, 100.0, 3, 1) == 1.0
    assert slow_worker_split(200.0, 1.0, 100.0, 3, 2) == 0.0


def test_without_copies_every_worker_serves_what_it_holds():
    placement = Placement(np.array([0.5, 0.3, 0.2]), np.eye(3, dtype=bool))
    split = olap_shares(np.array([10.0, 100.0, 100.0]), 15.0, placement)
    assert split.shares == pytest.approx([0.5, 0.3, 0.2])
    assert not split.overload


def test_a_set_of_workers_that_cannot_serve_its_own_segments_is_an_overload():
    placement = Placement(np.array([0.5, 0.5]), np.array([[1, 1, 0], [0, 0, 1]], dtype=bool))
    split = olap_shares(np.array([10.0, 30.0, 500.0]), 100.0, placement)
    assert split.overload
    assert split.shares == pytest.approx([0.125, 0.375, 0.5])  # 10 : 30 within the set


def test_where_all_hold_all_it_is_eq_2():
    rates = np.array([20.0, 90.0, 100.0])
    split = olap_shares(rates, 120.0, Placement.fair(3, 3))
    assert split.shares == pytest.approx(tail_optimal_shares(rates, 120.0).shares)


def test_a_query_meets_a_worker_more_often_than_its_segments_do():
    assert met_by_queries(0.05, 1) == pytest.approx(0.05)
    assert met_by_queries(0.024, 12) == pytest.approx(0.253, abs=1e-3)


def test_segments_with_the_same_replicas_are_one_group():
    placement = Placement.of_segments([[1, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 0]])
    assert placement.load.tolist() == [0.25, 0.75]
    assert placement.replicas.tolist() == [[False, True, True], [True, True, False]]


@given(problems())
def test_no_split_that_the_placement_allows_is_better(problem):
    rates, arrival, placement = problem
    split = olap_shares(rates, arrival, placement)
    found = objective(split.shares, rates, arrival)
    assert split.shares.sum() == pytest.approx(1.0)
    assert found <= brute_force(rates, arrival, placement) * (1.0 + 1e-6)


@given(problems())
def test_every_set_of_workers_gets_what_only_it_can_serve(problem):
    rates, arrival, placement = problem
    shares = olap_shares(rates, arrival, placement).shares
    for members in range(1, 2**rates.size):
        inside = np.array([members >> i & 1 for i in range(rates.size)], dtype=bool)
        only_here = placement.load[~placement.replicas[:, ~inside].any(axis=1)].sum()
        assert shares[inside].sum() >= only_here - 1e-7


@given(problems(), st.randoms(use_true_random=False))
def test_renaming_the_workers_renames_the_shares(problem, random):
    rates, arrival, placement = problem
    order = list(range(rates.size))
    random.shuffle(order)
    renamed = Placement(placement.load, placement.replicas[:, order])
    there = olap_shares(rates[order], arrival, renamed).shares
    here = olap_shares(rates, arrival, placement).shares[order]
    assert there == pytest.approx(here, abs=1e-6)


def test_weights_of_workers_draw_the_papers_split():
    # p = 0.1675 of three replicas: w = 2 p / (1 - p) = 0.4024 beside 1 and 1.
    placement = Placement.fair(6, 3)
    shares = olap_shares(np.array([60.0, 100, 100, 100, 100, 100]), 300.0, placement).shares
    weights = replica_weights(shares, placement)
    assert weights[0] == pytest.approx(0.4024, abs=1e-3)
    assert weights[1:] == pytest.approx(np.ones(5))


@given(problems())
def test_weights_of_workers_draw_the_shares_they_were_made_for(problem):
    rates, _, placement = problem
    inside = drawn_shares(rates, placement)  # of some weights, so within what can be drawn
    found = drawn_shares(replica_weights(inside, placement), placement)
    assert found == pytest.approx(inside, abs=1e-3)


@pytest.mark.parametrize(
    ("load", "replicas"),
    [([1.0], [[0, 0]]), ([0.5], [[1, 1]]), ([0.5, 0.5], [[1, 1]]), ([-1.0, 2.0], [[1, 1], [1, 1]])],
)
def test_a_placement_that_cannot_be_is_refused(load, replicas):
    with pytest.raises(ValueError, match=r"load|replicas"):
        Placement(np.array(load), np.array(replicas, dtype=bool))


def test_rates_of_another_number_of_workers_are_refused():
    with pytest.raises(ValueError, match="one for each of 3"):
        olap_shares(np.array([1.0, 2.0]), 1.0, Placement.fair(3, 2))
