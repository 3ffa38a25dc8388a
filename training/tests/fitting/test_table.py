"""Which intervals are rows, and what the right answer to each is."""

from __future__ import annotations

import numpy as np
import pytest

from dial.classifier import FEATURES
from dial.types import Cause
from dial_training.replay import study
from dial_training.table import SIGNALS, right_answers, tabulate

NOTHING = np.full((1, len(FEATURES)), np.nan)


@pytest.mark.parametrize(("cause", "signals"), SIGNALS.items())
def test_a_class_without_any_of_its_signals_is_unknown_and_one_is_enough(cause, signals):
    label = np.array([cause.value])
    assert right_answers(NOTHING, label).tolist() == ["unknown"]
    for signal in signals:
        seen = NOTHING.copy()
        seen[0, list(FEATURES).index(signal)] = 1.0
        assert right_answers(seen, label).tolist() == [cause.value]


@pytest.mark.parametrize("cause", [Cause.NONE, Cause.LOAD])
def test_that_nobody_takes_anything_needs_no_signal(cause):
    assert right_answers(NOTHING, np.array([cause.value])).tolist() == [cause.value]


def test_every_contention_has_signals_and_all_of_them_exist():
    by_rule = {cause for cause in Cause if cause.is_own_doing}
    assert set(SIGNALS) == {cause for cause in Cause if cause.costs_capacity} - by_rule
    assert {name for names in SIGNALS.values() for name in names} <= set(FEATURES)


def test_heavier_requests_are_no_rows(lab, stage_of):
    cpu = {"s1": (Cause.CPU, 0.6)}
    heavier = lab.session("a", stage_of(cpu), stage_of(cost_factor=1.5))
    table = tabulate([study(heavier, 90.0)])
    assert set(table.stage) == {"a/0"}


def test_a_neighbour_that_took_next_to_nothing_is_no_row(lab, stage_of):
    session = lab.session("a", stage_of({"s1": (Cause.CPU, 0.6), "s2": (Cause.CPU, 0.1)}), load=0.6)
    rows = tabulate([study(session, 90.0)])
    assert 0 < np.sum(rows.y == "cpu") <= 15  # s1 alone has fifteen ticks


def test_less_load_than_in_learning_explains_no_slowness(lab, stage_of):
    """Its few intervals above the band are chance's."""
    less = stage_of(rate_factor=0.6, ticks=200)
    table = tabulate([study(lab.session("a", less, stage_of({"s1": (Cause.CPU, 0.6)})), 90.0)])
    assert set(table.y[table.stage == "a/0"]) == {"none"}
