"""Finished requests, gathered into one window per backend and tick.

The log reader adds batches as they come; once a tick the windows are closed and begin
anew.  Percentiles are exact: latencies are kept, and memory is bounded by keeping at most
``max_kept`` of them per backend, the newest.

A backend that was left a small share answers few requests, and a percentile of five
requests is noise.  Its latencies are gathered over as many ticks as it takes to have
``min_requests`` of them; the ticks in between have no T_x, and say so.  Each request
counts in one percentile only: windows that overlapped would be anything but independent,
and a detector that asks for successive exceedances would see one slow moment as several.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dial.adapter import RequestBatch
from dial.types import Measured, NoData


@dataclass(slots=True)
class _Newest:
    """Values gathered until there are enough; the newest ``limit`` of them are kept."""

    limit: int
    parts: deque[NDArray[np.float64]] = field(default_factory=deque)
    size: int = 0

    def add(self, values: NDArray[np.float64]) -> None:
        if not values.size:
            return
        self.parts.append(values)
        self.size += values.size
        while self.size > self.limit:
            excess = self.size - self.limit
            oldest = self.parts.popleft()
            if oldest.size > excess:
                self.parts.appendleft(oldest[excess:])
            self.size -= min(excess, oldest.size)

    def take(self, at_least: int) -> NDArray[np.float64] | None:
        """All of them, and begin anew; ``None``, and go on, while there are too few."""
        if self.size < at_least:
            return None
        values = np.concatenate(self.parts)
        self.parts.clear()
        self.size = 0
        return values


@dataclass(slots=True)
class _Gathering:
    """What came of one backend: counts since the last tick, times since the last T_x."""

    latency_ms: _Newest
    connect_ms: _Newest
    requests: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """One backend's tick, before it is joined with the balancer's counters.

    Attributes
    ----------
    requests, errors
        Of this tick alone.
    t_x_ms, t_mean_ms, t_c_ms
        Milliseconds, of successful requests.
    t_x_requests
        How many successful requests T_x rests on, or would if there were enough.
    """

    requests: int
    errors: int
    t_x_ms: Measured
    t_mean_ms: Measured
    t_c_ms: Measured
    t_x_requests: int


class RequestWindows:
    """Gathers batches; closes one window per backend and tick.

    Parameters
    ----------
    percentile : x of T_x and T_c, in percent.
    min_requests : fewest successful requests a percentile may rest on.
    max_kept : latencies, and connect times, kept per backend; the oldest are dropped.
    """

    def __init__(
        self,
        percentile: float,
        min_requests: int,
        *,
        max_kept: int = 1_000_000,
    ) -> None:
        self._percentile = percentile
        self._min_requests = min_requests
        self._max_kept = max_kept
        self._gathered: dict[str, _Gathering] = {}

    def add(self, batch: RequestBatch) -> None:
        """Take in finished requests; those of unknown backends are simply not asked for."""
        if not len(batch):
            return
        for code in np.unique(batch.backend):
            mine = batch.backend == code
            failed = batch.failed[mine]
            gathering = self._gathered.setdefault(batch.names[code], self._empty())
            gathering.requests += int(mine.sum())
            gathering.errors += int(failed.sum())
            latency_ms = batch.latency_ms[mine][~failed]
            latency_ms = latency_ms[np.isfinite(latency_ms)]
            connect_ms = batch.connect_ms[mine]
            gathering.latency_ms.add(latency_ms)
            gathering.connect_ms.add(connect_ms[np.isfinite(connect_ms)])

    def close(self, names: tuple[str, ...]) -> dict[str, ClosedWindow]:
        """Close this tick's windows of the named backends, and begin the next tick's."""
        self._gathered = {name: self._gathered.get(name) or self._empty() for name in names}
        return {name: self._close(gathering) for name, gathering in self._gathered.items()}

    def clear(self) -> None:
        """Forget all that was gathered."""
        self._gathered = {}

    def _empty(self) -> _Gathering:
        return _Gathering(_Newest(self._max_kept), _Newest(self._max_kept))

    def _close(self, gathering: _Gathering) -> ClosedWindow:
        requests, errors = gathering.requests, gathering.errors
        gathering.requests = gathering.errors = 0
        measured = gathering.latency_ms.size
        latency_ms = gathering.latency_ms.take(self._min_requests)
        connections = gathering.connect_ms.size
        connect_ms = gathering.connect_ms.take(self._min_requests)
        t_x_ms: Measured
        t_mean_ms: Measured
        if latency_ms is None:
            t_x_ms = t_mean_ms = NoData(
                f"{measured} requests since the last T_x; {self._min_requests} are needed"
            )
        else:
            t_x_ms = float(np.percentile(latency_ms, self._percentile))
            t_mean_ms = float(latency_ms.mean())
        t_c_ms: Measured = (
            NoData(f"{connections} new connections; {self._min_requests} are needed")
            if connect_ms is None
            else float(np.percentile(connect_ms, self._percentile))
        )
        return ClosedWindow(requests, errors, t_x_ms, t_mean_ms, t_c_ms, measured)
