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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dial.telemetry.requests import ClosedWindow, RequestWindows
from dial.telemetry.samples import merge_samples
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
    served: Mapping[str, int]
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
        self._requests_total: dict[str, int] = {}
        self._recent: deque[_Recent] = deque()

    def begin(self, balancer: BalancerState) -> None:
        """Count from this reading of the balancer on."""
        self._epoch = balancer.epoch
        self._requests_total = {s.name: s.requests_total for s in balancer.servers}

    def forget(self) -> None:
        """Begin anew with the next tick: what came in since the last one was let go.

        Without this the counters of all the time that was not seen would be one tick's arrivals.
        """
        self._requests_total = {}
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
        names = tuple(server.name for server in balancer.servers)
        closed = self._windows.close(names)
        served = {name: window.requests for name, window in closed.items()}
        self._remember(_Recent(interval_s, served, samples))
        counted = self._requests_total if balancer.epoch == self._epoch else {}
        windows = [
            _window(closed[server.name], _arrived(server, counted), interval_s, per_s)
            for server, per_s in zip(balancer.servers, self._served_per_s(names), strict=True)
        ]
        samples_of = self._merged_samples(names)
        backends = tuple(map(BackendObservation, names, windows, samples_of, balancer.servers))
        self.begin(balancer)
        return Observation(
            tick=self.tick,
            now_s=now_s,
            interval_s=interval_s,
            epoch=balancer.epoch,
            algorithm=balancer.algorithm,
            meaning=balancer.meaning,
            backends=backends,
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

    def _merged_samples(self, names: tuple[str, ...]) -> Iterator[AgentSample | NoData]:
        newest, *before = reversed(self._recent)
        for name in names:
            samples = newest.samples.get(name, ())
            for tick in before:
                samples = (*tick.samples.get(name, ()), *samples)
            yield samples[0] if len(samples) == 1 else merge_samples(samples)

    def _served_per_s(self, names: tuple[str, ...]) -> list[float]:
        """Of the ticks in which a backend was there."""
        served, covered_s = [0] * len(names), [0.0] * len(names)
        for tick in self._recent:
            for row, requests in enumerate(map(tick.served.get, names)):
                if requests is not None:
                    served[row] += requests
                    covered_s[row] += tick.interval_s
        return [n / s for n, s in zip(served, covered_s, strict=True)]


def _arrived(server: ServerState, counted: Mapping[str, int]) -> int | None:
    """Requests since the balancer's counters were read before; ``None`` where they do not go on."""
    before = counted.get(server.name)
    if before is None or server.requests_total < before:
        return None
    return server.requests_total - before


def _window(
    closed: ClosedWindow, arrived: int | None, interval_s: float, served_per_s: float
) -> RequestWindow:
    requests, errors, t_x_ms, t_mean_ms, t_c_ms, t_x_requests = closed
    if arrived is None:
        arrived = requests
    if not requests and arrived and isinstance(t_x_ms, NoData):
        t_x_ms = NoData(f"{arrived} requests were sent there but no log line came")
    return RequestWindow(
        requests,
        errors,
        arrived / interval_s,
        t_x_ms,
        t_x_requests,
        t_mean_ms,
        t_c_ms,
        served_per_s=served_per_s,
    )
