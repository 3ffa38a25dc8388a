"""Which form of Eq. 1 carries further: in milliseconds, or as a shape with a learnt scale.

Each form is fitted on the training set and measured on held-out intensities, with the true
resource given, so that neither detector nor classifier has a part in it:

    absolute    c0, c1, c2 in milliseconds
    shape       c0 + c1 + c2 = 1, times T_x of the idle backend from its own quiet past: what
                a model holds, for it carries over to other applications
    mm1         M/M/1's shape with the same scale: what the product does without training
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dial.queueing import MM1, TailCurve
from dial.types import Cause
from dial_training.accuracy import HELDOUT
from dial_training.curves import (
    curve_points,
    fit_curves,
    fit_shapes,
    own_curves,
    quiet_points,
    relative_errors,
    rho_bg_errors,
)
from dial_training.fit import TRAIN
from dial_training.replay import Studied
from dial_training.windows import Point

_Paired = list[tuple[Point, TailCurve]]


def compare(studied: Sequence[Studied]) -> dict[str, dict[str, dict[str, float | None]]]:
    """By form and resource (or ``all``): ``model_error`` and ``rho_bg_error``.

    ``rho_bg_error`` is that of each window alone, by the closed inverse of Eq. 1.

    Parameters
    ----------
    studied : sessions as recorded, of the sets ``train`` and ``heldout`` at least.
    """
    quiet = {name: _points(studied, name, quiet_points) for name in (TRAIN, HELDOUT)}
    training = _points(studied, TRAIN, curve_points)
    tested = _points(studied, HELDOUT, curve_points)
    curves = fit_curves(training)
    shapes = fit_shapes(training, quiet[TRAIN])
    paired = {
        "absolute": [(p, curves[p.resource]) for p in tested if p.resource in curves],
        "shape": _with_scale(tested, quiet[HELDOUT], shapes),
        "mm1": _with_scale(tested, quiet[HELDOUT], dict.fromkeys(shapes, MM1)),
    }
    return {
        form: {
            "all": _errors(of),
            **{r.value: _errors([pc for pc in of if pc[0].resource is r]) for r in shapes},
        }
        for form, of in paired.items()
    }


def _points(
    studied: Sequence[Studied], name: str, of_session: Callable[[Studied], list[Point]]
) -> list[Point]:
    return [p for each in studied if each.session.set == name for p in of_session(each)]


def _with_scale(
    tested: Sequence[Point], quiet: Sequence[Point], shapes: Mapping[Cause, TailCurve]
) -> _Paired:
    """Each point with its backend's own curve."""
    own = {resource: own_curves(quiet, shape) for resource, shape in shapes.items()}
    return [
        (p, curve)
        for p in tested
        if (curve := own.get(p.resource, {}).get((p.session, p.machine))) is not None
    ]


def _errors(of: _Paired) -> dict[str, float | None]:
    return {
        "model_error": _mean(relative_errors(of)),
        "rho_bg_error": _mean(rho_bg_errors(of)),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
