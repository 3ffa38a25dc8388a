"""What a neighbour really took, where calibration cannot say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial.types import Cause
from dial_training.replay import study
from dial_training.truth import disturbed, too_weak, true_rho_bg


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


def test_a_quiet_case_beside_a_stranger_in_the_cache_is_disturbed_and_heavier_requests_are_not(
    lab, stage_of
):
    """The stranger is a neighbour that the truth does not know of."""
    seen = lab.session("a", stage_of({"s1": (Cause.LLC, 0.5)}), resource=Cause.LLC)
    quiet = [
        replace(
            tick,
            truths={m: replace(t, label=Cause.NONE) for m, t in tick.truths.items()},
        )
        for tick in seen.ticks
    ]
    studied = study(replace(seen, ticks=tuple(quiet)), 90.0)
    assert {j.case.machine for j in studied.cases if disturbed(studied, j)} == {"s1"}
    heavier = study(lab.session("b", stage_of(cost_factor=1.5), resource=Cause.LLC), 90.0)
    assert not any(disturbed(heavier, judged) for judged in heavier.cases)
