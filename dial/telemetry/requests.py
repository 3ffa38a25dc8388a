"""Finished requests, gathered into one window per backend and tick.

The log reader adds batches as they come; once a tick the windows are closed and begin
anew.  Percentiles are exact: a tick's latencies are kept, and memory is bounded by
keeping at most ``max_kept`` of them per backend, the newest.

A backend that was left a small share answers few requests, and a percentile of five
requests is noise.  So each window reaches back over earlier ticks until it rests on
``min_requests``, but over no more than ``pool_ticks`` ticks; with fewer even then there
is no T_x, and the window says so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dial.adapter import RequestBatch
from dial.types import Measured, NoData

_EMPTY: NDArray[np.float64] = np.empty(0)


@dataclass(slots=True)
class _Gathering:
    """What came of one backend since the last tick."""

    latency_ms: list[NDArray[np.float64]] = field(default_factory=list)
    connect_ms: list[NDArray[np.float64]] = field(default_factory=list)
    kept: int = 0
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
        How many requests the three rest on; more than ``requests`` when ticks were pooled.
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
    pool_ticks : ticks, this one included, over which a window may reach back.
    max_kept : latencies kept per backend and tick; older ones of the tick are dropped.
    """

    def __init__(
        self,
        percentile: float,
        min_requests: int,
        *,
        pool_ticks: int = 5,
        max_kept: int = 1_000_000,
    ) -> None:
        self._percentile = percentile
        self._min_requests = min_requests
        self._max_kept = max_kept
        self._now: dict[str, _Gathering] = {}
        self._past: deque[dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]] = deque(
            maxlen=max(0, pool_ticks - 1)
        )

    def add(self, batch: RequestBatch) -> None:
        """Take in finished requests; those of unknown backends are simply not asked for."""
        if not len(batch):
            return
        for code in np.unique(batch.backend):
            mine = batch.backend == code
            failed = batch.failed[mine]
            gathering = self._now.setdefault(batch.names[code], _Gathering())
            gathering.requests += int(mine.sum())
            gathering.errors += int(failed.sum())
            latency_ms = batch.latency_ms[mine][~failed]
            latency_ms = latency_ms[np.isfinite(latency_ms)]
            connect_ms = batch.connect_ms[mine]
            gathering.latency_ms.append(latency_ms)
            gathering.connect_ms.append(connect_ms[np.isfinite(connect_ms)])
            gathering.kept += latency_ms.size
            while gathering.kept > self._max_kept and len(gathering.latency_ms) > 1:
                gathering.kept -= gathering.latency_ms.pop(0).size
                gathering.connect_ms.pop(0)

    def close(self, names: tuple[str, ...]) -> dict[str, ClosedWindow]:
        """Close this tick's windows of the named backends, and begin the next tick's."""
        tick = {name: (_join(g.latency_ms), _join(g.connect_ms)) for name, g in self._now.items()}
        closed = {name: self._window(name, tick) for name in names}
        self._past.appendleft(tick)
        self._now = {}
        return closed

    def clear(self) -> None:
        """Begin the next tick and forget this one."""
        self._now = {}

    def _window(
        self, name: str, tick: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
    ) -> ClosedWindow:
        gathering = self._now.get(name, _Gathering())
        latency_ms, connect_ms = tick.get(name, (_EMPTY, _EMPTY))
        for earlier in self._past:
            if latency_ms.size >= self._min_requests:
                break
            older_latency_ms, older_connect_ms = earlier.get(name, (_EMPTY, _EMPTY))
            latency_ms = np.concatenate([older_latency_ms, latency_ms])
            connect_ms = np.concatenate([older_connect_ms, connect_ms])
        t_x_ms: Measured
        t_mean_ms: Measured
        if latency_ms.size < self._min_requests:
            reason = f"{latency_ms.size} requests; {self._min_requests} are needed"
            t_x_ms = t_mean_ms = NoData(reason)
        else:
            t_x_ms = float(np.percentile(latency_ms, self._percentile))
            t_mean_ms = float(latency_ms.mean())
        t_c_ms: Measured = (
            float(np.percentile(connect_ms, self._percentile))
            if connect_ms.size >= self._min_requests
            else NoData(f"{connect_ms.size} new connections; {self._min_requests} are needed")
        )
        return ClosedWindow(
            gathering.requests, gathering.errors, t_x_ms, t_mean_ms, t_c_ms, latency_ms.size
        )


def _join(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(parts) if parts else _EMPTY
