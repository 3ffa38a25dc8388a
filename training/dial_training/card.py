"""The model card: what a model is, how it was made, what it is worth and where it ends.

It travels inside the model file, under its checksum.  The keys ``data_sha256`` and
``ccp_alpha`` are read again by :mod:`dial_training.evaluate`: that accuracy is claimed for the
very data that the model was made from, and cross-validated as it was pruned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dial.types import Cause
from dial_training.dataset import Dataset
from dial_training.errors import TrainingError
from dial_training.fit import TRAIN, Fitted
from dial_training.tiers import TIERS
from dial_training.tree import FOLDS, leaves
from dial_training.truth import LEAST_RHO_BG

POOR = 0.8
"""A class of which the product names fewer cases than this in a tier is listed as a limit."""


def card(
    data: Dataset, data_sha256: str, fitted: Fitted, measured: Mapping[str, Any]
) -> dict[str, str]:
    """The card of a model.

    Parameters
    ----------
    data, data_sha256 : what it was made from.
    fitted : what came out.
    measured : its accuracy (:func:`dial_training.accuracy.accuracy`).
    """
    return {
        "what": f"Decision tree of {leaves(fitted.tree)} leaves and Eq. 1 for "
        f"{', '.join(fitted.shapes) or 'no resource'}, fitted on emulated machines.",
        "data": _data(data),
        "data_sha256": data_sha256,
        "tree": "scikit-learn, cost-complexity pruned; the alpha is the largest within one "
        f"standard error of the best in cross-validation ({FOLDS} folds at most) that splits no "
        f"{fitted.cross_validation.unit}; all classes weigh the same. "
        "Rows are the intervals of training cases that are above the detector's band, in each "
        "capability tier.",
        "ccp_alpha": repr(fitted.cross_validation.alpha),
        "shapes": "Non-negative least squares of the relative error over whole stages with "
        "rho_fg + rho_bg <= 0.95; T_x is over that of the idle backend, which each backend's own "
        "quiet past gives.",
        **{f"accuracy_{tier.name}": _accuracy(measured["tiers"][tier.name]) for tier in TIERS},
        "estimates": _estimates(measured),
        "without_load_test": _without_load_test(measured["without_load_test"]),
        "limits": _limits(data, measured),
        "source": "Javadi and Gandhi, DIAL, IEEE TCC 2019, 2.3.",
    }


def alpha_of(found: Mapping[str, str]) -> float:
    """The alpha that a card's tree was pruned with.

    Raises
    ------
    TrainingError
        If the card has none: the model was not trained.
    """
    try:
        return float(found["ccp_alpha"])
    except (KeyError, ValueError) as error:
        raise TrainingError(
            f"the model's card has no usable ccp_alpha ({error}): it was not trained by dial train"
        ) from error


def _data(data: Dataset) -> str:
    sessions = Counter(session.set for session in data.sessions)
    cases = Counter(case.session.set for case in data.cases())
    parts = [f"{name} {sessions[name]} sessions, {cases[name]} cases" for name in sorted(sessions)]
    return (
        f"T_x is the {data.setting.percentile:g}th percentile behind {data.setting.algorithm}. "
        f"{'; '.join(parts)}."
    )


def _accuracy(of: Mapping[str, Any]) -> str:
    guests = ", ".join(
        f"{guest} {_share(each['accuracy'])} of {each['n']}"
        for guest, each in of["per_guest"].items()
    )
    return (
        f"cross-validation error {_share(of['cv_error'])} of {of['cv_rows']} intervals; "
        f"unseen programs {_share(of['unseen_accuracy'])} of {of['unseen_n']} cases right"
        f"{f' ({guests})' if guests else ''}, {of['unseen_too_weak_n']} more left out because "
        f"their neighbour is known to have taken less than {LEAST_RHO_BG:g}; false alarms in "
        f"{_share(of['false_positive_rate'])} of {of['false_positive_runs']} cases without a "
        f"neighbour, {of['disturbed_n']} more left out because somebody outside was in the cache."
    )


def _estimates(of: Mapping[str, Any]) -> str:
    mae = of["rho_bg_mae"]
    return (
        f"On held-out intensities T_x under Eq. 1 is off by {_share(of['model_error'])}; rho_bg by "
        f"{'unknown' if mae is None else f'{mae:.3f}'} (mean of {of['rho_bg_windows']} windows of "
        "30 s; of the cache the truth is by the same counters as the estimate)."
    )


def _without_load_test(of: Mapping[str, Any]) -> str:
    mae = of["rho_bg_mae"]
    return (
        "All of this is with the backends' peaks known from a load test (peak_rps). By the "
        f"utilisation law: unseen programs {_share(of['unseen_accuracy'])} right, false alarms in "
        f"{_share(of['false_positive_rate'])}, T_x off by {_share(of['model_error'])}, rho_bg by "
        f"{'unknown' if mae is None else f'{mae:.3f}'}."
    )


def _limits(data: Dataset, measured: Mapping[str, Any]) -> str:
    limits = [
        f"In tier {name} the class {label} is named right in {_share(each['accuracy'])} of "
        f"{each['n']} unseen cases."
        for name, tier in measured["tiers"].items()
        for label, each in tier["per_class"].items()
        if each["accuracy"] < POOR
    ]
    taught = {case.truth.label for case in data.cases() if case.session.set == TRAIN}
    of_the_tree = [cause for cause in Cause if cause.costs_capacity and not cause.is_own_doing]
    untaught = [cause.value for cause in of_the_tree if cause not in taught]
    if untaught:
        limits.append(f"Not in the training set, so never named: {', '.join(untaught)}.")
    limits.append(
        "Tenant and neighbour shared one kernel, so run-queue wait and PSI show the neighbour as "
        "no guest with a kernel of its own would see it, and steal is 0; tier proc is the same "
        "recordings with metrics hidden."
    )
    if own := sum(case.session.guest != "shared" for case in data.cases()):
        limits.append(
            f"In tier proc {own} cases about the CPU are from tenants in a kernel of their own, "
            "which counts stolen time as used: there a neighbour on the CPU looks like one in the "
            "cache."
        )
    return " ".join(limits)


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
