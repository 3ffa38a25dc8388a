"""What a weight means under a cluster's load balancing policy.

Source: Envoy's "Supported load balancers".  With weights that differ, LEAST_REQUEST is a weighted
round robin over weight / (active requests + 1)^bias (bias: ``active_request_bias``, 1 unless
configured; 0 makes it ROUND_ROBIN).  With equal weights it draws two servers and takes the one with
fewer active requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dial.errors import BalancerRefused
from dial.types import WeightKind, WeightMeaning
from dial_envoy.endpoints import MAX_WEIGHT, MIN_WEIGHT

_DEFAULT_PANIC = 0.5
"""Envoy's."""

_WHY_NOT = {
    "RANDOM": "it draws among hosts and looks at no weight",
    "RING_HASH": "a weight moves keys, with their caches and sessions, not a share of the load",
    "MAGLEV": "a weight moves keys, with their caches and sessions, not a share of the load",
    "CLUSTER_PROVIDED": "it sends each request where the client wanted to go",
    "CLIENT_SIDE_WEIGHTED_ROUND_ROBIN": "it makes its own weights of what servers report",
}
_NAMES = {
    "round_robin": "ROUND_ROBIN",
    "least_request": "LEAST_REQUEST",
    "random": "RANDOM",
    "ring_hash": "RING_HASH",
    "maglev": "MAGLEV",
    "client_side_weighted_round_robin": "CLIENT_SIDE_WEIGHTED_ROUND_ROBIN",
}


@dataclass(frozen=True, slots=True)
class LbPolicy:
    """How a cluster spreads requests.

    Attributes
    ----------
    name
        As ``lb_policy`` has it.
    bias
        ``active_request_bias``, of LEAST_REQUEST only.
    """

    name: str
    bias: float = 1.0

    def meaning(
        self, cluster: str, *, zero_drains: bool, balancers: int = 1, sole_writer: bool = False
    ) -> WeightMeaning:
        """What its weights mean, and who can set them.

        Raises
        ------
        BalancerRefused
            If they move no share of the load: the message says why.
        """
        if self.name not in ("ROUND_ROBIN", "LEAST_REQUEST"):
            why = _WHY_NOT.get(self.name, "DIAL does not know what a weight means to it")
            raise BalancerRefused(
                f"cluster {cluster!r} uses {ascii(self.name[:80])[1:-1]}: {why}; allowed are "
                "ROUND_ROBIN and LEAST_REQUEST"
            )
        return WeightMeaning(
            kind=WeightKind.REQUESTS,
            minimum=MIN_WEIGHT,
            maximum=MAX_WEIGHT,
            zero_drains=zero_drains,
            in_flight_bias=self.bias if self.name == "LEAST_REQUEST" else 0.0,
            balancers=balancers,
            sole_writer=sole_writer,
        )


def policy_of(config: Mapping[str, Any]) -> LbPolicy:
    """Read it from a cluster's configuration, as Envoy prints it.

    Both forms are known: ``lb_policy``, and the newer ``load_balancing_policy``, of whose list
    Envoy takes the first that it knows.
    """
    extension = _first_extension(config.get("load_balancing_policy"))
    if extension is not None:
        name, typed = extension
        kind = name.removeprefix("envoy.load_balancing_policies.")
        return LbPolicy(_NAMES.get(kind, kind), _bias(typed))
    name = str(config.get("lb_policy", "ROUND_ROBIN"))
    return LbPolicy(name, _bias(config.get("least_request_lb_config")))


def _first_extension(policy: object) -> tuple[str, object] | None:
    match policy:
        case {"policies": [{"typed_extension_config": {"name": str(name), **rest}}, *_]}:
            return name, rest.get("typed_config")
    return None


def _bias(config: object) -> float:
    match config:
        case {"active_request_bias": {"default_value": int() | float() as value}}:
            return float(value)
        case {"active_request_bias": {}}:
            return 0.0  # Envoy prints no field that is 0
    return 1.0


def panic_threshold(config: Mapping[str, Any]) -> float:
    """Fraction of healthy servers below which a cluster sends load to all of them."""
    match config.get("common_lb_config"):
        case {"healthy_panic_threshold": {"value": int() | float() as percent}}:
            return float(percent) / 100.0
        case {"healthy_panic_threshold": {}}:
            return 0.0  # Envoy prints no field that is 0
    return _DEFAULT_PANIC
