"""What was observed of the backends in one tick, in columns.

The same as the backends of an :class:`~dial.types.Observation`, one of which is made when somebody
asks for it: of thousands few are looked at one by one (ADR 39).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np

from dial.columns import Bools, ByName, Ints, integers, table
from dial.rows import Rows
from dial.types import (
    METRIC_NAMES,
    AgentSample,
    BackendObservation,
    NoData,
    Observation,
    RequestWindow,
    ServerState,
)

WINDOW_NAMES = tuple(field.name for field in fields(RequestWindow))
SAMPLE_NAMES = (*METRIC_NAMES, "cpu_time_cores", "interval_s")


class Seen(Rows[BackendObservation]):
    """n backends in one tick, in the order of the balancer.

    Parameters
    ----------
    names : of them.
    windows, samples : (n,) of each of ``WINDOW_NAMES`` and ``SAMPLE_NAMES``; NaN where a number is
        missing.
    servers : as the balancer reports them.
    make : makes one of them.

    Attributes
    ----------
    weight, configured_weight
        (n,) of the servers.
    usable
        (n,) whether the balancer uses it.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        windows: ByName,
        samples: ByName,
        servers: Sequence[ServerState],
        make: Callable[[int], BackendObservation],
    ) -> None:
        self.names, self.windows, self.samples = names, windows, samples
        self.weight: Ints = integers(servers, "weight")
        self.configured_weight: Ints = integers(servers, "configured_weight")
        self.usable: Bools = integers(servers, "usable").astype(np.bool_)
        self._make = make

    @classmethod
    def of(cls, observation: Observation) -> Seen:
        """The backends of an observation, however it was made."""
        rows = observation.rows
        if isinstance(rows, cls):
            return rows
        return cls(
            tuple(b.name for b in rows),
            table([b.window for b in rows], WINDOW_NAMES),
            table([b.sample for b in rows], SAMPLE_NAMES),
            [b.server for b in rows],
            rows.__getitem__,
        )

    def __len__(self) -> int:
        return len(self.names)

    def row(self, row: int) -> BackendObservation:
        """The backend in a row."""
        return self._make(row)

    def interval(self, row: int) -> tuple[RequestWindow, AgentSample | NoData]:
        """Its window and its sample."""
        seen = self._make(row)
        return seen.window, seen.sample
