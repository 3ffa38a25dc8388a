"""How fast each service is: from a log that it writes, or from a histogram that it shows.

A log's line says one time; a histogram's bucket says how many lay between two bounds.  Both
become :class:`Bucket`, a line's with equal bounds, so that one percentile serves both.

Half a second of a quiet service holds too few requests for a percentile.  So the latest
intervals are taken together until they hold enough, up to :data:`LONGEST_S`.
"""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dial.agent.files import Unavailable
from dial.types import Measured, NoData

LONGEST_S = 5.0
"""Ten decisions: what is older says little about the last one."""

_MOST_LOG_BYTES = 1 << 20
"""Of one interval's log.  Of a longer one the newest count; 1 MiB is some ten thousand lines."""

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(?P<name>[A-Za-z_]\w*)="(?P<value>(?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Bucket:
    """So many requests took more than ``above_ms`` and at most ``upto_ms``."""

    above_ms: float
    upto_ms: float
    requests: float


class Source(Protocol):
    """Where a service's latency comes from."""

    def poll(self) -> Sequence[Bucket]:
        """The requests that ended since the last call.

        Raises
        ------
        Unavailable
            If they cannot be had now.
        """


def percentile_ms(buckets: Iterable[Bucket], percentile: float) -> float:
    """Return the percentile, by linear interpolation within its bucket.

    Parameters
    ----------
    buckets
        At least one with a request in it.
    percentile
        0 to 100.

    Examples
    --------
    Ten up to 1 ms, ten more up to 3 ms: the 75th lies in the middle of the second.

    >>> percentile_ms([Bucket(0.0, 1.0, 10), Bucket(1.0, 3.0, 10)], 75.0)
    2.0
    """
    # The slow end of a histogram has no upper bound; what is known is that it is slower.
    ordered = sorted(
        (bucket for bucket in buckets if bucket.requests > 0.0), key=lambda bucket: bucket.upto_ms
    )
    rank = percentile / 100.0 * sum(bucket.requests for bucket in ordered)
    below = 0.0
    for bucket in ordered[:-1]:
        if below + bucket.requests >= rank:
            return _within(bucket, rank - below)
        below += bucket.requests
    return _within(ordered[-1], rank - below)


def _within(bucket: Bucket, requests: float) -> float:
    if math.isinf(bucket.upto_ms):
        return bucket.above_ms
    part = min(1.0, requests / bucket.requests)
    return bucket.above_ms + (bucket.upto_ms - bucket.above_ms) * part


def least_requests(percentile: float) -> int:
    """How many requests a percentile needs: one at least beyond it.

    Examples
    --------
    >>> least_requests(95.0)
    20
    """
    return math.ceil(round(100.0 / (100.0 - percentile), 6))


@dataclass
class Window:
    """The latest intervals of one service."""

    percentile: float
    _intervals: deque[tuple[float, Sequence[Bucket]]] = field(default_factory=deque)

    def add(self, now_s: float, buckets: Sequence[Bucket]) -> None:
        """Add an interval that ended at ``now_s``, by a clock that never steps."""
        self._intervals.append((now_s, buckets))
        while now_s - self._intervals[0][0] >= LONGEST_S:
            self._intervals.popleft()

    def latency_ms(self) -> Measured:
        """The percentile over as few of them as hold enough requests."""
        taken: list[Bucket] = []
        enough = least_requests(self.percentile)
        for _, buckets in reversed(self._intervals):
            taken.extend(buckets)
            if sum(bucket.requests for bucket in taken) >= enough:
                return percentile_ms(taken, self.percentile)
        return NoData(f"fewer than {enough} requests ended in {LONGEST_S:g} s")


