"""The shipped model is what the committed data set gives, and claims no more than it shows."""

from __future__ import annotations

import pytest

from dial.classifier import Branch
from dial.model import LAB, load_model
from dial_training import label
from dial_training.dataset import Dataset, sha256
from dial_training.evaluate import DATA
from dial_training.train import train


@pytest.fixture(scope="module")
def again():
    """The model made once more from the committed data."""
    return train(DATA, LAB.stem)


@pytest.fixture(scope="module")
def shipped():
    return load_model(LAB)


def test_the_card_names_the_committed_data(shipped):
    assert shipped.card["data_sha256"] == sha256(DATA)


def test_eq_1_is_fitted_again_to_the_shipped_coefficients(shipped, again):
    assert again.tail_shapes.keys() == shipped.tail_shapes.keys()
    for cause, curve in again.tail_shapes.items():
        there = shipped.tail_shapes[cause]
        assert (curve.c0_ms, curve.c1_ms, curve.c2_ms) == pytest.approx(
            (there.c0_ms, there.c1_ms, there.c2_ms), rel=1e-6, abs=1e-9
        )


def test_the_tree_is_grown_again_to_the_shipped_one(shipped, again):
    assert_same(shipped.decision_tree, again.decision_tree)


def test_the_accuracy_in_the_card_is_measured_again(shipped, again):
    assert again.card == shipped.card


def test_no_program_is_both_trained_on_and_unseen():
    programs = {}
    for case in Dataset.load(DATA).cases():
        if case.truth.label.is_contention:
            programs.setdefault(case.session.set, set()).add(case.truth.program)
    assert programs["unseen"]
    assert programs["train"].isdisjoint(programs["unseen"])


def test_no_session_was_calibrated_while_something_outside_was_at_work():
    off = {
        case.case: case.truth.rho_bg_true
        for case in Dataset.load(DATA).cases()
        if not case.truth.label.costs_capacity
        and abs(case.truth.rho_bg_true or 0.0) > label.MOST_OFF
    }
    assert off == {}


def assert_same(one, other):
    if not isinstance(one, Branch):
        assert one == other
        return
    assert (one.feature, one.missing) == (other.feature, other.missing)
    assert one.threshold == pytest.approx(other.threshold, rel=1e-9)
    assert_same(one.below, other.below)
    assert_same(one.above, other.above)
