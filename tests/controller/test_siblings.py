"""A backend beside its siblings."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.controller.siblings import Apparent, Comparison, siblings_of
from dial.estimator import RhoBg
from dial.types import NoData

UNKNOWN = NoData("?")


@given(st.lists(st.one_of(st.none(), st.floats(-1.0, 1.0)), max_size=9))
def test_the_typical_sibling_is_the_lower_median_of_the_others(values):
    apparent = {
        f"s{i}": Apparent(UNKNOWN if v is None else RhoBg(v, 0.1), UNKNOWN)
        for i, v in enumerate(values)
    }
    found = siblings_of(apparent)
    for name in apparent:
        others = [v.t_x.mean for n, v in apparent.items() if n != name and isinstance(v.t_x, RhoBg)]
        sibling = found[name].t_x
        if others:
            assert isinstance(sibling, RhoBg)
            assert sibling.mean == statistics.median_low(others)
        else:
            assert isinstance(sibling, NoData)
        assert isinstance(found[name].cpu_time, NoData)


def after(own: list[float], siblings: list[float], sd: float = 0.1) -> Comparison:
    compared = Comparison()
    for mine, theirs in zip(own, siblings, strict=True):
        compared = compared.step(RhoBg(mine, sd), RhoBg(theirs, sd), calm=False)
    return compared


def test_the_newest_interval_counts_most_and_the_error_falls_with_the_intervals():
    """0.85 x 0.4 and 0.3 over 1.85; sd 0.1 sqrt(2 (1 + 0.85^2)) / 1.85 = 0.1003."""
    compared = after([0.5, 0.4], [0.1, 0.1])
    excess = (0.85 * 0.4 + 0.3) / 1.85
    assert compared.excess.mean == pytest.approx(excess)
    assert compared.exceeds(excess - 1e-9)
    assert not compared.exceeds(excess + 1e-9)
    # Half of the least must be below excess - sd: 0.173 is.
    assert after([0.5, 0.4], [0.1, 0.1], sd=0.171).exceeds(excess - 1e-9)
    assert not after([0.5, 0.4], [0.1, 0.1], sd=0.175).exceeds(excess - 1e-9)
    assert after([0.5, 0.4] * 4, [0.1, 0.1] * 4, sd=0.175).exceeds(excess - 0.01)


def test_siblings_that_are_faster_than_usual_accuse_nobody():
    assert after([0.1], [-0.4]).excess.mean == pytest.approx(0.1)


def test_siblings_that_are_faster_and_slower_by_chance_cancel_out():
    compared = after([0.3] * 60, [0.2, -0.2] * 30)
    assert compared.excess.mean == pytest.approx(0.3, abs=0.02)


def test_of_backends_slow_alike_the_slowest_by_chance_does_not_exceed():
    assert not after([0.5, 0.45], [0.3, 0.25]).exceeds(0.2)


def test_a_long_time_of_being_slow_alike_is_forgotten_in_a_few_intervals():
    alike = after([0.4] * 200, [0.4] * 200)
    for _ in range(4):
        alike = alike.step(RhoBg(0.9, 0.1), RhoBg(0.4, 0.1), calm=False)
    assert alike.exceeds(0.2)


def test_calm_begins_anew():
    assert after([0.5], [0.1]).step(RhoBg(0.0, 0.1), UNKNOWN, calm=True) == Comparison()


def test_an_interval_without_t_x_adds_nothing():
    compared = after([0.5], [0.1])
    later = compared.step(UNKNOWN, RhoBg(0.1, 0.1), calm=False)
    assert later.excess.mean == pytest.approx(compared.excess.mean)


def test_a_backend_without_siblings_is_compared_with_an_undisturbed_one():
    compared = Comparison().step(RhoBg(0.5, 0.1), UNKNOWN, calm=False)
    assert compared.excess.mean == 0.5
    assert compared.exceeds(0.5)


def test_slowness_is_shared_where_the_siblings_have_half_of_it():
    assert after([0.5, 0.45], [0.3, 0.25]).shared
    assert not after([0.5, 0.45], [0.2, 0.25]).shared
    assert not Comparison().shared


def test_an_excess_counts_by_the_curve_of_the_resource():
    compared = after([0.3, 0.3], [0.1, 0.1], sd=0.01)
    assert not compared.exceeds(0.3)
    assert compared.exceeds(0.3, scale=1.6)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.booleans()), min_size=1, max_size=30)
)
def test_the_excess_lies_between_the_intervals_since_the_last_calm_one(intervals):
    compared, own, theirs = Comparison(), [], []
    for mine, other, calm in intervals:
        compared = compared.step(RhoBg(mine, 0.1), RhoBg(other, 0.1), calm=calm)
        own, theirs = ([], []) if calm else ([*own, mine], [*theirs, other])
    if not own:
        assert isinstance(compared.excess, NoData)
        return
    assert isinstance(compared.excess, RhoBg)
    assert math.isfinite(compared.variance)
    highest = max(own) - max(0.0, min(theirs))
    lowest = min(own) - max(0.0, *theirs)
    assert lowest - 1e-9 <= compared.excess.mean <= highest + 1e-9
