"""The symptom that a cause was named by, followed on its own."""

from __future__ import annotations

import pytest

from dial.classifier import FEATURES, Branch, Leaf, Symptom, symptom_of
from dial.types import Cause, NoData

TREE = Branch(
    "cpu_wait_excess",
    0.9,
    below=Branch("io_pressure_odds_ratio", 1.4, Leaf(Cause.NONE), Leaf(Cause.DISK)),
    above=Branch("throttled_excess", 0.2, Leaf(Cause.CPU), Leaf(Cause.SELF_LIMITED)),
)


def found(**values):
    return dict.fromkeys(FEATURES, NoData("not measured")) | values


@pytest.mark.parametrize(
    ("values", "feature", "threshold"),
    [
        ({"cpu_wait_excess": 3.0, "throttled_excess": 0.0}, "cpu_wait_excess", 0.9),
        ({"cpu_wait_excess": 3.0, "throttled_excess": 0.5}, "throttled_excess", 0.2),
        ({"cpu_wait_excess": 0.0, "io_pressure_odds_ratio": 2.0}, "io_pressure_odds_ratio", 1.4),
        ({"io_pressure_odds_ratio": 1.4}, "io_pressure_odds_ratio", 1.4),
    ],
)
def test_the_symptom_is_the_last_threshold_that_was_exceeded(values, feature, threshold):
    symptom = symptom_of(TREE, found(**values))
    assert symptom == Symptom(feature, threshold, (values[feature],))
    assert symptom.shows


def test_where_no_threshold_was_exceeded_there_is_no_symptom():
    assert symptom_of(TREE, found(cpu_wait_excess=0.0, io_pressure_odds_ratio=1.0)) is None
    assert symptom_of(Leaf(Cause.CPU), found()) is None


@pytest.mark.parametrize(
    ("feature", "threshold", "value", "shows"),
    [
        ("io_pressure_odds_ratio", 1.4, 1.21, True),  # quiet is 1, so half way is 1.2
        ("io_pressure_odds_ratio", 1.4, 1.19, False),
        ("cpu_wait_excess", 0.9, 0.46, True),  # quiet is 0
        ("cpu_wait_excess", 0.9, 0.44, False),
    ],
)
def test_it_shows_while_it_is_nearer_to_the_threshold_than_to_its_quiet_value(
    feature, threshold, value, shows
):
    symptom = Symptom(feature, threshold).step(found(**{feature: value}))
    assert symptom.shows is shows


def test_the_mean_of_three_intervals_counts():
    symptom = Symptom("cpu_wait_excess", 0.9)
    for value in (6.0, 0.0, 0.0):
        symptom = symptom.step(found(cpu_wait_excess=value))
    assert symptom.latest == (6.0, 0.0, 0.0)
    assert symptom.shows
    assert not symptom.step(found(cpu_wait_excess=0.0)).shows


def test_an_interval_without_a_value_changes_nothing_and_the_next_value_counts_alone():
    symptom = Symptom("cpu_wait_excess", 0.9).step(found(cpu_wait_excess=6.0))
    assert symptom.step(found()).shows
    assert not symptom.step(found()).step(found(cpu_wait_excess=0.0)).shows


def test_what_was_never_known_does_not_show():
    assert not Symptom("cpu_wait_excess", 0.9).shows


def test_what_has_not_been_seen_for_ten_intervals_no_longer_shows():
    symptom = Symptom("cpu_wait_excess", 0.9).step(found(cpu_wait_excess=6.0))
    for _ in range(9):
        symptom = symptom.step(found())
        assert symptom.shows
    assert not symptom.step(found()).shows


@pytest.mark.parametrize(
    ("feature", "threshold", "value", "clear"),
    [
        ("t_c_ratio", 1.25, 1.5, True),  # twice as far from 1
        ("t_c_ratio", 1.25, 1.4, False),
        ("cpu_wait_excess", 0.8, 1.6, True),  # twice as far from 0
        ("cpu_wait_excess", 0.8, 1.5, False),
    ],
)
def test_a_symptom_twice_as_far_from_quiet_as_its_threshold_is_clear(
    feature, threshold, value, clear
):
    assert Symptom(feature, threshold).step(found(**{feature: value})).is_clear is clear


def test_what_is_not_seen_is_not_clear():
    assert not Symptom("t_c_ratio", 1.25).is_clear
