"""The whole contract between DIAL and a load balancer, in one file.

An adapter is a Python distribution of its own.  It imports this module,
:mod:`dial.types` and :mod:`dial.errors`, nothing else of ``dial``, and is found through
the entry-point group ``dial.lb_adapters``::

    [project.entry-points."dial.lb_adapters"]
    haproxy = "dial_haproxy:create"

The entry point is a callable ``create(service, options) -> Adapter`` where ``service``
is the pool's name and ``options`` the user's ``[adapter.options]`` table, which the
adapter checks itself (``SettingError`` names the option).  ``create`` does no I/O.

What an adapter promises is written as tests in :mod:`dial.conformance`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dial.errors import SettingError
from dial.types import ApplyReport, BalancerState

ENTRY_POINT_GROUP = "dial.lb_adapters"


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """Some finished requests, in columns of equal length n, in the order of the log.

    Attributes
    ----------
    names
        Backend names; ``backend`` indexes into it.
    backend
        int32[n], index of the backend that served the request.
    end_s
        float64[n], when the answer began, seconds since the epoch by the balancer's
        clock.
    latency_ms
        float64[n], response time; NaN where the balancer did not measure one.
    connect_ms
        float64[n], connect time; NaN where the connection was reused or none was made.
    failed
        bool[n], 5xx or broken off by the server's side.  A client that goes away is
        not the backend's failure.
    route
        Request class per request where the user logs one, else ``None``.
    malformed
        Lines since the last batch that could not be read; counted, never fatal.
    unattributed
        Requests that reached no backend of this service (no server available, refused
        by a rule, other pools).
    dropped
        Requests that were logged but forgotten, because batches were taken too slowly.
    """

    names: tuple[str, ...]
    backend: NDArray[np.int32]
    end_s: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    connect_ms: NDArray[np.float64]
    failed: NDArray[np.bool_]
    route: tuple[str, ...] | None = None
    malformed: int = 0
    unattributed: int = 0
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.backend)


class Severity(StrEnum):
    """How bad a finding of ``check`` is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what ``dial check`` tells the admin."""

    severity: Severity
    what: str
    """What was looked at and found."""
    fix: str = ""
    """What to change in the balancer's own configuration; empty when all is well."""


class Adapter(Protocol):
    """A load balancer that DIAL reads from and writes weights to.

    All methods may be called from one event loop only.  None of them may block it, and
    none may slow the data plane: a log nobody reads is dropped by the balancer.
    """

    name: str

    async def read(self) -> BalancerState:
        """Read servers, counters and the weights in force.

        Raises
        ------
        BalancerUnreachable, BalancerRefused, UnknownService
        """

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        """Write weights in as few steps as the balancer allows, and read them back.

        Applying the same weights again is harmless.  A backend the balancer does not
        know is a failure in the report and keeps the others from nothing.

        Raises
        ------
        BalancerRefused
            If a weight is out of the declared range; then nothing was written.
        StalePlan
            If ``version`` is lower than one already applied by this adapter.
        BalancerUnreachable
            If nothing could be written, or it is not known what was.
        """

    def requests(self) -> AsyncIterator[RequestBatch]:
        """Finished requests as they are logged, until :meth:`aclose`.

        Survives the balancer's restart; loses what was logged meanwhile.
        """

    async def check(self) -> tuple[Finding, ...]:
        """What must change in the user's own configuration for DIAL to work."""

    async def aclose(self) -> None:
        """Give back sockets and files; weights stay as they are."""


AdapterFactory = Callable[[str, Mapping[str, object]], Adapter]


def load_adapter(name: str) -> AdapterFactory:
    """Find an installed adapter by its entry-point name.

    Raises
    ------
    SettingError
        If no installed distribution provides it; the message lists those there are.
    """
    found = {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        there = ", ".join(sorted(found)) or "none is installed"
        raise SettingError(f"adapter.name = {name!r}: no such adapter; installed: {there}")
    factory: AdapterFactory = found[name].load()
    return factory
