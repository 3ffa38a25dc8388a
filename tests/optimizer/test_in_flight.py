"""Who takes part under least connections: by hand, by properties, and by simulated queues."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dial.optimizer import in_flight_split, tail_optimal_shares

NOBODY = np.zeros(3, dtype=bool)


def split(
    r: list[float], load: float, left_out: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Shares at a fraction of all that the backends serve; those below 1 are contended."""
    throughput = np.array(r)
    contended = throughput < 1.0
    before = np.zeros(len(r), dtype=bool) if left_out is None else left_out
    return in_flight_split(throughput, load * throughput.sum(), contended, before).shares


def test_a_victim_is_left_out_while_the_others_busy_are_faster_than_it_idle() -> None:
    # Without it 0.625 arrives for two that serve 1 each: s = (2 - 0.625)/2 = 0.69 >= 1.07 x 0.5.
    assert split([0.5, 1.0, 1.0], 0.25) == pytest.approx([0.0, 0.5, 0.5])
    # 1.25 for two: s = 0.375 < 0.5, so it is needed, with the share of Lemma 1.
    needed = split([0.5, 1.0, 1.0], 0.5)
    assert needed == pytest.approx([0.139, 0.4305, 0.4305], abs=1e-3)


def test_of_two_victims_the_slower_one_goes_first() -> None:
    # a = 1.125.  Beside s2: (2 - 1.125)/2 = 0.44 < 0.7, so s2 stays; beside s1: 0.525 >= 0.05.
    shares = split([0.05, 0.7, 1.0, 1.0], 1.125 / 2.75)
    assert shares[0] == 0.0
    assert np.all(shares[1:] > 0.1)


def test_who_was_left_out_comes_back_at_a_higher_load() -> None:
    out = np.array([True, False, False])
    between = 1.0 / 2.5  # s = 0.5: below 0.5 x 1.07, and above 0.5 / 1.07
    assert split([0.5, 1.0, 1.0], between)[0] > 0.0
    assert split([0.5, 1.0, 1.0], between, out)[0] == 0.0
    assert split([0.5, 1.0, 1.0], 0.5, out)[0] > 0.0


def test_a_slow_backend_without_a_neighbour_is_never_left_out() -> None:
    r = np.array([0.3, 1.0, 1.0])
    assert in_flight_split(r, 0.3, NOBODY, NOBODY).shares[0] == pytest.approx(
        tail_optimal_shares(r, 0.3).shares[0]
    )


def test_when_all_are_contended_one_takes_part() -> None:
    r = np.array([0.5, 0.2, 0.1])
    shares = in_flight_split(r, 1e-3, ~NOBODY, NOBODY).shares
    assert shares == pytest.approx([1.0, 0.0, 0.0])


def test_more_than_all_can_serve_leaves_nobody_out() -> None:
    r = np.array([0.5, 1.0, 1.0])
    found = in_flight_split(r, 3.0, r < 1.0, NOBODY)
    assert found.overload
    assert found.shares == pytest.approx(r / 2.5)


@given(
    st.lists(st.floats(0.02, 1.0), min_size=1, max_size=12),
    st.floats(0.0, 0.999),
    st.integers(0, 2**12 - 1),
    st.integers(0, 2**12 - 1),
)
def test_shares_sum_to_one_and_those_who_take_part_can_serve_them(
    r: list[float], load: float, contended: int, left_out: int
) -> None:
    throughput = np.array(r)
    masks = [
        np.array([bool(bits >> i & 1) for i in range(len(r))]) for bits in (contended, left_out)
    ]
    arrival_per_s = load * float(throughput.sum())
    found = in_flight_split(throughput, arrival_per_s, *masks)
    assert math.isclose(float(found.shares.sum()), 1.0, rel_tol=1e-9)
    assert np.all(arrival_per_s * found.shares < throughput)
    # Of two contended backends with the same past the slower one is never preferred.
    for a in range(len(r)):
        for b in range(len(r)):
            if masks[0][a] and masks[0][b] and masks[1][a] == masks[1][b] and r[a] < r[b]:
                assert not (found.shares[a] > 0.0 and found.shares[b] == 0.0)


def p90(r: list[float], load: float, weights: list[float], requests: int = 40_000) -> float:
    """In service times, of HAProxy's leastconn: idle first, then requests in flight by weight."""
    rng = np.random.default_rng(11)
    arrivals = np.cumsum(rng.exponential(1.0 / (load * sum(r)), requests))
    work = rng.exponential(1.0, requests)
    ends: list[list[float]] = [[] for _ in r]
    changed = [0.0] * len(r)
    took = np.empty(requests)
    for i, now in enumerate(arrivals):
        for k, queue in enumerate(ends):
            while queue and queue[0] <= now:
                changed[k] = queue.pop(0)
        chosen = min(
            (k for k, weight in enumerate(weights) if weight > 0.0),
            key=lambda k: ((len(ends[k]) + 1) / weights[k] if ends[k] else 0.0, changed[k]),
        )
        begins = ends[chosen][-1] if ends[chosen] else now
        ends[chosen].append(begins + work[i] / r[chosen])
        changed[chosen] = now
        took[i] = ends[chosen][-1] - now
    return float(np.percentile(took[requests // 20 :], 90.0))


@pytest.mark.parametrize("victim", [0.2, 0.5])
@pytest.mark.parametrize("load", [0.25, 0.5, 0.75])
def test_it_is_never_slower_than_least_connections_alone(victim: float, load: float) -> None:
    r = [victim, 1.0, 1.0]
    shares = split(r, load)
    weights = [math.sqrt(of) if share > 0.0 else 0.0 for of, share in zip(r, shares, strict=True)]
    assert p90(r, load, weights) <= 1.02 * p90(r, load, [1.0, 1.0, 1.0])
