"""What a neighbour really took, where calibration cannot say."""

from __future__ import annotations

import pytest

from dial.types import Cause
from dial_training.replay import study
from dial_training.truth import too_weak, true_rho_bg


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
