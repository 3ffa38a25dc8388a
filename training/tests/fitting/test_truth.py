"""What a neighbour really took, where calibration cannot say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial.types import Cause
from dial_training.replay import study
from dial_training.truth import disturbed, disturbed_from, too_weak, true_rho_bg


def test_of_a_cpu_neighbour_it_is_as_calibrated(lab, stage_of):
    studied = study(lab.session("a", stage_of({"s1": (Cause.CPU, 0.4)})), 90.0)
    (judged,) = [case for case in studied.cases if case.case.machine == "s1"]
    assert true_rho_bg(studied, judged) == judged.case.truth.rho_bg_true == 0.4


def test_of_a_cache_neighbour_it_is_what_a_request_needs_more_of(lab, stage_of):
    """Simulated usr, four fifths of the CPU time, is 1 + 2 x 0.5 times as much: 1 - 1/1.8."""
    session = lab.session("a", stage_of({"s1": (Cause.LLC, 0.5)}), resource=Cause.LLC)
    studied = study(session, 90.0)
    (judged,) = [case for case in studied.cases if case.case.machine == "s1"]
    assert true_rho_bg(studied, judged) == pytest.approx(1.0 - 1.0 / 1.8, abs=0.04)


@pytest.mark.parametrize(("rho_bg", "weak"), [(0.19, True), (0.21, False)])
def test_a_neighbour_that_takes_less_than_load_is_moved_for_is_too_weak(
    lab, stage_of, rho_bg, weak
):
    studied = study(lab.session("a", stage_of({"s1": (Cause.NET, rho_bg)})), 90.0)
    found = {judged.case.machine: too_weak(studied, judged) for judged in studied.cases}
    assert found == {"s1": weak, "s2": False, "s3": False}


def unaware(session):
    """The session in which a neighbour is a stranger: the truth does not know of it."""
    ticks = [
        replace(
            tick,
            truths={m: replace(t, label=Cause.NONE) for m, t in tick.truths.items()},
        )
        for tick in session.ticks
    ]
    return replace(session, ticks=tuple(ticks))


def test_a_quiet_case_beside_a_stranger_in_the_cache_is_disturbed_and_heavier_requests_are_not(
    lab, stage_of
):
    seen = lab.session("a", stage_of({"s1": (Cause.LLC, 0.5)}), resource=Cause.LLC)
    studied = study(unaware(seen), 90.0)
    assert {j.case.machine for j in studied.cases if disturbed(studied, j)} == {"s1"}
    heavier = study(lab.session("b", stage_of(cost_factor=1.5), resource=Cause.LLC), 90.0)
    assert not any(disturbed(heavier, judged) for judged in heavier.cases)


def test_nothing_is_known_to_be_quiet_from_where_a_stranger_was_there_for_eight_seconds(
    lab, stage_of
):
    """20 ticks of learning, an edge, a quiet stage of as many ticks as the next, an edge."""
    calm, visited = stage_of(), stage_of({"s1": (Cause.LLC, 0.8)})
    seen = lab.session("a", calm, visited, resource=Cause.LLC)
    begins = 20 + 1 + calm.ticks + 1
    # The first window of four ticks in which it is seen ends with one that it was there.
    assert begins - 3 <= disturbed_from(unaware(seen)) <= begins
    assert disturbed_from(seen) is None, "the lab's own neighbour is none"
    assert disturbed_from(lab.session("b", calm, calm, resource=Cause.LLC)) is None
    assert disturbed_from(unaware(replace(seen, resource="cpu"))) is None


def test_heavier_requests_are_no_stranger_in_the_cache(lab, stage_of):
    heavier = lab.session("b", stage_of(cost_factor=1.5), resource=Cause.LLC)
    assert disturbed_from(heavier) is None
