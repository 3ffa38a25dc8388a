"""Finished requests, gathered into one window per backend and tick.

The log reader adds batches as they come; once a tick the windows are closed and begin
anew.  Percentiles are exact: latencies are kept, and memory is bounded by keeping at most
``max_kept`` of them per backend, the newest.

A backend that was left a small share answers few requests, and a percentile of five
requests is noise.  Its latencies are gathered over as many ticks as it takes to have
``min_requests`` of them; the ticks in between have no T_x, and say so.  Each request
counts in one percentile only: windows that overlapped would be anything but independent,
and a detector that asks for successive exceedances would see one slow moment as several.

All backends are gathered in the same columns, and closed by one sort: with ten thousand of
them an array each would cost more than what is in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dial.adapter import RequestBatch
from dial.types import Measured, NoData

_Numbers = NDArray[np.signedinteger[Any]]
"""Of backends."""

_LONG = 500
"""Values a backend from which it pays to select the percentile of each one, without sorting all."""


@dataclass(frozen=True, slots=True)
class _Figures:
    """Of n backends: how many values there were, and, where enough, their percentile and mean.

    All three have n elements; NaN where there were too few.
    """

    sizes: NDArray[np.int64]
    percentile: NDArray[np.float64]
    mean: NDArray[np.float64]


class _Times:
    """Values of numbered backends, gathered until each has enough.

    Parameters
    ----------
    limit : values kept of a backend; the newest, when it is next looked at.

    Notes
    -----
    The arrays stay as long as they once had to be: new ones for every tick take longer to get than
    to fill.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._backend: _Numbers = np.empty(0, np.int32)
        self._value = np.empty(0)
        self.clear()

    def clear(self) -> None:
        self._count = 0
        self._sizes = np.zeros(0, np.int64)

    def add(self, backend: _Numbers, value: NDArray[np.float64]) -> None:
        if not value.size:
            return
        begin, end = self._count, self._count + value.size
        if end > self._value.size:
            backends, values = np.empty(2 * end, np.int32), np.empty(2 * end)
            backends[:begin], values[:begin] = self._backend[:begin], self._value[:begin]
            self._backend, self._value = backends, values
        self._backend[begin:end], self._value[begin:end] = backend, value
        self._count = end
        sizes = np.bincount(backend, minlength=self._sizes.size)
        sizes[: self._sizes.size] += self._sizes
        self._sizes = sizes
        if sizes.max() > 2 * self._limit:
            self._keep(*self._newest())

    def size(self, backend: int) -> int:
        return int(self._sizes[backend]) if backend < self._sizes.size else 0

    def renumber(self, numbers: NDArray[np.int64]) -> None:
        """Give backend i the number ``numbers[i]``, and forget it where that is negative."""
        backend, value = self._newest()
        backend = numbers[backend]
        self._keep(backend[backend >= 0], value[backend >= 0])

    def take(self, backends: int, at_least: int, percentile: float) -> _Figures:
        """The figures of backends with enough values, which then begin anew; others go on."""
        backend, value = self._newest()
        sizes = np.zeros(backends, np.int64)
        sizes[: self._sizes.size] = np.minimum(self._sizes, self._limit)
        self.clear()
        enough = sizes >= max(at_least, 1)
        grouped = value[_grouped(backend)]
        if not enough.all():
            waits = np.repeat(~enough, sizes)
            self.add(np.repeat(np.arange(backends), np.where(enough, 0, sizes)), grouped[waits])
            grouped = grouped[~waits]
        figures = _Figures(sizes, np.full(backends, np.nan), np.full(backends, np.nan))
        figures.percentile[enough], figures.mean[enough] = _summed_up(
            grouped, sizes[enough], percentile
        )
        return figures

    def _keep(self, backend: _Numbers, value: NDArray[np.float64]) -> None:
        self.clear()
        self.add(backend, value)

    def _newest(self) -> tuple[_Numbers, NDArray[np.float64]]:
        """All, in the order they came, but of each backend the newest ``limit``."""
        backend, value = self._backend[: self._count], self._value[: self._count]
        if self._count and self._sizes.max() > self._limit:
            order = _grouped(backend)
            ends = np.cumsum(self._sizes)[backend[order]]
            kept = np.sort(order[ends - np.arange(order.size) <= self._limit])
            backend, value = backend[kept], value[kept]
        return backend, value


def _grouped(backend: _Numbers) -> NDArray[np.int64]:
    """Order by backend, and as they came within each."""
    # Numbers of 16 bits are sorted by their digits, ten times faster.
    small = backend.astype(np.int16) if not backend.size or backend.max() < 2**15 else backend
    return np.argsort(small, kind="stable")


