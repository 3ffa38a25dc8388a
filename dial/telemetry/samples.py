"""The samples that one agent sent within a tick, averaged into one."""

from __future__ import annotations

from collections.abc import Sequence

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
    merged = {name: _average(samples, name) for name in METRIC_NAMES}
    named = (s.top_resource for s in reversed(samples) if not isinstance(s.top_resource, NoData))
    return AgentSample(
        at_s=newest.at_s,
        interval_s=sum(s.interval_s for s in samples),
        top_resource=next(named, newest.top_resource),
        **merged,
    )


def _average(samples: Sequence[AgentSample], name: str) -> Measured:
    weighted = covered_s = 0.0
    reason = NoData("not sent")
    for sample in samples:
        value: Measured = getattr(sample, name)
        if isinstance(value, NoData):
            reason = value
        else:
            weighted += value * sample.interval_s
            covered_s += sample.interval_s
    return weighted / covered_s if covered_s > 0.0 else reason
