"""Eq. 1 through windows: what the fit finds where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from dial.queueing import TailCurve
from dial.types import Cause
from dial_training.curves import (
    case_points,
    curve_points,
    fit_curves,
    fit_shapes,
    own_curves,
    quiet_points,
    relative_errors,
    rho_bg_errors,
    scales_ms,
)
from dial_training.replay import study
from dial_training.windows import Point

TRUTH = TailCurve(2.0, 6.0, 0.5)


def on_curve(curve, rho_fg, rho_bg=0.0, machine="s1", resource=Cause.CPU, factor=1.0):
    return Point(
        "a", machine, resource, rho_bg > 0.0, rho_fg, rho_bg, factor * curve.t_x_ms(rho_fg + rho_bg)
    )


def grid(curve, **more):
    return [
        on_curve(curve, rho_fg, rho_bg, **more)
        for rho_fg in (0.2, 0.3, 0.4)
        for rho_bg in (0.0, 0.2, 0.4)
    ]


def test_points_on_a_curve_give_that_curve():
    found = fit_curves(grid(TRUTH))[Cause.CPU]
    assert (found.c0_ms, found.c1_ms, found.c2_ms) == pytest.approx((2.0, 6.0, 0.5), rel=1e-6)


def test_a_resource_without_any_neighbour_has_no_curve():
    quiet = [on_curve(TRUTH, rho_fg, resource=Cause.NET) for rho_fg in (0.1, 0.2, 0.3, 0.4)]
    assert list(fit_curves([*grid(TRUTH), *quiet])) == [Cause.CPU]


def test_a_shape_is_found_whatever_the_speed_of_each_machine():
    """Three machines three times apart; the shape of 2 + 6 u + 0.5 u^2 sums to 1 by 8.5."""
    points = [
        p
        for machine, factor in (("s1", 1.0), ("s2", 3.0), ("s3", 0.3))
        for p in grid(TRUTH, machine=machine, factor=factor)
    ]
    quiet = [p for p in points if not p.contended]
    shape = fit_shapes(points, quiet)[Cause.CPU]
    assert (shape.c0_ms, shape.c1_ms, shape.c2_ms) == pytest.approx(
        (2 / 8.5, 6 / 8.5, 0.5 / 8.5), abs=1e-3
    )
    assert scales_ms(quiet, shape)["a", "s2"] == pytest.approx(3 * 8.5, rel=1e-3)


def test_a_shape_carries_to_another_application_where_milliseconds_do_not():
    training, other = grid(TRUTH), grid(TRUTH, machine="other", factor=4.0)
    absolute = fit_curves(training)[Cause.CPU]
    shape = fit_shapes(training, [p for p in training if not p.contended])[Cause.CPU]
    own = own_curves([p for p in other if not p.contended], shape)["a", "other"]
    assert max(rho_bg_errors((p, own) for p in other)) < 0.01
    assert min(rho_bg_errors((p, absolute) for p in other)) > 0.1


def test_errors_are_relative_and_only_counted_where_eq_1_holds():
    points = [on_curve(TRUTH, 0.3, 0.2, factor=1.25), on_curve(TRUTH, 0.5, 0.46)]
    assert relative_errors((p, TRUTH) for p in points) == pytest.approx([0.2])
    assert len(rho_bg_errors((p, TRUTH) for p in points)) == 1


def test_points_of_a_session_lie_where_the_simulation_put_them(lab, stage_of):
    """150 requests/s at 0.4 of the peak: T90 is 2.303 / 150 / 0.6 = 25.6 ms; with 0.3 taken 51."""
    session = lab.session("a", stage_of({"s1": (Cause.CPU, 0.3)}), learn_ticks=30)
    studied = study(session, 90.0)
    quiet = quiet_points(studied)
    assert len(quiet) == 3
    assert np.mean([p.t_x_ms for p in quiet]) == pytest.approx(25.6, rel=0.04)
    assert np.mean([p.rho_fg for p in quiet]) == pytest.approx(0.4, abs=0.02)
    cases = {p.machine: p for p in case_points(studied)}
    assert set(cases) == {"s1", "s2", "s3"}
    assert cases["s1"].t_x_ms == pytest.approx(51.2, rel=0.1)
    assert (cases["s1"].rho_bg, cases["s2"].rho_bg) == (0.3, 0.0)


def test_a_machine_without_any_neighbour_in_its_session_is_on_no_curve(lab, stage_of):
    session = lab.session("a", stage_of({"s1": (Cause.NET, 0.3)}), stage_of(), resource=Cause.NET)
    assert {p.machine for p in curve_points(study(session, 90.0))} == {"s1"}


def test_sessions_about_the_cache_are_on_no_curve(lab, stage_of):
    """There rho_bg is measured by the CPU time of a request."""
    session = lab.session("a", stage_of({"s1": (Cause.LLC, 0.3)}), stage_of(), resource=Cause.LLC)
    assert curve_points(study(session, 90.0)) == []