def _summed_up(
    grouped: NDArray[np.float64], sizes: NDArray[np.int64], percentile: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile and mean of each group of values.

    Parameters
    ----------
    grouped : the values, one group after the other; they are overwritten.
    sizes : of the groups, all positive.
    percentile : by linear interpolation, as ``numpy.percentile`` has it to the last bit.
    """
    if not sizes.size:
        return np.empty(0), np.empty(0)
    starts = np.cumsum(sizes) - sizes
    rank = percentile / 100.0 * (sizes - 1)
    below = np.floor(rank).astype(np.int64)
    above = np.minimum(below + 1, sizes - 1)
    if grouped.size >= _LONG * sizes.size:
        each = np.split(grouped, starts[1:])
        mean = np.array([one.mean() for one in each])
        for one, k in zip(each, below.tolist(), strict=True):
            # To select one place takes a quarter of the time of two; the next is the least behind.
            one.partition(k)
            one[k + 1 : k + 2] = one[k + 1 :].min(initial=np.inf)
    else:
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            # In place; one sort by backend and value takes ten times as long.
            grouped[start : start + size].sort()
        mean = np.add.reduceat(grouped, starts) / sizes
    low, high = grouped[starts + below], grouped[starts + above]
    step, part = high - low, rank - below
    return np.where(part < 0.5, low + step * part, high - step * (1.0 - part)), mean


class ClosedWindow(NamedTuple):
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


@dataclass(frozen=True, slots=True, eq=False)
class ClosedWindows(Mapping[str, ClosedWindow]):
    """The tick of all backends by name; in columns (n,), in which NaN is what is not known.

    Attributes
    ----------
    rows
        Of each backend, by name.
    requests, errors, t_x_ms, t_mean_ms, t_c_ms, t_x_requests
        As a :class:`ClosedWindow` has them.
    connections
        How many new connections T_c rests on, or would if there were enough.
    enough
        How many that is.
    """

    rows: Mapping[str, int]
    requests: NDArray[np.int64]
    errors: NDArray[np.int64]
    t_x_ms: NDArray[np.float64]
    t_mean_ms: NDArray[np.float64]
    t_c_ms: NDArray[np.float64]
    t_x_requests: NDArray[np.int64]
    connections: NDArray[np.int64]
    enough: int

    def __getitem__(self, name: str) -> ClosedWindow:
        return self.window(self.rows[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def window(self, row: int) -> ClosedWindow:
        """Of the backend in a row."""
        few = _too_few(int(self.t_x_requests[row]), "requests since the last T_x", self.enough)
        few_connections = _too_few(int(self.connections[row]), "new connections", self.enough)
        return ClosedWindow(
            int(self.requests[row]),
            int(self.errors[row]),
            _measured(self.t_x_ms[row], few),
            _measured(self.t_mean_ms[row], few),
            _measured(self.t_c_ms[row], few_connections),
            int(self.t_x_requests[row]),
        )


class RequestWindows:
    """Gathers batches; closes one window per backend and tick.

    Parameters
    ----------
    percentile : x of T_x and T_c, in percent.
    min_requests : fewest successful requests a percentile may rest on.
    max_kept : latencies, and connect times, used per backend; the newest.  Twice as many are
        held at most.
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
        self._number: dict[str, int] = {}
        self._names: tuple[str, ...] = ()
        self._latency_ms = _Times(max_kept)
        self._connect_ms = _Times(max_kept)
        self._requests = self._errors = np.zeros(0, np.int64)

    def add(self, batch: RequestBatch) -> None:
        """Take in finished requests; those of unknown backends are simply not asked for."""
        if not len(batch):
            return
        numbers = [self._number.setdefault(name, len(self._number)) for name in batch.names]
        backend = np.array(numbers, np.int64)[batch.backend]
        known, each = len(self._number), batch.stands_for
        failed = backend[batch.failed]
        self._requests = _added(self._requests, each * np.bincount(backend, minlength=known))
        self._errors = _added(self._errors, each * np.bincount(failed, minlength=known))
        measured = np.isfinite(batch.latency_ms) & ~batch.failed
        self._latency_ms.add(backend[measured], batch.latency_ms[measured])
        connected = np.isfinite(batch.connect_ms)
        self._connect_ms.add(backend[connected], batch.connect_ms[connected])

    def close(self, names: tuple[str, ...]) -> ClosedWindows:
        """Close this tick's windows of the named backends, and begin the next tick's."""
        rows, n = self._only(names), len(names)
        requests, errors = self._requests, self._errors
        self._requests, self._errors = np.zeros(n, np.int64), np.zeros(n, np.int64)
        latency = self._latency_ms.take(n, self._min_requests, self._percentile)
        connect = self._connect_ms.take(n, self._min_requests, self._percentile)
        return ClosedWindows(
            rows,
            requests,
            errors,
            latency.percentile,
            latency.mean,
            connect.percentile,
            latency.sizes,
            connect.sizes,
            max(self._min_requests, 1),
        )

    def has_enough(self, name: str) -> bool:
        """Whether the window of a backend would have a T_x, were it closed now."""
        number = self._number.get(name)
        return number is not None and self._latency_ms.size(number) >= max(self._min_requests, 1)

    def clear(self) -> None:
        """Forget all that was gathered."""
        self._number, self._names = {}, ()
        self._latency_ms.clear()
        self._connect_ms.clear()
        self._requests = self._errors = np.zeros(0, np.int64)

    def _only(self, names: tuple[str, ...]) -> dict[str, int]:
        """Number the backends as they are named here, and forget all others."""
        if names == self._names and len(names) == len(self._number):
            return {**self._number}
        numbers = {name: i for i, name in enumerate(names)}
        into = np.array([numbers.get(name, -1) for name in self._number], np.int64)
        stay = into >= 0
        for times in (self._latency_ms, self._connect_ms):
            times.renumber(into)
        requests, errors = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        requests[into[stay]], errors[into[stay]] = self._requests[stay], self._errors[stay]
        self._names, self._number = names, {**numbers}
        self._requests, self._errors = requests, errors
        return numbers


def _measured(value: float, few: NoData) -> Measured:
    return few if math.isnan(value) else float(value)


@lru_cache(maxsize=1024)
def _too_few(there: int, what: str, needed: int) -> NoData:
    return NoData(f"{there} {what}; {needed} are needed")


def _added(counts: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    more[: counts.size] += counts
    return more
