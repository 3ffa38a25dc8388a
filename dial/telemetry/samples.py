"""The samples that one agent sent within a tick, averaged into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter

import numpy as np

from dial.columns import ByName, Floats, attribute
from dial.seen import SAMPLE_NAMES
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
"""All metrics of a sample at once, of which there are dozens."""


def merged_columns(samples: Sequence[Sequence[AgentSample]]) -> ByName:
    """The same of n agents at once, a column (n,) of each of ``SAMPLE_NAMES``, to the last bit.

    Parameters
    ----------
    samples : of each agent, oldest first.
    """
    n, flat = len(samples), [*chain.from_iterable(samples)]
    counts = np.fromiter(map(len, samples), np.int64, n)
    agent, alone = np.repeat(np.arange(n), counts), counts == 1
    is_alone, several = alone[agent], not alone.all()
    intervals_s = attribute(flat, "interval_s") if several else np.empty(0)

    def merged(name: str) -> Floats:
        if name == "cpu_time_cores":
            return _cpu_time_cores(columns)
        values = attribute(flat, name)
        if not several:
            return values
        if name == "interval_s":
            return np.where(counts > 0, np.bincount(agent, values, n), np.nan)
        known = ~np.isnan(values)
        of, covers_s = agent[known], intervals_s[known]
        covered_s = np.bincount(of, covers_s, n)
        weighted = np.bincount(of, values[known] * covers_s, n)
        found: Floats = weighted / np.where(covered_s > 0.0, covered_s, np.nan)
        found[alone] = values[is_alone]
        return found

    columns = ByName(
        SAMPLE_NAMES, merged, lambda rows: merged_columns([samples[row] for row in rows])
    )
    return columns


def _cpu_time_cores(samples: ByName) -> Floats:
    """As :attr:`dial.types.AgentSample.cpu_time_cores` has it."""
    used = samples["cpu_usr_cores"] + samples["cpu_sys_cores"]
    packets, shown = samples["net_softirq_cores"], samples["net_softirq_shown_cores"]
    with_packets = np.maximum(0.0, used + packets - np.where(np.isnan(shown), 0.0, shown))
    return np.where(np.isnan(packets), used, with_packets)


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
