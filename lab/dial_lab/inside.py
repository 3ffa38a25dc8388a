"""Scenarios inside one VM: no balancer, no neighbour, no policies but the agent's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dial_lab import own_services, softirq

INSIDE: dict[str, tuple[str, Callable[[float, int], dict[str, Any]]]] = {
    "own-services": (
        "two services and a batch job of one VM disturb each other; the agent divides it",
        lambda seconds, seed: own_services.as_json(own_services.execute(seconds, seed)),
    ),
    "softirq": (
        "packets to one service of a VM slow another one; the agent charges for them",
        lambda seconds, _seed: softirq.as_json(softirq.execute(seconds)),
    ),
}
"""What each is, and what runs it: seconds and seed in, its report out."""
