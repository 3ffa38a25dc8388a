"""The join: windows, samples and the balancer's own state, one Observation a tick.

The arrival rate comes from the balancer's counters where two readings of the same
process exist: a log shows requests when they *end*, so under overload it shows the
service rate, and a dropped line is no missing request.

What an agent measures, and the rate of requests served that it is compared with, are taken over
:data:`HORIZON_S` where ticks are shorter: agents count in ticks of 10 ms and post when they
like, so that a tick of a second has no sample now and then, and two the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dial.columns import ByName, Floats, Ints, integers
from dial.seen import WINDOW_NAMES, Seen
from dial.telemetry.requests import ClosedWindows, RequestWindows
from dial.telemetry.samples import merge_samples, merged_columns
from dial.types import (
    NO_ORDERS,
    AgentSample,
    BackendObservation,
    BalancerState,
    NoData,
    Observation,
    Orders,
    RequestWindow,
    ServerState,
)


@dataclass(frozen=True, slots=True)
class _Recent:
    """What a tick of a moment ago had: requests served and samples, by backend."""

    interval_s: float
    names: tuple[str, ...]
    served: Ints
    samples: Mapping[str, Sequence[AgentSample]]


HORIZON_S = 2.0
"""Of samples and of the rate served: two samples at 1 Hz; models are made from as much."""


class Observer:
    """Builds Observations, one a tick, numbered from 1.

    Parameters
    ----------
    windows : where the log reader adds its batches.
    model_checksum : of the model whose plans these observations will lead to.

    Attributes
    ----------
    tick
        Number of the last observation; 0 before the first.
    """

    def __init__(self, windows: RequestWindows, model_checksum: str) -> None:
        self._windows = windows
        self._model_checksum = model_checksum
        self.tick = 0
        self._epoch: str | None = None
        self._names: tuple[str, ...] = ()
        self._requests_total: Ints = np.zeros(0, np.int64)
        self._recent: deque[_Recent] = deque()

    def begin(self, balancer: BalancerState) -> None:
        """Count from this reading of the balancer on."""
        self._epoch = balancer.epoch
        self._names = tuple(server.name for server in balancer.servers)
        self._requests_total = integers(balancer.servers, "requests_total")

    def forget(self) -> None:
        """Begin anew with the next tick: what came in since the last one was let go.

        Without this the counters of all the time that was not seen would be one tick's arrivals.
        """
        self._epoch = None
        self._recent.clear()

    def observe(
        self,
        balancer: BalancerState,
        samples: Mapping[str, Sequence[AgentSample]],
        now_s: float,
        interval_s: float,
        orders: Orders = NO_ORDERS,
    ) -> Observation:
        """Close the tick.

        Parameters
        ----------
        balancer : just read.
        samples : by backend, oldest first.
        now_s : wall clock.
        interval_s : time since the last tick was closed.
        orders : of operators, as they hold now.
        """
        self.tick += 1
        names, counted = self._names, self._requests_total
        goes_on = balancer.epoch == self._epoch
        self.begin(balancer)
        before = _aligned(counted, names, self._names) if goes_on else None
        closed = self._windows.close(self._names)
        self._remember(_Recent(interval_s, self._names, closed.requests, samples))
        arrived = _arrived(closed.requests, self._requests_total, before)
        made = _Tick(
            self._names,
            closed,
            arrived,
            arrived / interval_s,
            self._served_per_s(),
            self._recent_samples(),
            balancer.servers,
        )
        return Observation.of_rows(
            made.seen(),
            tick=self.tick,
            now_s=now_s,
            interval_s=interval_s,
            epoch=balancer.epoch,
            algorithm=balancer.algorithm,
            meaning=balancer.meaning,
            model_checksum=self._model_checksum,
            orders=orders,
        )

    def _remember(self, newest: _Recent) -> None:
        """Keep as few of the last ticks as cover the horizon, the newest in any case."""
        self._recent.append(newest)
        covered_s = sum(tick.interval_s for tick in self._recent)
        while len(self._recent) > 1 and (
            covered_s - self._recent[0].interval_s > HORIZON_S - 0.5 * newest.interval_s
        ):
            covered_s -= self._recent.popleft().interval_s

    def _recent_samples(self) -> list[Sequence[AgentSample]]:
        """Of each backend, oldest first."""
        *before, newest = self._recent
        found: list[Sequence[AgentSample]] = [newest.samples.get(name, ()) for name in self._names]
        for tick in reversed(before):
            older = (tick.samples.get(name, ()) for name in self._names)
            found = [(*old, *new) for old, new in zip(older, found, strict=True)]
        return found

    def _served_per_s(self) -> Floats:
        """(n,) of the ticks in which a backend was there."""
        served, covered_s = np.zeros((2, len(self._names)))
        for tick in self._recent:
            requests = _aligned(tick.served, tick.names, self._names)
            there = requests >= 0
            served += np.where(there, requests, 0)
            covered_s += np.where(there, tick.interval_s, 0.0)
        per_s: Floats = served / covered_s
        return per_s


@dataclass(frozen=True, slots=True)
class _Tick:
    """One tick of n backends: in columns, and one by one."""

    names: tuple[str, ...]
    closed: ClosedWindows
    arrived: Ints
    rate_per_s: Floats
    served_per_s: Floats
    samples: Sequence[Sequence[AgentSample]]
    servers: Sequence[ServerState]

    def seen(self) -> Seen:
        windows, samples = ByName(WINDOW_NAMES, self._window_column), merged_columns(self.samples)
        return Seen(self.names, windows, samples, self.servers, self._backend)

    def _window_column(self, name: str) -> Floats:
        of = self if name in ("rate_per_s", "served_per_s") else self.closed
        column: Floats = getattr(of, name).astype(float)
        return column

    def _backend(self, row: int) -> BackendObservation:
        samples = self.samples[row]
        sample = samples[0] if len(samples) == 1 else merge_samples(samples)
        return BackendObservation(self.names[row], self._window(row), sample, self.servers[row])

    def _window(self, row: int) -> RequestWindow:
        requests, errors, t_x_ms, t_mean_ms, t_c_ms, t_x_requests = self.closed.window(row)
        arrived = int(self.arrived[row])
        if not requests and arrived and isinstance(t_x_ms, NoData):
            t_x_ms = NoData(f"{arrived} requests were sent there but no log line came")
        return RequestWindow(
            requests,
            errors,
            float(self.rate_per_s[row]),
            t_x_ms,
            t_x_requests,
            t_mean_ms,
            t_c_ms,
            served_per_s=float(self.served_per_s[row]),
        )


def _aligned(counts: Ints, names: tuple[str, ...], now: tuple[str, ...]) -> Ints:
    """Counts of the backends that there are now; -1 of those that are new."""
    if names == now:
        return counts
    rows = {name: row for row, name in enumerate(names)}
    # Whoever is new gets what comes after all others.
    taken = np.array([rows.get(name, len(rows)) for name in now], np.int64)
    return np.append(counts, -1)[taken]


def _arrived(logged: Ints, total: Ints, before: Ints | None) -> Ints:
    """(n,) requests since the counters were read before; as logged where they do not go on."""
    if before is None:
        return logged
    return np.where((before >= 0) & (total >= before), total - before, logged)
