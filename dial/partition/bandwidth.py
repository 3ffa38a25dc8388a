"""Egress bandwidth by use: PARTIES' adjust_network_bandwidth_partition (4.2.1).

Bandwidth is a threshold and not traded: a target is met or not by whether there is enough, and
more than enough helps no further.  So each service has what it uses and a little more: with
less than one unit to spare it gets one, with more than two it gives one up.  The paper's unit is
0.5 Gbit/s of a 10 Gbit/s link, a twentieth; so is ours.
"""

from __future__ import annotations

from collections.abc import Mapping

UNITS = 20
"""Parts into which the link is divided."""


def adjust(shares: Mapping[str, int], used: Mapping[str, float]) -> dict[str, int]:
    """Return each service's units for the next interval.

    Parameters
    ----------
    shares
        Units by service, at least 1 each; together :data:`UNITS` at most.
    used
        Units used in the last interval; a service that is not in it keeps what it has.

    Examples
    --------
    >>> adjust({"web": 4, "batch": 10}, {"web": 3.5, "batch": 2.0})
    {'web': 5, 'batch': 9}
    """
    adjusted = dict(shares)
    for name, units in shares.items():
        if name in used and units - used[name] > 2.0 and units > 1:
            adjusted[name] -= 1
    free = UNITS - sum(adjusted.values())
    # Who is nearest to its limit comes first.
    for name in sorted(used.keys() & shares.keys(), key=lambda name: shares[name] - used[name]):
        if shares[name] - used[name] < 1.0 and free > 0:
            adjusted[name] += 1
            free -= 1
    return adjusted
