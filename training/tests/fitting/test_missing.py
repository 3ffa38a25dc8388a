"""Each class has each signal equally often, whatever the recording has."""

from __future__ import annotations

import numpy as np
import pytest

from dial.classifier import FEATURES
from dial_training.missing import balanced
from dial_training.table import Table

N = len(FEATURES)


@pytest.fixture
def table():
    """Signal 0 is there for net alone, signal 1 for all, signal 2 for nobody in tier proc."""
    x = np.ones((8, N))
    x[[1, 3, 5, 7], 0] = np.nan
    x[4:, 2] = np.nan
    x[[0, 2, 4, 6], 0] = 9.0
    quiet = np.full((5, N), 2.0)
    return Table(
        x,
        np.array(["net", "cpu"] * 4),
        np.array(["a"] * 8),
        np.array(["a/0"] * 8),
        np.array(["probe"] * 4 + ["proc"] * 4),
        quiet,
    )


def test_every_row_is_there_with_the_signal_and_without_it(table):
    x, y = balanced(table)
    assert list(y) == [*table.y, *table.y]
    for label in ("net", "cpu"):
        missing = np.isnan(x[y == label, 0])
        assert list(missing) == [False] * 4 + [True] * 4


def test_what_is_lacking_is_drawn_from_quiet_intervals_and_what_is_there_is_kept(table):
    x, _ = balanced(table)
    assert list(x[:8, 0]) == [9.0, 2.0] * 4


def test_what_a_tier_lacks_throughout_stays_missing(table):
    x, _ = balanced(table)
    assert np.isnan(x[[4, 5, 6, 7, 12, 13, 14, 15], 2]).all()
    assert not np.isnan(x[[0, 1, 2, 3, 8, 9, 10, 11], 2]).any()


def test_a_signal_that_no_quiet_interval_has_is_not_used(table):
    table.quiet[:, 0] = np.nan
    x, y = balanced(table)
    assert np.isnan(x[:, 0]).all()
    assert len(y) == 8


def test_rows_that_lack_nothing_are_taught_once(table):
    x, y = balanced(table.where(table.y == "net"))
    assert np.array_equal(x, table.x[table.y == "net"], equal_nan=True)
    assert list(y) == ["net"] * 4
