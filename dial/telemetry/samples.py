"""The samples that one agent sent within a tick, averaged into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from dial.types import METRIC_NAMES, AgentSample, Measured, NoData


def merge_samples(samples: Sequence[AgentSample]) -> AgentSample | NoData:
    """Average samples, each weighted by the time it covers.

    A metric that some samples lack is averaged over those that have it; where all lack
    it, the newest reason stands.  What was waited for most is the newest sample's word.

    Parameters
    ----------
    samples : oldest first; none at all gives ``NoData``.
    """
    if not samples:
        return NoData("no sample from an agent in this tick")
    newest = samples[-1]
    if len(samples) == 1:
        return newest
    intervals_s = [sample.interval_s for sample in samples]
    columns = zip(*map(_METRICS, samples), strict=True)
    merged = {
        name: _average(values, intervals_s)
        for name, values in zip(METRIC_NAMES, columns, strict=True)
    }
    named = (s.top_resource for s in reversed(samples) if not isinstance(s.top_resource, NoData))
    return AgentSample(
        at_s=newest.at_s,
        interval_s=sum(intervals_s),
        top_resource=next(named, newest.top_resource),
        **merged,
    )


_METRICS: Callable[[AgentSample], tuple[Measured, ...]] = attrgetter(*METRIC_NAMES)
"""All metrics of a sample at once: with ten thousand backends they are half a million."""


def _average(values: Sequence[Measured], intervals_s: Sequence[float]) -> Measured:
    weighted = covered_s = 0.0
    reason: Measured | None = None
    for value, interval_s in zip(values, intervals_s, strict=True):
        if isinstance(value, NoData):
            reason = value
        else:
            weighted += value * interval_s
            covered_s += interval_s
    if covered_s > 0.0:
        return weighted / covered_s
    return NoData("not sent") if reason is None else reason
