"""The plan that readers apply, as it lies in the store.

Format 1 is JSON::

    {"format": 1, "service": "app", "term": 812, "leader": "dial-1", "at_s": 1795211945.5,
     "weights": {"s1": 24, "s2": 138}}

``weights`` are those that differ from the configured ones because DIAL wants it so, and those that
have just been put back.  Its revision in the store is its version: it grows with every write,
whoever leads.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Weight = Annotated[int, Field(ge=0, le=1_000_000)]


class PlanDocument(BaseModel):
    """Weights wanted of all balancers of a service."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    service: str
    term: int
    """Of the leader: grows with every election."""
    leader: str
    at_s: FiniteFloat
    weights: dict[str, Weight]


class Applied(BaseModel):
    """What became of a plan at one balancer."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    reader: Annotated[str, Field(max_length=256)]
    revision: int
    at_s: FiniteFloat
    in_effect: dict[str, Weight]
    failures: dict[str, Annotated[str, Field(max_length=1024)]]
