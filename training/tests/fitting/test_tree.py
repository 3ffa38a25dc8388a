"""The exported tree is scikit-learn's, number for number, missing values included."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dial.classifier import FEATURES, Branch, Leaf, classify
from dial.types import Cause, NoData
from dial_training.errors import DatasetError
from dial_training.table import Table
from dial_training.tree import choose_alpha, cross_validate, export, grow, in_words, least_above

NAMES = list(FEATURES)
CLASSES = np.array(["cpu", "net", "disk", "none"])


def table(x, y, sessions=20):
    n = len(y)
    return Table(
        np.asarray(x, dtype=np.float64),
        np.asarray(y),
        np.array([f"session-{i % sessions}" for i in range(n)]),
        np.array([f"session-{i % sessions}/{i % 7}" for i in range(n)]),
        np.array(["probe"] * n),
        np.zeros((1, len(NAMES))),
    )


def random_rows(seed, n, missing=0.2):
    """Rows with structure that two features tell, and values missing at random."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, len(NAMES)))
    y = CLASSES[2 * (x[:, 0] > 0.3) + (x[:, 1] > -0.2)]
    x[random.random(x.shape) < missing] = np.nan
    return x, y


def predict(tree, row):
    found = {
        name: NoData("missing") if np.isnan(value) else float(value)
        for name, value in zip(NAMES, row, strict=True)
    }
    return classify(tree, found)[0].value


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.01, 0.1]))
def test_the_exported_tree_answers_as_scikit_learn_does(seed, alpha):
    grown = grow(table(*random_rows(seed, 400)), alpha)
    exported = export(grown)
    asked, _ = random_rows(seed + 1, 300, missing=0.3)
    assert [predict(exported, row) for row in asked] == list(grown.predict(asked))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_it_answers_alike_on_and_beside_every_threshold(seed):
    x, y = random_rows(seed, 300, missing=0.0)
    grown = grow(table(x, y), 0.0)
    exported = export(grown)
    for threshold in grown.tree_.threshold[grown.tree_.feature >= 0]:
        for value in (
            threshold,
            np.nextafter(threshold, np.inf),
            least_above(threshold),
            np.nextafter(least_above(threshold), -np.inf),
            float(np.nextafter(np.float32(threshold), np.float32(np.inf))),
        ):
            rows = np.where(np.isfinite(x[:20]), value, x[:20])
            assert [predict(exported, row) for row in rows] == list(grown.predict(rows))


@given(st.floats(-1e30, 1e30, allow_nan=False))
def test_least_above_is_the_first_number_that_single_precision_takes_above(threshold):
    at = least_above(threshold)
    assert float(np.float32(at)) > threshold
    assert float(np.float32(np.nextafter(at, -np.inf))) <= threshold


def test_a_tier_without_a_signal_has_its_own_side_at_that_branch():
    """Feature 0 tells net from disk, where it is there; feature 1 tells cpu from both."""
    x = np.zeros((120, len(NAMES)))
    x[:, 0] = np.tile([1.0, 5.0, 1.0], 40)
    x[:, 1] = np.tile([0.0, 0.0, 3.0], 40)
    x[60:, 0] = np.nan
    rows = table(x, ["net", "disk", "cpu"] * 40)
    tree = export(grow(replace(rows, tier=np.repeat(["probe", "proc"], 60)), 0.0))
    assert predict(tree, x[0]) == "net"
    assert predict(tree, x[1]) == "disk"
    assert predict(tree, x[2]) == predict(tree, x[62]) == "cpu"


def test_that_a_signal_is_there_at_all_tells_nothing():
    """Only sessions of net have feature 0; it is high in contention and 1 in quiet times."""
    random = np.random.default_rng(2)
    x = np.full((120, len(NAMES)), 0.0)
    x[:, 0] = np.nan
    x[:40, 0] = random.normal(5.0, 0.3, 40)
    x[40:80, 1] = random.normal(3.0, 0.3, 40)
    x[80:, 2] = random.normal(3.0, 0.3, 40)
    quiet = np.zeros((50, len(NAMES)))
    quiet[:, 0] = random.normal(1.0, 0.1, 50)
    rows = replace(table(x, ["net"] * 40 + ["cpu"] * 40 + ["disk"] * 40), quiet=quiet)
    tree = export(grow(rows, 0.0))
    assert [predict(tree, row) for row in (x[0], x[40], x[80])] == ["net", "cpu", "disk"]
    # A machine under contention for the CPU whose connect time is known, and quiet.
    seen = x[40].copy()
    seen[0] = 1.0
    assert predict(tree, seen) == "cpu"


def test_a_split_between_known_and_missing_is_exported_too():
    assert least_above(np.inf) == sys.float_info.max


