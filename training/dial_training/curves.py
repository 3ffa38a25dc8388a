"""Eq. 1 of each resource: fitted through quiet and contended stages.

Problem
    Find c0, c1, c2 >= 0 with T_x = c0 + c1 u + c2 u^2, u = 1/(1 - rho_fg - rho_bg).

Two forms
    absolute
        In milliseconds.  Right for the application and the machines it was fitted on; for
        another application every coefficient is wrong by the ratio of the service times.
    shape
        T_x = scale * f(u), f(1) = 1: the *shape* f, of the resource, is trained, the scale,
        T_x of the idle backend, is from the backend's own quiet past, as
        :class:`dial.estimator.QuietCurve` learns it.  It is fitted by turns: scales for the last
        shape, then the shape for these scales.  This is what a model holds.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.3 and Fig. 5.  Departures: coefficients are not
    negative, the error minimised is the relative one (:func:`dial.queueing.fit_tail_curve`),
    points above rho = 0.95 are left out, and the shape is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dial.estimator import QuietCurve
from dial.queueing import MM1, RHO_MAX, TailCurve, fit_tail_curve
from dial.types import Cause
from dial_training.replay import Studied
from dial_training.windows import Point, point

Place = tuple[str, str]
"""Session and machine: what has a scale of its own."""

_FOREVER = 10**12

_TURNS = 20
"""The shape's coefficients stand still to four digits after five."""


def quiet_points(studied: Studied) -> list[Point]:
    """The learning phase of each machine of a session."""
    session = studied.session
    found = [
        point(session.session, machine, Cause(session.resource), ticks)
        for machine, ticks in studied.quiet.items()
    ]
    return [p for p in found if p is not None]


def case_points(studied: Studied) -> list[Point]:
    """A session's cases.

    Left out: cases whose requests cost more or less than in learning (they lie on another
    curve), those that no neighbour but the VM's own limit slows, and neighbours whose true
    rho_bg was not measured.  Sessions about the cache altogether: there rho_bg is measured by
    the CPU time a request, and no Eq. 1 is asked.
    """
    session = studied.session
    found: list[Point | None] = []
    if not _on_a_curve(studied):
        return []
    for judged in studied.cases:
        truth, place = judged.case.truth, (session.session, judged.case.machine)
        if truth.cost_factor != 1.0:
            continue
        if truth.label.is_contention:
            if truth.rho_bg_true is not None:
                found.append(point(*place, truth.label, judged.ticks, truth.rho_bg_true))
        elif truth.label.blames_nobody:
            found.append(point(*place, Cause(session.resource), judged.ticks))
    return [p for p in found if p is not None]


def _on_a_curve(studied: Studied) -> bool:
    return Cause(studied.session.resource) is not Cause.LLC


def curve_points(studied: Studied) -> list[Point]:
    """All points of a session that lie on the curve of its resource.

    Only of machines that had a neighbour in the session.  The others may be of another kind:
    beside a victim whose working set fills the cache run siblings with a small one, which
    are five times as fast.  None of sessions about the cache, as above.
    """
    if not _on_a_curve(studied):
        return []
    visited = {j.case.machine for j in studied.cases if j.case.truth.label.is_contention}
    found = (*quiet_points(studied), *case_points(studied))
    return [p for p in found if p.machine in visited]


def fit_curves(found: Iterable[Point]) -> dict[Cause, TailCurve]:
    """Eq. 1 in milliseconds, of each resource with a neighbour among the points."""
    return {
        resource: fit_tail_curve([p.rho for p in of], [p.t_x_ms for p in of])
        for resource, of in _by_resource(found).items()
    }


def fit_shapes(found: Iterable[Point], quiet: Iterable[Point]) -> dict[Cause, TailCurve]:
    """Eq. 1 over the T_x of the idle backend: coefficients that add up to 1.

    Parameters
    ----------
    found : points to fit.
    quiet : the learning phases, which set the scales.
    """
    learning = list(quiet)
    shapes = {}
    for resource, of in _by_resource(found).items():
        shape = MM1
        for _ in range(_TURNS):
            scale_ms = scales_ms(learning, shape)
            known = [p for p in of if (p.session, p.machine) in scale_ms]
            ratios = [p.t_x_ms / scale_ms[p.session, p.machine] for p in known]
            fitted = fit_tail_curve([p.rho for p in known], ratios)
            shape = fitted.scaled(1.0 / fitted.t_x_ms(0.0))
        shapes[resource] = shape
    return shapes


def scales_ms(quiet: Iterable[Point], shape: TailCurve) -> dict[Place, float]:
    """T_x of each idle backend, from its quiet past."""
    learnt: dict[Place, QuietCurve] = defaultdict(lambda: QuietCurve.blank(1))
    for p in quiet:
        place = (p.session, p.machine)
        learnt[place] = learnt[place].learn(
            np.array([p.t_x_ms]), np.array([p.rho_fg]), memory_intervals=_FOREVER
        )
    scales = {place: float(each.scale_ms(shape)[0]) for place, each in learnt.items()}
    return {place: scale_ms for place, scale_ms in scales.items() if scale_ms > 0.0}


def own_curves(quiet: Sequence[Point], shape: TailCurve) -> dict[Place, TailCurve]:
    """Each backend's curve in milliseconds: its scale times the shape."""
    return {place: shape.scaled(scale) for place, scale in scales_ms(quiet, shape).items()}


def relative_errors(of: Iterable[tuple[Point, TailCurve]]) -> list[float]:
    """|T_x predicted - measured| / measured, where Eq. 1 is valid."""
    return [abs(c.t_x_ms(p.rho) - p.t_x_ms) / p.t_x_ms for p, c in of if p.rho <= RHO_MAX]


def rho_bg_errors(of: Iterable[tuple[Point, TailCurve]]) -> list[float]:
    """|rho_bg by the inverse of Eq. 1 - true| of contended windows, the resource given."""
    return [
        abs(min(max(float(c.utilisation(p.t_x_ms)) - p.rho_fg, 0.0), 1.0) - p.rho_bg)
        for p, c in of
        if p.contended and p.rho <= RHO_MAX
    ]


def _by_resource(found: Iterable[Point]) -> Mapping[Cause, list[Point]]:
    """Points by resource; one without any neighbour has no Eq. 1 to tell."""
    by: dict[Cause, list[Point]] = defaultdict(list)
    for p in found:
        by[p.resource].append(p)
    return {
        resource: by[resource] for resource in sorted(by) if any(p.contended for p in by[resource])
    }
