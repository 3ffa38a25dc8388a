"""Scenarios inside one VM: no balancer, no neighbour, no policies but the agent's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dial_lab import own_services, softirq


def _own_services(seconds: float, seed: int) -> dict[str, Any]:
    report = own_services.as_json(own_services.execute(seconds, seed))
    return {**report, "told": asdict(own_services.told(seconds, seed))}


def _softirq(seconds: float, seed: int) -> dict[str, Any]:
    report = softirq.as_json(softirq.execute(seconds / softirq.ROUNDS))
    return {**report, "told": asdict(softirq.told(seconds, seed))}


INSIDE: dict[str, tuple[str, Callable[[float, int], dict[str, Any]]]] = {
    "own-services": (
        "two services and a batch job of one VM disturb each other; the agent divides it",
        _own_services,
    ),
    "softirq": (
        "packets to one service of a VM slow another one; the agent charges for them",
        _softirq,
    ),
}
"""What each is, and what runs it: seconds and seed in, its report out."""