def test_branches_with_the_same_answer_on_both_sides_are_folded():
    """All of cpu at 0, three quarters at 1, an eighth at 2: the first two leaves say cpu."""
    x = np.zeros((120, len(NAMES)))
    x[:, 0] = np.repeat([0.0, 1.0, 2.0], 40)
    y = ["cpu"] * 40 + ["cpu"] * 30 + ["net"] * 10 + ["net"] * 35 + ["cpu"] * 5
    grown = grow(table(x, y), 0.0)
    assert grown.get_n_leaves() == 3
    exported = export(grown)
    assert isinstance(exported, Branch)
    assert (exported.below, exported.above) == (Leaf(Cause.CPU), Leaf(Cause.NET))


def test_a_tree_has_no_more_leaves_than_a_person_reads():
    random = np.random.default_rng(3)
    x = random.normal(size=(2000, len(NAMES)))
    y = random.choice(CLASSES, 2000)
    grown = grow(table(x, y), 0.0)
    assert grown.get_n_leaves() == 12


def by_session(classes):
    """Ten rows of each of six sessions, two stages each; feature 0 is the session's number."""
    session = np.repeat(np.arange(6), 10)
    x = np.zeros((60, len(NAMES)))
    x[:, 0] = session
    names = np.array([f"s{s}" for s in session])
    stages = np.array([f"{name}/{i % 2}" for i, name in enumerate(names)])
    tiers, quiet = np.array(["probe"] * 60), np.zeros((1, len(NAMES)))
    return Table(x, np.array(classes)[session], names, stages, tiers, quiet)


def test_no_session_is_on_both_sides_of_a_fold():
    """With half of each session known all would be right; the other sessions tell nothing."""
    found = cross_validate(by_session(["cpu", "net", "disk", "cpu", "net", "disk"]), 0.0)
    assert found.unit == "session"
    assert found.error > 0.5


def test_stages_are_kept_whole_where_a_class_is_in_one_session_only():
    found = cross_validate(by_session(["cpu", "net", "disk", "cpu", "net", "none"]), 0.0)
    assert found.unit == "stage"


def test_noise_is_pruned_away():
    """One feature tells, the rest is noise: the smallest tree has one comparison."""
    random = np.random.default_rng(5)
    x = random.normal(size=(600, len(NAMES)))
    y = np.where(x[:, 2] > 0.0, "cpu", "net")
    rows = table(x, y)
    chosen = choose_alpha(rows)
    tree = export(grow(rows, chosen.alpha))
    assert isinstance(tree, Branch)
    assert tree.feature == NAMES[2]
    assert tree.threshold == pytest.approx(0.0, abs=0.02)
    assert (tree.below, tree.above) == (Leaf(Cause.NET), Leaf(Cause.CPU))


def test_pruning_leaves_every_class_a_leaf():
    """Twenty rows of a rare class among 400 that noise cannot tell: dropping it costs little."""
    random = np.random.default_rng(8)
    x = random.normal(size=(420, len(NAMES)))
    y = np.array(["none"] * 200 + ["cpu"] * 200 + ["net"] * 20)
    x[200:400, 0] += 2.0
    x[400:, 1] += 1.5
    rows = table(x, y)
    words = " ".join(in_words(export(grow(rows, choose_alpha(rows).alpha))))
    assert all(f": {label}" in words for label in ("none", "cpu", "net"))


def test_the_same_rows_give_the_same_tree():
    rows = table(*random_rows(9, 500))
    assert export(grow(rows, 0.003)) == export(grow(rows, 0.003))


def test_one_stage_cannot_be_cross_validated():
    x, y = random_rows(1, 100)
    one = replace(table(x, y, sessions=1), stage=np.array(["session-0/0"] * 100))
    with pytest.raises(DatasetError, match=r"rows of 1 stage: .* at least 2"):
        cross_validate(one, 0.0)


def test_the_tree_in_words_tells_where_missing_values_go():
    tree = Branch("t_c_ratio", 3.0, Leaf(Cause.NONE), Leaf(Cause.NET), missing="above")
    assert in_words(tree) == [
        "t_c_ratio < 3: none",
        "t_c_ratio >= 3 or missing: net",
    ]


def test_the_tree_in_words_tells_known_from_missing():
    tree = Branch(
        "t_c_ratio", sys.float_info.max, Leaf(Cause.NONE), Leaf(Cause.UNKNOWN), missing="above"
    )
    assert in_words(tree) == ["t_c_ratio known: none", "t_c_ratio missing: unknown"]


@pytest.fixture(autouse=True)
def _small_classes_are_allowed():
    """Random rows may leave a class with fewer members than folds: scikit-learn warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
