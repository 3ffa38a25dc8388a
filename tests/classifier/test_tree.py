"""The decision tree: its walk, its words, and what the starter model makes of intervals."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.classifier import FEATURES, Branch, Leaf, Path, classify, leaf
from dial.classifier.tree import Tree
from dial.model import STARTER, load_model
from dial.types import Cause, NoData

TREE = Branch(
    feature="cpu_time_ratio",
    threshold=1.5,
    below=Leaf(Cause.NONE),
    above=Branch(
        feature="t_c_ratio",
        threshold=3.0,
        below=Leaf(Cause.CPU),
        above=Leaf(Cause.NET),
        missing="above",
    ),
)
QUIET = {
    "requests_ratio": 1.0,
    "errors_fraction": 0.0,
    "cpu_time_ratio": 1.0,
    "cpu_wait_excess": 0.0,
    "throttled_excess": 0.0,
    "iowait_ratio": 1.0,
    "io_pressure_odds_ratio": 1.0,
    "disk_busy_odds_ratio": 1.0,
    "retransmit_fraction": 0.0,
    "t_c_ratio": 1.0,
    "memory_reload_ratio": 1.0,
}


def test_a_leaf_needs_no_features():
    assert classify(Leaf(Cause.DISK), {}) == (Cause.DISK, ())


@pytest.mark.parametrize(
    ("cpu_time_ratio", "t_c_ratio", "cause"),
    [
        (1.0, 9.0, Cause.NONE),
        (1.5, 1.0, Cause.CPU),  # at the threshold goes above
        (1.4999999, 9.0, Cause.NONE),
        (2.0, 3.0, Cause.NET),
        (2.0, 2.9, Cause.CPU),
    ],
)
def test_below_goes_below_and_the_threshold_itself_above(cpu_time_ratio, t_c_ratio, cause):
    assert classify(TREE, {"cpu_time_ratio": cpu_time_ratio, "t_c_ratio": t_c_ratio})[0] is cause


def test_a_branch_on_whether_a_feature_is_known_says_so():
    tree = Branch(
        "t_c_ratio", sys.float_info.max, Leaf(Cause.NONE), Leaf(Cause.UNKNOWN), missing="above"
    )
    assert classify(tree, {"t_c_ratio": 1.5}) == (Cause.NONE, ("connect time 1.5x is known",))
    assert classify(tree, {"t_c_ratio": NoData("no log")}) == (
        Cause.UNKNOWN,
        ("connect time missing (no log)",),
    )


def test_a_missing_feature_goes_where_its_branch_says():
    gone = NoData("gone")
    assert classify(TREE, {"cpu_time_ratio": gone, "t_c_ratio": 9.0})[0] is Cause.NONE  # below
    assert classify(TREE, {"cpu_time_ratio": 2.0, "t_c_ratio": gone})[0] is Cause.NET  # above


def test_the_evidence_is_the_path_in_words():
    assert classify(TREE, {"cpu_time_ratio": 2.34567, "t_c_ratio": 1.0})[1] == (
        "CPU time 2.35x >= 1.5",
        "connect time 1x < 3",
    )
    assert classify(TREE, {"cpu_time_ratio": 2.0, "t_c_ratio": NoData("no new connection")})[1] == (
        "CPU time 2x >= 1.5",
        "connect time missing (no new connection)",
    )


_MEASURED = st.one_of(st.floats(0.0, 5.0), st.just(NoData("gone")))


@given(st.fixed_dictionaries(dict.fromkeys(FEATURES, _MEASURED)))
def test_the_class_alone_is_that_of_the_path(starter, found):
    numbers = {n: math.nan if isinstance(value, NoData) else value for n, value in found.items()}
    cause, path = classify(starter, found)
    assert leaf(starter, numbers.__getitem__) is cause
    assert Path(starter, found).in_words() == path


def test_a_feature_that_does_not_exist_is_an_error_and_no_guess():
    with pytest.raises(KeyError, match="t_c_ratio"):
        classify(TREE, {"cpu_time_ratio": 2.0})


# ---------------------------------------------------------------- the starter model


@pytest.fixture(scope="module")
def starter() -> Tree:
    return load_model(STARTER).decision_tree


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({}, Cause.NONE),
        ({"requests_ratio": 2.0}, Cause.LOAD),
        ({"cpu_wait_excess": 0.5, "cpu_time_ratio": 0.8}, Cause.CPU),
        ({"t_c_ratio": 5.0}, Cause.NET),
        ({"retransmit_fraction": 0.05}, Cause.NET),
        ({"io_pressure_odds_ratio": 1.6}, Cause.DISK),
        ({"iowait_ratio": 3.0}, Cause.DISK),
        ({"disk_busy_odds_ratio": 2.0}, Cause.DISK),
        ({"cpu_time_ratio": 1.8}, Cause.LLC),
        ({"throttled_excess": 0.3, "cpu_wait_excess": 0.4}, Cause.SELF_LIMITED),
        # More of everything, as the load explains it.
        ({"requests_ratio": 3.0, "cpu_time_ratio": 1.1}, Cause.LOAD),
        # A busy disk makes the CPU wait too; the disk is asked first.
        ({"io_pressure_odds_ratio": 4.0, "cpu_wait_excess": 0.4}, Cause.DISK),
    ],
)
def test_the_starter_model_names_the_cause_of_a_hand_made_interval(starter, changed, cause):
    assert set(QUIET) == set(FEATURES)
    assert classify(starter, QUIET | changed)[0] is cause


def test_the_starter_model_accuses_nobody_when_all_is_missing(starter):
    cause, path = classify(starter, dict.fromkeys(FEATURES, NoData("no agent")))
    assert cause is Cause.NONE
    assert all("missing (no agent)" in step for step in path)


def test_the_starter_model_knows_neither_what_is_ones_own_doing_nor_unknown(starter):
    def leaves(tree: Tree) -> set[Cause]:
        if isinstance(tree, Leaf):
            return {tree.cause}
        return leaves(tree.below) | leaves(tree.above)

    assert set(Cause) - leaves(starter) == {
        Cause.INTRA_APP,
        Cause.OWN_SERVICES,
        Cause.SOFTIRQ,
        Cause.UNKNOWN,
    }
