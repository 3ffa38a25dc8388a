"""Which cells the matrix has, and which policies are measured in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from dial.errors import LabError

RESOURCES = ("cpu", "net", "disk", "llc", "two-victims")
CALM = ("none", "load", "mix")
"""Nobody contends: what is asked is to do no harm."""
LOADS = (0.25, 0.5, 0.75)
MIDDLE = 0.5
SEVERITY = 0.5
STRONG = 0.2
"""At the middle load too."""

OURS = ("dial",)
HAPROXY = ("roundrobin", "leastconn", "random2")
REFERENCES = ("dial-paper", "oracle")
RIVALS = ("peak-ewma", "prequal", "knapsack", "ice")
"""Written anew from what their authors publish."""
ABLATIONS = ("wrr-proportional", "wlc-proportional")
"""Our inference with simpler weights."""
ENVOY = ("leastrequest", "cswrr")
SHIPPED = (*HAPROXY, *ENVOY)
"""As the balancers come."""
MORE = (*ENVOY, *RIVALS, *ABLATIONS)
"""Beside a neighbour, at the middle load."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured together."""

    resource: str
    load: float
    severity: float
    app: str = "lab"
    """What the tenants run: see :data:`dial_lab.request.APPS`."""

    def __str__(self) -> str:
        app = "" if self.app == "lab" else f"/{self.app}"
        return f"{self.resource}/{self.load:g}/{self.severity:g}{app}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Read ``resource/load/severity``, and ``/app`` if it is not the lab's own.

        Raises
        ------
        LabError
            If it is none of the matrix; lists those there are, the nearest first.
        """
        there = {str(cell): cell for cell in cells()}
        if text in there:
            return there[text]
        nearest = sorted(there, key=lambda name: _likeness(text, name), reverse=True)
        raise LabError(f"--cell {text}: no such cell; allowed: {', '.join(nearest)}")

    @property
    def contended(self) -> bool:
        """Whether anybody takes anything."""
        return self.resource not in CALM

    @property
    def policies(self) -> tuple[str, ...]:
        """HAProxy's own, ours, the references; at the middle load Envoy's and the rivals."""
        at_length = self.load == MIDDLE and self.contended and self.app == "lab"
        more = MORE if at_length else ()
        return HAPROXY + OURS + REFERENCES + more


def _likeness(text: str, name: str) -> float:
    return SequenceMatcher(None, text.lower(), name).ratio()


def cells() -> Iterator[Cell]:
    """All of the matrix, what is asked most first; strong neighbours, half an hour each, last."""
    for load in (MIDDLE, 0.25, 0.75):
        for resource in RESOURCES + CALM:
            yield Cell(resource, load, SEVERITY)
        if load == MIDDLE:
            yield Cell("cpu", load, SEVERITY, "apache")
    yield from (Cell(resource, MIDDLE, STRONG) for resource in RESOURCES)