class Log:
    """A log whose lines hold a time in one of their fields.

    Read from its end on; a new file under the name (rotation) is read from its start, and so is
    one that was cut.  A line without a number there is no request.

    Parameters
    ----------
    path
        Of the file.
    field
        Which one, from 1, of those between separators.
    separator
        Between fields; ``None`` for blanks.
    unit_ms
        How many milliseconds one of the log's units is.
    """

    def __init__(self, path: str, field: int, separator: str | None, unit_ms: float) -> None:
        self._path = path
        self._field = field
        self._separator = separator
        self._unit_ms = unit_ms
        self._inode: int | None = None
        self._at = 0
        self._rest = b""

    def poll(self) -> Sequence[Bucket]:
        """See :meth:`Source.poll`; the first call finds the end and returns nothing."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error
        try:
            text = self._new_bytes(descriptor)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error
        finally:
            os.close(descriptor)
        *lines, rest = (self._rest + text).split(b"\n")
        # A line of that length is none; what is left of it must not be taken for one either.
        self._rest = rest if len(rest) < _MOST_LOG_BYTES else b"\0"
        return [Bucket(ms, ms, 1.0) for line in lines if (ms := self._time_ms(line)) is not None]

    def _new_bytes(self, descriptor: int) -> bytes:
        status = os.fstat(descriptor)
        if self._inode is None:
            self._inode, self._at = status.st_ino, status.st_size
            return b""
        if status.st_ino != self._inode or status.st_size < self._at:
            self._inode, self._at, self._rest = status.st_ino, 0, b""
        if status.st_size - self._at > _MOST_LOG_BYTES:
            self._at, self._rest = status.st_size - _MOST_LOG_BYTES, b"\0"
        text = os.pread(descriptor, status.st_size - self._at, self._at)
        self._at += len(text)
        return text

    def _time_ms(self, line: bytes) -> float | None:
        if line.startswith(b"\0"):  # the end of a line whose beginning was passed over
            return None
        fields = line.decode("utf-8", "replace").split(self._separator)
        try:
            value = float(fields[self._field - 1]) * self._unit_ms
        except (IndexError, ValueError):
            return None
        return value if math.isfinite(value) and value >= 0.0 else None


class Histogram:
    """A histogram on a metrics endpoint in Prometheus' text format, of service or balancer.

    Parameters
    ----------
    fetch
        Returns the endpoint's text; raises :class:`Unavailable`.
    name
        Of the histogram, without ``_bucket``.
    labels
        That a series must have to count; all such series are summed.
    unit_ms
        How many milliseconds one of the histogram's units is; Prometheus' are seconds.
    """

    def __init__(
        self,
        fetch: Callable[[], str],
        name: str,
        labels: Mapping[str, str],
        unit_ms: float,
    ) -> None:
        self._fetch = fetch
        self._name = f"{name}_bucket"
        self._labels = labels
        self._unit_ms = unit_ms
        self._last: dict[float, float] | None = None

    def poll(self) -> Sequence[Bucket]:
        """See :meth:`Source.poll`; the first call, and one after a restart, returns nothing."""
        counts = self._counts(self._fetch())
        if not counts:
            raise Unavailable(f"the metrics endpoint shows no {self._name} with these labels")
        last, self._last = self._last, counts
        if last is None or any(counts[bound] < last.get(bound, 0.0) for bound in counts):
            return []
        buckets, above, below = [], 0.0, 0.0
        for bound in sorted(counts):
            grown = counts[bound] - last.get(bound, 0.0)
            buckets.append(Bucket(above * self._unit_ms, bound * self._unit_ms, grown - below))
            above, below = bound, grown
        return [bucket for bucket in buckets if bucket.requests > 0.0]

    def _counts(self, text: str) -> dict[float, float]:
        """Cumulative counts by upper bound."""
        counts: dict[float, float] = {}
        for line in text.splitlines():
            if not line.startswith(self._name) or (match := _SAMPLE.match(line)) is None:
                continue
            if match["name"] != self._name:
                continue
            labels = {m["name"]: m["value"] for m in _LABEL.finditer(match["labels"] or "")}
            if any(labels.get(name) != value for name, value in self._labels.items()):
                continue
            try:
                bound, count = float(labels.get("le", "")), float(match["value"])
            except ValueError:
                continue
            if math.isfinite(count) and not math.isnan(bound):
                counts[bound] = counts.get(bound, 0.0) + count
        return counts
