"""What the tenant does to itself, by signals that measure it: no neighbour is booked for it.

Problem
    A VM can be slow because its application waits for itself, because other services of the
    tenant's in it take the CPU, or because packets do.  The tree looks at hardware, of which all
    three look like a neighbour on the CPU or in the cache.  What is lost to each is measured
    inside the VM, where what a neighbour takes has to be inferred.

Formula
    With m the part of the capacity that goes that way and m0 what of it is usual, the part lost is

        excess = (m - m0) / (1 - m0),

    and what is lost multiplies (:mod:`dial.classifier.deferral`, where m is of activities' time):

        rho_bg = max(0, 1 - (1 - lost)/(1 - excess)).

    own-services
        m = ``own_services_cores`` / capacity, m0 its quiet mean.
    softirq
        m = ``net_softirq_cores`` / capacity, m0 predicted from the requests served.

    Of the CPU there is a second bound: a neighbour takes at most what the VM does not use,

        rho_bg <= 1 - used/capacity,

    used holding the packets' share.  A batch job that takes all that is left over makes the tail
    longer than Eq. 1 says of its share, and leaves no room for a neighbour.

Rule
    The class is that of the largest excess that is worth mentioning, if the tree names no
    hardware, or what is left for a neighbour is not worth calling one.  Worth mentioning is a
    third of activities' time for waiting, and of the CPU what is worth moving load for.

Regimes
    no signal
        No ``--partition``, no ``--net-charge``, no quiet past: never these classes.
    both a neighbour and one of these
        The larger names the class.
    targets that nothing inside the VM meets
        ``targets_missed_s`` asks for load to move whatever T_x is: as if the VM had lost
        :data:`ASKED_A_MINUTE` for each minute of it, at most :data:`MOST_ASKED`.

Source
    Own.  What is told apart: Chen et al., PARTIES, ASPLOS 2019; Khalid et al., Iron, NSDI 2018;
    Hu et al., pBox, SOSP 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dial.classifier import deferral
from dial.columns import Floats
from dial.types import AgentSample, Cause, Measured, NoData

OWN_SERVICES, SOFTIRQ, ASKED = "own_services_excess", "softirq_excess", "asked_part"
"""Names among the features of an interval; the tree knows none of them."""

FEATURES: Mapping[Cause, str] = {
    Cause.INTRA_APP: deferral.FEATURE,
    Cause.OWN_SERVICES: OWN_SERVICES,
    Cause.SOFTIRQ: SOFTIRQ,
}
"""What each cause of one's own shows by."""

NAMES = (*FEATURES.values(), ASKED)

WHY: Mapping[Cause, str] = {
    Cause.INTRA_APP: "it waits for itself",
    Cause.OWN_SERVICES: "other services in this VM take its CPU",
    Cause.SOFTIRQ: "packets take its CPU",
}

ENDED: Mapping[Cause, str] = {
    Cause.INTRA_APP: "the waiting has ended",
    Cause.OWN_SERVICES: "the VM's services no longer disturb each other",
    Cause.SOFTIRQ: "packets no longer take its CPU",
}

ASKED_A_MINUTE = 0.2
"""What is worth moving load for (the default of ``guards.engage_rho_bg``), once more for each
minute that did not help."""

MOST_ASKED = 0.5
"""What is missed with half of the load is not the load's doing."""

_MINUTE_S = 60.0


def part(cores: Measured, sample: AgentSample) -> Measured:
    """CPU time as a part of what the VM may use, at most 1."""
    capacity = sample.cpu_capacity_cores
    if isinstance(cores, NoData):
        return cores
    if isinstance(capacity, NoData):
        return capacity
    return min(1.0, cores / capacity) if capacity > 0.0 else NoData("the VM may use no CPU")


def asked_part(targets_missed_s: Floats) -> Floats:
    """The part of the capacity that VMs ask to be relieved of, (n,); 0 where nothing is missed.

    Examples
    --------
    >>> asked_part(np.array([60.0, 600.0, np.nan]))
    array([0.2, 0.5, 0. ])
    """
    asked = np.minimum(MOST_ASKED, ASKED_A_MINUTE * targets_missed_s / _MINUTE_S)
    return np.where(np.isnan(asked), 0.0, asked)


def any_excess(number: Callable[[str], float], least_rho_bg: float) -> bool:
    """Whether anything is worth mentioning.

    Parameters
    ----------
    number
        A feature of an interval by its name, NaN where it is missing.
    least_rho_bg
        What is worth calling a neighbour.
    """
    return any(
        number(name) >= least_excess(cause, least_rho_bg) for cause, name in FEATURES.items()
    )


def excesses(found: Mapping[str, Measured], least_rho_bg: float) -> dict[Cause, float]:
    """What is worth mentioning of an interval's features, by cause.

    Parameters
    ----------
    found
        The features.
    least_rho_bg
        What is worth calling a neighbour.
    """
    return {
        cause: excess
        for cause, name in FEATURES.items()
        if not isinstance(excess := found[name], NoData)
        and excess >= least_excess(cause, least_rho_bg)
    }


def least_excess(cause: Cause, least_rho_bg: float) -> float:
    """From where on an excess is worth mentioning."""
    return deferral.LEAST_EXCESS if cause is Cause.INTRA_APP else least_rho_bg


def left_over(cause: Cause, lost: float, excess: float, used: Measured) -> float:
    """rho_bg: what neither the excess nor the CPU's being in use leaves for a neighbour.

    Parameters
    ----------
    cause
        Of one's own.
    lost
        Share of the capacity that is lost, whoever takes it.
    excess
        The cause's own.
    used
        Part of the VM's CPU that the VM uses.

    Examples
    --------
    >>> round(left_over(Cause.OWN_SERVICES, 0.8, 0.5, NoData("unknown")), 2)
    0.6
    >>> round(left_over(Cause.OWN_SERVICES, 0.8, 0.5, 0.95), 2)
    0.05
    """
    left = deferral.left_over(lost, excess)
    if cause is Cause.INTRA_APP or isinstance(used, NoData):
        return left
    return min(left, max(0.0, 1.0 - used))


def own_cause(
    found: Mapping[str, Measured],
    lost: Measured,
    used: Measured,
    *,
    hardware: bool,
    least_rho_bg: float,
) -> Cause | None:
    """The class of an interval by the tenant's own signals, if it is one of these.

    Parameters
    ----------
    found
        The interval's features.
    lost
        Share of the backend's capacity that is lost, whoever takes it.
    used
        Part of the VM's CPU that the VM uses.
    hardware
        Whether the tree names a resource.
    least_rho_bg
        What is worth calling a neighbour.
    """
    worth_it = excesses(found, least_rho_bg)
    if not worth_it:
        return None
    cause = max(worth_it, key=lambda each: worth_it[each])
    if not hardware:
        return cause
    if isinstance(lost, NoData):
        return None
    return cause if left_over(cause, lost, worth_it[cause], used) < least_rho_bg else None
