"""From running totals of waiting to what a sample says of it.

Formula
    With T_e the time that the application's activities took and T_d the part of it in which
    they waited for one another,

        deferral_fraction = T_d / T_e,        interference_level = T_f = T_d / (T_e - T_d).

Source
    Hu, Huang, Huang: pBox, SOSP 2023, 4.3.1.  There each is of one pBox and decides whom to
    penalise; here all activities of the VM are one, because a balancer sends load to a VM.

Departures
    * Without the activities that were found to be the cause, where the source knows them.
    * Of one interval, not of all the past: the signal has to go when its cause goes.
    * T_f has no upper bound: where all is waiting it is told as :data:`MOST_LEVEL`.
    * Waiting is counted when it ends and an activity's time when that ends, or both while they
      last, as the source can; so that an interval may have more waiting than time.  That is
      all waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dial.types import Measured, Named, NoData

MOST_LEVEL = 1000.0
"""Told for any higher T_f: activities that do next to nothing but wait."""

FIELDS = ("deferral_fraction", "interference_level", "top_resource")
"""Of :class:`dial.types.AgentSample`."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What activities have done since some beginning.

    Attributes
    ----------
    active_s
        T_e, summed over activities.
    deferred_s
        T_d.
    deferred_by_resource_s
        T_d by what was waited for; may hold the largest parts only.
    """

    active_s: float = 0.0
    deferred_s: float = 0.0
    deferred_by_resource_s: Mapping[str, float] = field(default_factory=dict)


def signals(before: Totals, after: Totals) -> dict[str, Measured | Named]:
    """The fields of a sample from the totals at both ends of its interval.

    Examples
    --------
    Two seconds of activity, of which half a second was waiting, all of it for one lock:

    >>> told = signals(Totals(5.0, 1.0), Totals(7.0, 1.5, {"lock": 0.5}))
    >>> told["deferral_fraction"], round(told["interference_level"], 3), told["top_resource"]
    (0.25, 0.333, 'lock')
    """
    active_s = after.active_s - before.active_s
    deferred_s = after.deferred_s - before.deferred_s
    if active_s < 0.0 or deferred_s < 0.0:
        return nothing("the totals went backwards: the application was restarted")
    if active_s == 0.0:
        return nothing("no activity in this interval")
    fraction = min(1.0, deferred_s / active_s)
    return {
        "deferral_fraction": fraction,
        "interference_level": min(MOST_LEVEL, fraction / max(1.0 - fraction, 1.0 / MOST_LEVEL)),
        "top_resource": _top(before.deferred_by_resource_s, after.deferred_by_resource_s),
    }


def nothing(reason: str) -> dict[str, Measured | Named]:
    """All three fields absent for one reason."""
    return dict.fromkeys(FIELDS, NoData(reason))


def _top(before: Mapping[str, float], after: Mapping[str, float]) -> Named:
    grown_s = {name: total_s - before.get(name, 0.0) for name, total_s in after.items()}
    # Of two that grew alike the first by name, so that the same totals tell the same.
    top = max(sorted(grown_s), key=lambda name: grown_s[name], default=None)
    if top is None or grown_s[top] <= 0.0:
        return NoData("nothing was waited for")
    return top
