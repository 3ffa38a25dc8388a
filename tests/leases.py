"""A moment and a reading of a balancer, for the tests of lease and watchdog."""

from __future__ import annotations

from dial.lease import Moment
from dial.types import BalancerState, ServerState, WeightKind, WeightMeaning

NAMES = ("s1", "s2", "s3")
START = Moment("a boot", 1000.0)


def balancer(**weights: int) -> BalancerState:
    """Three servers, configured with 100, 100 and 50."""
    configured = {"s1": 100, "s2": 100, "s3": 50}
    servers = tuple(
        ServerState(name, weights.get(name, configured[name]), configured[name], True, 0, 0, 0)
        for name in NAMES
    )
    meaning = WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True)
    return BalancerState("1", "roundrobin", meaning, servers)
