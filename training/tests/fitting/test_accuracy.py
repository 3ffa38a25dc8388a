"""What is counted as right, as a false alarm, and as an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial.model import STARTER, load_model
from dial.types import Cause
from dial_training.accuracy import Answer, answers, class_of, confusion, estimates
from dial_training.replay import policy, study

PRODUCT = policy(load_model(STARTER), 90.0)


@pytest.fixture
def ticks_of(lab, stage_of):
    """Ticks whose verdicts have these causes."""
    judged = study(lab.session("a", stage_of()), 90.0).cases[0].ticks[0]

    def make(*causes):
        return [replace(judged, verdict=replace(judged.verdict, cause=Cause(c))) for c in causes]

    return make


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        (["none", "none", "none", "cpu"], "cpu"),  # not detected before is not "none"
        (["none", "cpu", "cpu", "net"], "cpu"),
        (["cpu", "none", "none"], "none"),  # a neighbour let go again was not named
        (["none", "none"], "none"),
        (["none", "net", "cpu", "cpu"], "cpu"),
    ],
)
def test_the_class_of_a_case_is_the_majority_from_the_first_verdict_on(ticks_of, causes, expected):
    assert class_of(ticks_of(*causes)) == expected


def answer(label, found):
    return Answer("c", "unseen", "shared", None, Cause(label), Cause(found), accused=False)


@pytest.mark.parametrize(
    ("label", "found", "right"),
    [
        ("cpu", "cpu", True),
        ("cpu", "none", False),
        ("cpu", "net", False),
        ("load", "load", True),
        ("load", "none", True),  # T_x stayed in its band: nothing was to be explained
        ("none", "load", False),
        ("self-limited", "cpu", False),
    ],
)
def test_what_is_right(label, found, right):
    assert answer(label, found).right is right


def test_confusion_counts_answers_by_label():
    found = [
        answer("cpu", "cpu"),
        answer("cpu", "none"),
        answer("cpu", "cpu"),
        answer("net", "net"),
    ]
    assert confusion(found) == {"cpu": {"none": 1, "cpu": 2}, "net": {"net": 1}}


def test_a_neighbour_is_named_and_a_quiet_machine_is_not_accused(lab, stage_of):
    session = lab.session("a", stage_of({"s1": (Cause.CPU, 0.5)}), in_set="unseen")
    found = {each.case: each for each in answers(PRODUCT, study(session, 90.0))}
    assert (found["a/0/s1"].answer, found["a/0/s1"].accused) == (Cause.CPU, True)
    assert (found["a/0/s2"].answer, found["a/0/s2"].accused) == (Cause.NONE, False)


def test_rho_bg_is_estimated_for_contended_windows_of_enough_own_load(lab, stage_of):
    """Two windows of 30 s of an M/M/1 machine that lost 0.4, by M/M/1's own curve."""
    taken = stage_of({"s1": (Cause.CPU, 0.4)}, ticks=31)
    found = estimates(PRODUCT, study(lab.session("a", taken, load=0.4), 90.0))
    assert len(found) == 2
    assert max(each.error for each in found) < 0.1
    idle = estimates(PRODUCT, study(lab.session("b", taken, load=0.2), 90.0))
    assert idle == []  # rho_fg below 0.3


def test_a_neighbour_that_was_not_found_counts_as_an_estimate_of_nothing(lab, stage_of):
    session = lab.session("a", stage_of({"s1": (Cause.CPU, 0.05)}), load=0.4)
    (found,) = estimates(PRODUCT, study(session, 90.0))
    assert found.rho_bg == 0.0
    assert found.error == pytest.approx(0.05)


def test_a_neighbour_that_took_next_to_nothing_is_no_case_to_answer(lab, stage_of):
    taken = stage_of({"s1": (Cause.CPU, 0.5), "s2": (Cause.CPU, 0.1)})
    found = answers(PRODUCT, study(lab.session("a", taken, in_set="unseen"), 90.0))
    assert {each.case for each in found} == {"a/0/s1", "a/0/s3"}
