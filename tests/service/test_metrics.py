"""Series that come from elsewhere than the controller's own counters."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from dial.metrics import Metrics


def series(metrics: Metrics) -> list[str]:
    lines = metrics.exposition().decode().splitlines()
    return [line for line in lines if line.startswith("dial_adapter_events_total{")]


def test_what_an_adapter_counts_is_a_series_each_from_the_beginning() -> None:
    metrics = Metrics()
    adapter = SimpleNamespace(events=Counter(refused=0))
    metrics.watch(adapter)  # type: ignore[arg-type] # all that is asked of it
    assert series(metrics) == ['dial_adapter_events_total{event="refused"} 0.0']
    adapter.events["refused"] += 2
    assert series(metrics) == ['dial_adapter_events_total{event="refused"} 2.0']


def test_an_adapter_that_counts_nothing_has_no_series() -> None:
    metrics = Metrics()
    metrics.watch(SimpleNamespace())  # type: ignore[arg-type]
    assert series(metrics) == []
