"""Response times in buckets: small, exact to a known relative error, and sums merge.

Problem
    The percentile of a service behind several balancers is that of all its requests together.  No
    balancer's percentile says what it is, and sending every response time costs as much as the log.

Formula
    With gamma = (1 + alpha) / (1 - alpha), a time x falls into bucket i = ceil(log_gamma(x)) and is
    read back as 2 gamma^i / (gamma + 1), which is off by at most alpha, relatively.  Counts of
    equal buckets add up, so a merged percentile has the same bound: every order statistic is within
    alpha of the true one, and so is whatever lies between two of them.

Regimes
    Few requests: a bucket each, no larger than the times themselves.  Many: at most
    ln(1 hour / 1 microsecond) / ln(gamma) = 2,201 buckets a backend, whatever the rate.

Source
    Masson, Rim, Lee, "DDSketch", VLDB 2019, with buckets that are never collapsed: the times of a
    balancer's log are bounded on both sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dial.adapter import RequestBatch

ALPHA = 0.005
"""Largest relative error of a time.  That of T_x by sampling alone is some 0.05 at 400 requests."""

LEAST_MS = 1e-3
LARGEST_MS = 3.6e6
"""A microsecond, the finest that a log knows, and an hour; what lies beyond is taken as these."""

_GAMMA = (1.0 + ALPHA) / (1.0 - ALPHA)
_LN_GAMMA = math.log(_GAMMA)
_FIRST = math.ceil(math.log(LEAST_MS) / _LN_GAMMA)
BUCKETS = math.ceil(math.log(LARGEST_MS) / _LN_GAMMA) - _FIRST + 1
"""Number of buckets, numbered from 0."""

_COMPACT_ROWS = 1_000_000
"""Rows gathered before equal ones are added up: 16 MB."""


def buckets(times_ms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bucket of each time: int64[n], 0 to ``BUCKETS`` - 1."""
    within = np.clip(times_ms, LEAST_MS, LARGEST_MS)
    # A time on a bucket's edge may fall to either side by rounding, both of which are near enough.
    found = np.ceil(np.log(within) / _LN_GAMMA).astype(np.int64) - _FIRST
    return np.clip(found, 0, BUCKETS - 1)


def times_ms(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """The time that stands for each bucket: float64[n]."""
    standing: NDArray[np.float64] = 2.0 / (_GAMMA + 1.0) * np.exp(_LN_GAMMA * (numbers + _FIRST))
    return standing


@dataclass(frozen=True, slots=True)
class Sketch:
    """Counts by bucket, of the buckets that have any: two int64[k], buckets ascending."""

    bucket: NDArray[np.int64]
    count: NDArray[np.int64]

    def times_ms(self) -> NDArray[np.float64]:
        """A time for each request in it: float64[sum of counts], ascending."""
        return np.repeat(times_ms(self.bucket), self.count)


@dataclass(frozen=True, slots=True)
class SketchedWindow:
    """One backend's requests of one interval at one balancer."""

    requests: int
    errors: int
    latency: Sketch
    """Of the requests that succeeded and were measured."""
    connect: Sketch
    """Of new connections."""


@dataclass(slots=True)
class _Counts:
    """Counts by (backend, bucket), gathered as keys and added up when there are many."""

    keys: list[NDArray[np.int64]] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)
    rows: int = 0

    def add(self, backend: NDArray[np.int64], values_ms: NDArray[np.float64]) -> None:
        keys, counts = np.unique(backend * BUCKETS + buckets(values_ms), return_counts=True)
        self.keys.append(keys)
        self.counts.append(counts)
        self.rows += keys.size
        if self.rows > _COMPACT_ROWS:
            keys, counts = self.sums()
            self.keys, self.counts, self.rows = [keys], [counts], keys.size

    def sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        keys = np.concatenate([np.empty(0, np.int64), *self.keys])
        counts = np.concatenate([np.empty(0, np.int64), *self.counts])
        found, place = np.unique(keys, return_inverse=True)
        return found, np.bincount(place, counts, found.size).astype(np.int64)

    def of_each(self, backends: int) -> list[Sketch]:
        keys, counts = self.sums()
        ends = np.searchsorted(keys, np.arange(backends + 1) * BUCKETS)
        bucket = keys % BUCKETS
        return [Sketch(bucket[a:b], counts[a:b]) for a, b in pairwise(ends)]


class SketchedWindows:
    """Gathers batches; closes one sketched window per backend and interval.  Never raises."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._latency, self._connect = _Counts(), _Counts()
        self._requests = np.zeros(len(self._index), np.int64)
        self._errors = np.zeros(len(self._index), np.int64)

    def add(self, batch: RequestBatch) -> None:
        """Take in finished requests."""
        if not len(batch):
            return
        ours = np.array([self._index.setdefault(n, len(self._index)) for n in batch.names])
        backend = ours[batch.backend]
        known, each = len(self._index), batch.stands_for
        ended = np.bincount(backend, minlength=known)
        self._requests = _grown(self._requests, known) + each * ended
        failed = np.bincount(backend[batch.failed], minlength=known)
        self._errors = _grown(self._errors, known) + each * failed
        timed = np.isfinite(batch.latency_ms) & ~batch.failed
        self._latency.add(backend[timed], batch.latency_ms[timed])
        connected = np.isfinite(batch.connect_ms)
        self._connect.add(backend[connected], batch.connect_ms[connected])

    def close(self, names: tuple[str, ...]) -> list[SketchedWindow]:
        """The interval's windows of the named backends, and begin the next interval's.

        Backends that are not named are forgotten: a balancer's log may name any number.
        """
        known = len(self._index)
        latency, connect = self._latency.of_each(known), self._connect.of_each(known)
        requests, errors = self._requests.tolist(), self._errors.tolist()
        closed = [
            SketchedWindow(requests[i], errors[i], latency[i], connect[i])
            if (i := self._index.get(name)) is not None
            else _EMPTY_WINDOW
            for name in names
        ]
        self._index = {name: i for i, name in enumerate(names)}
        self._clear()
        return closed


_EMPTY = Sketch(np.empty(0, np.int64), np.empty(0, np.int64))
_EMPTY_WINDOW = SketchedWindow(0, 0, _EMPTY, _EMPTY)


def _grown(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(size - counts.size, np.int64)])


def as_batch(names: tuple[str, ...], windows: list[SketchedWindow]) -> RequestBatch:
    """The requests that windows stand for, such that they add up and sort as the true ones do.

    Which request had which time is not known any more, and nobody asks: counts, errors and
    percentiles are what they were.
    """
    sizes = np.array([window.requests for window in windows], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    total = int(starts[-1])
    latency_ms, connect_ms = np.full(total, np.nan), np.full(total, np.nan)
    failed = np.zeros(total, np.bool_)
    for start, window in zip(starts.tolist(), windows, strict=False):
        end = start + window.requests
        failed[start : start + window.errors] = True
        times = window.latency.times_ms()
        latency_ms[end - times.size : end] = times
        connects = window.connect.times_ms()
        connect_ms[end - connects.size : end] = connects
    return RequestBatch(
        names=names,
        backend=np.repeat(np.arange(len(windows), dtype=np.int32), sizes),
        end_s=np.full(total, np.nan),
        latency_ms=latency_ms,
        connect_ms=connect_ms,
        failed=failed,
    )
