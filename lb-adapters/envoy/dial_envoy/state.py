"""From what one or several Envoys say to one reading of the service.

Several Envoys have one set of weights, the newest snapshot's, but for moments: one that has just
come up, one that is cut off from us, one whose file somebody else wrote.  So the weight in force is
the snapshot's where every Envoy has it, and else that of the first that differs: the controller
then sees that something is not as it left it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dial.errors import BalancerRefused
from dial.types import BalancerState, ServerState
from dial_envoy.admin import Host, View
from dial_envoy.endpoints import MAX_WEIGHT, Pool, Server
from dial_envoy.policy import LbPolicy, panic_threshold


def left_in_force(pool: Pool, views: Sequence[View]) -> dict[str, int]:
    """Weights that were left to a controller that begins, by server of the pool.

    Of several Envoys one that has just come up was given the configured weights until more is
    known; so the weight of one that has another counts.  A server that the administrator took out
    has no weight to be gone on with: what Envoy shows is his doing.
    """
    found: dict[str, int] = {}
    for server in pool.servers:
        weights = [host.weight for host in _hosts(server, views)]
        if weights and server.usable:
            configured = server.configured_weight
            weight = next((one for one in weights if one != configured), configured)
            if weight <= MAX_WEIGHT and (weight or pool.can_drain):
                found[server.name] = weight
    return found


def weight_in_force(server: Server, views: Sequence[View], sent: int) -> int:
    """What was sent, unless some Envoy has something else.

    Of a server that the administrator took out Envoy shows his doing, not the weight.
    """
    if not server.usable:
        return sent
    return next((host.weight for host in _hosts(server, views) if host.weight != sent), sent)


def _hosts(server: Server, views: Sequence[View]) -> list[Host]:
    return [host for view in views if (host := view.hosts.get(server.address))]


def deviating(pool: Pool, views: Sequence[View], wanted: Mapping[str, int]) -> dict[str, str]:
    """What is otherwise than wanted, by server: said in words."""
    found: dict[str, str] = {}
    for name, weight in wanted.items():
        server = pool.by_name[name]
        for view in views:
            host = view.hosts.get(server.address)
            if host is None:
                found.setdefault(name, f"the Envoy at {view.address} does not have it")
            elif server.usable and host.weight != weight:
                found.setdefault(
                    name, f"weight in force at {view.address} is {host.weight}, not {weight}"
                )
    return found


def combine(
    service: str,
    pool: Pool,
    views: Sequence[View],
    sent: Mapping[str, int],
    *,
    balancers: int = 1,
    sole_writer: bool = False,
) -> BalancerState:
    """One reading.

    Parameters
    ----------
    service
        Name of the cluster.
    pool
        Its servers.
    views
        Of the Envoys that answer.
    sent
        Weights of the newest snapshot.
    balancers
        How many Envoys there are.
    sole_writer
        Whether nobody but us can set weights.

    Raises
    ------
    BalancerRefused
        If the cluster's policy has no use for weights, or two Envoys have different ones.
    """
    policy = one_policy(service, views)
    servers = []
    for server in pool.servers:
        hosts = _hosts(server, views)
        expected = sent.get(server.name, server.configured_weight)
        servers.append(
            ServerState(
                name=server.name,
                weight=weight_in_force(server, views, expected),
                configured_weight=server.configured_weight,
                usable=server.usable and any(host.usable for host in hosts),
                in_flight=sum(host.in_flight for host in hosts),
                requests_total=sum(host.requests_total for host in hosts),
                errors_total=sum(host.errors_total for host in hosts),
            )
        )
    return BalancerState(
        epoch=" ".join(view.started for view in views),
        algorithm=policy.name,
        meaning=policy.meaning(
            service, zero_drains=pool.can_drain, balancers=balancers, sole_writer=sole_writer
        ),
        servers=tuple(servers),
    )


def one_policy(service: str, views: Sequence[View]) -> LbPolicy:
    """The policy of all of them.

    Raises
    ------
    BalancerRefused
        If they differ: a weight would mean one thing here and another there.
    """
    first, *others = views
    for other in others:
        if other.policy != first.policy:
            raise BalancerRefused(
                f"cluster {service!r} uses {first.policy.name} at {first.address} and "
                f"{other.policy.name} at {other.address}: one policy is needed"
            )
    return first.policy


def has_hosts(pool: Pool, views: Sequence[View]) -> bool:
    """Whether any Envoy has any server of the pool."""
    return any(view.hosts.keys() & pool.by_address.keys() for view in views)


def drainable(
    pool: Pool, views: Sequence[View], before: Mapping[str, int], wanted: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, str]]:
    """Weights to be sent, and why some servers are not drained.

    Envoy counts a drained server as unhealthy, like one that fails its health checks, and in panic
    sends load to all of them.
    """
    drained = [name for name, weight in wanted.items() if weight == 0 and before[name]]
    why = next((why for view in views if (why := _panic(pool, view, {**before, **wanted}))), "")
    if not drained or not why:
        return dict(wanted), {}
    kept = {name: weight for name, weight in wanted.items() if name not in drained}
    return kept, dict.fromkeys(drained, f"not drained: {why}")


def _panic(pool: Pool, view: View, weights: Mapping[str, int]) -> str:
    """Why these weights would leave one Envoy too few healthy servers; empty if they do not."""
    hosts = [(s, host) for s in pool.servers if (host := view.hosts.get(s.address))]
    left = sum(1 for s, host in hosts if s.usable and host.usable and weights[s.name])
    threshold = panic_threshold(view.config)
    if not hosts or (left and left >= threshold * len(hosts)):
        return ""
    return (
        f"{left} of {len(hosts)} servers would be left at {view.address}, and below "
        f"{100.0 * threshold:g} % Envoy sends load to all"
    )
