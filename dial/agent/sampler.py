"""From a set of collectors to one :class:`dial.types.AgentSample` an interval.

Every collector is timed on its own.  On a contended machine, which is when samples
matter, the agent may lose the CPU for a tenth of a second between two collectors; with
one time for all of them that would show as a burst of a tenth.

A collector that fails takes nothing with it but its own metrics, for this interval and
the next (a rate needs two readings).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from dial.agent.counters import Collector, ReadingT
from dial.agent.files import Unavailable
from dial.types import METRIC_NAMES, AgentSample, Measured, Named, NoData

_log = logging.getLogger(__name__)

_UNSUPPORTED = NoData("this agent does not measure it")


class _Timed(Generic[ReadingT]):
    """A collector, its last reading and when that was taken."""

    def __init__(self, collector: Collector[ReadingT]) -> None:
        self._collector = collector
        self._last: tuple[float, ReadingT] | NoData = NoData("first reading: a rate needs two")
        self._complained = False

    def advance(self, monotonic_s: Callable[[], float]) -> Mapping[str, Measured | Named]:
        """Take a reading and say what it makes with the last one."""
        before = self._last
        try:
            at_s, reading = monotonic_s(), self._collector.read()
            self._last = (at_s, reading)
            if not isinstance(before, NoData):
                return self._collector.rates(before[1], reading, at_s - before[0])
            reason = before
        except Unavailable as error:
            reason = self._last = NoData(str(error))
        # A defect in one collector, met on a kernel nobody tried, must not blind the others.
        except Exception as error:  # noqa: BLE001 - see above; it is logged once and reported
            reason = self._last = NoData(f"defect in the agent: {type(error).__name__}: {error}")
            if not self._complained:
                self._complained = True
                _log.exception("%s failed", type(self._collector).__name__)
        return dict.fromkeys(self._collector.metrics, reason)


class Sampler:
    """Takes samples.

    Parameters
    ----------
    collectors
        What is measured; each answers for other metrics.
    absent
        Metrics that this scope cannot have, and why.
    now_s, monotonic_s
        The wall clock, and one that never steps.
    """

    def __init__(
        self,
        collectors: Sequence[Collector[Any]],
        absent: Mapping[str, NoData],
        now_s: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._collectors = [_Timed(collector) for collector in collectors]
        self._absent = absent
        self._now_s = now_s
        self._monotonic_s = monotonic_s
        self._last_s: float | None = None

    def take(self) -> AgentSample | None:
        """Take readings, and make a sample of them and the last ones.

        Returns
        -------
        AgentSample or None
            ``None`` the first time: one reading makes no rate.
        """
        at_s, monotonic_s = self._now_s(), self._monotonic_s()
        found: dict[str, Any] = dict.fromkeys((*METRIC_NAMES, "top_resource"), _UNSUPPORTED)
        found.update(self._absent)
        for collector in self._collectors:
            found.update(collector.advance(self._monotonic_s))
        last_s, self._last_s = self._last_s, monotonic_s
        if last_s is None or monotonic_s <= last_s:
            return None
        return AgentSample(at_s=at_s, interval_s=monotonic_s - last_s, **found)
