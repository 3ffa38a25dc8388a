"""A backend beside its siblings."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.controller.siblings import Beside, typical_siblings
from dial.estimator import RhoBg
from dial.types import NoData

UNKNOWN = NoData("?")


@given(st.lists(st.one_of(st.none(), st.floats(-1.0, 1.0)), max_size=9))
def test_the_typical_sibling_is_the_lower_median_of_the_others(values):
    apparent = {f"s{i}": UNKNOWN if v is None else RhoBg(v, 0.1) for i, v in enumerate(values)}
    found = typical_siblings(apparent)
    for name in apparent:
        others = [v.mean for n, v in apparent.items() if n != name and isinstance(v, RhoBg)]
        sibling = found[name]
        if others:
            assert isinstance(sibling, RhoBg)
            assert sibling.mean == statistics.median_low(others)
        else:
            assert isinstance(sibling, NoData)


def after(own: list[float], siblings: list[float], sd: float = 0.1) -> Beside:
    beside = Beside()
    for mine, theirs in zip(own, siblings, strict=True):
        beside = beside.step(RhoBg(mine, sd), RhoBg(theirs, sd), calm=False)
    return beside


def test_the_excess_is_a_mean_whose_error_falls_with_the_intervals():
    """Excess 0.4 and 0.3; sd sqrt(2 * 2 * 0.1^2)/2 = 0.1: sure of 0.35 - 0.15 = 0.2 = 0.4 / 2."""
    beside = after([0.5, 0.4], [0.1, 0.1])
    assert beside.excess == pytest.approx(0.35)
    assert beside.surely(0.34)
    assert not beside.surely(0.36)
    assert not after([0.5, 0.4], [0.1, 0.1], sd=0.15).surely(0.34)
    assert after([0.5, 0.4] * 4, [0.1, 0.1] * 4, sd=0.15).surely(0.34)


def test_siblings_that_are_faster_than_usual_accuse_nobody():
    assert after([0.1], [-0.4]).excess == pytest.approx(0.1)


def test_of_backends_slow_alike_the_slowest_by_chance_is_not_sure_to_be_slower():
    assert not after([0.5, 0.45], [0.3, 0.25]).surely(0.2)


def test_slowness_is_shared_where_the_siblings_have_half_of_it():
    assert after([0.5, 0.45], [0.3, 0.25]).shared
    assert not after([0.5, 0.45], [0.2, 0.25]).shared
    assert not Beside().shared


def test_an_excess_counts_by_the_curve_of_the_resource():
    beside = after([0.3, 0.3], [0.1, 0.1], sd=0.01)
    assert not beside.surely(0.3)
    assert beside.surely(0.3, scale=1.6)


def test_calm_forgets_the_excess_but_not_what_siblings_did_lately():
    slow = after([0.5, 0.5], [0.4, 0.4])
    assert slow.lately == pytest.approx(0.3)  # 0.4 (1 - 0.5^2)
    calm = slow.step(RhoBg(0.0, 0.1), RhoBg(0.3, 0.1), calm=True)
    assert calm.lately == pytest.approx(0.3)
    assert isinstance(calm.excess, NoData)
    assert not calm.surely(-1.0)


def test_an_interval_without_t_x_says_nothing():
    beside = after([0.5], [0.1])
    assert beside.step(UNKNOWN, RhoBg(0.1, 0.1), calm=False).excess == beside.excess


def test_a_backend_without_siblings_is_compared_with_a_healthy_one():
    beside = Beside().step(RhoBg(0.5, 0.1), UNKNOWN, calm=False)
    assert beside.excess == 0.5
    assert beside.surely(0.5)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.booleans()), min_size=1, max_size=30)
)
def test_the_excess_is_the_mean_since_the_last_calm_interval(intervals):
    beside, since = Beside(), []
    for own, theirs, calm in intervals:
        beside = beside.step(RhoBg(own, 0.1), RhoBg(theirs, 0.1), calm=calm)
        since = [] if calm else [*since, own - max(0.0, theirs)]
    if since:
        assert isinstance(beside.excess, float)
        assert math.isclose(beside.excess, statistics.fmean(since), abs_tol=1e-9)
    else:
        assert isinstance(beside.excess, NoData)
