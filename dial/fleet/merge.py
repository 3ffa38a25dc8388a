"""Several balancers of one service as one.

Rates add up, and so do requests in flight; percentiles are merged elsewhere, by the requests
themselves (:mod:`dial.fleet.sketch`).  For the rest the rule is to be careful:

- *weights in force* are those wanted, unless a balancer has another one: then that one is shown, so
  that a balancer that was restarted is written to, and an admin who has set a weight at one of them
  is yielded to;
- a *server* is usable if no admin has taken it out anywhere; one that not all balancers have is
  taken as the others have it;
- the *epoch* changes with that of any balancer, and when one comes or goes: counters then begin
  anew.

Each balancer counts the requests in flight that it has sent itself, so with n of them a policy that
goes by these is told so (``WeightMeaning.balancers``).  They cannot answer each other: nobody
decides at a balancer, and all get the one plan that was made of what all have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dial.types import BalancerState, ServerState


def merged(states: Sequence[tuple[str, BalancerState]], wanted: Mapping[str, int]) -> BalancerState:
    """One state of all balancers.

    Parameters
    ----------
    states : each reader's name and newest state, at least one; the first decides what must be
        alike at all of them (policy, configured weights, order of servers).
    wanted : weights of the plan in force, by server.

    Examples
    --------
    >>> from dial.types import WeightKind, WeightMeaning
    >>> meaning = WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True)
    >>> one = BalancerState("1", "rr", meaning, (ServerState("s1", 24, 100, True, 2, 500, 0),))
    >>> two = BalancerState("7", "rr", meaning, (ServerState("s1", 24, 100, True, 3, 700, 1),))
    >>> both = merged([("a", one), ("b", two)], {"s1": 24})
    >>> both.servers[0].in_flight, both.servers[0].requests_total, both.meaning.balancers
    (5, 1200, 2)
    """
    first = states[0][1]
    if len(states) == 1:
        return replace(first, epoch=_epoch(states))
    servers: dict[str, list[ServerState]] = {}
    for _, state in states:
        for server in state.servers:
            servers.setdefault(server.name, []).append(server)
    return BalancerState(
        epoch=_epoch(states),
        algorithm=first.algorithm,
        meaning=replace(first.meaning, balancers=sum(s.meaning.balancers for _, s in states)),
        servers=tuple(_server(seen, wanted.get(name)) for name, seen in servers.items()),
    )


def _epoch(states: Sequence[tuple[str, BalancerState]]) -> str:
    return " ".join(f"{name}={state.epoch}" for name, state in states)


def _server(seen: Sequence[ServerState], wanted: int | None) -> ServerState:
    first = seen[0]
    expected = first.configured_weight if wanted is None else wanted
    differing = (server.weight for server in seen if server.weight != expected)
    return ServerState(
        name=first.name,
        weight=next(differing, expected),
        configured_weight=first.configured_weight,
        usable=all(server.usable for server in seen),
        in_flight=sum(server.in_flight for server in seen),
        requests_total=sum(server.requests_total for server in seen),
        errors_total=sum(server.errors_total for server in seen),
    )
