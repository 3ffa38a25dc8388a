"""Every metric of the controller, in one registry of its own.

Two kinds live here.  *Events* are counted where they happen (``metrics.ticks.inc()``).
*States* (weights, estimates, verdicts) are read from the newest snapshot when somebody
scrapes, not written every tick: with ten thousand backends that would be work in the
control loop for nobody, and a backend that has left, or an estimate that is ``NoData``,
would leave a stale series behind.  An absent value is an absent series, never 0.

Names carry base units (seconds, ratios from 0 to 1), as Prometheus asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dial import __version__
from dial.adapter import Adapter, CountsEvents
from dial.controller.snapshot import Snapshot
from dial.intake.inbox import Receipt
from dial.intake.samples import REASONS
from dial.types import Action, Measured, Mode, NoData

_TICK_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From the tick of a handful of backends (about 1 ms) to the default interval."""


class Metrics:
    """The controller's metrics and the registry that owns them."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        self.samples_accepted = counter(
            "dial_samples_accepted_total", "Samples of agents that were taken in."
        )
        self.sample_batches_refused = counter(
            "dial_sample_batches_refused_total",
            "Posts of agents that were refused whole, by reason.",
            "reason",
        )
        self.samples_dropped = counter(
            "dial_samples_dropped_total",
            "Samples that were fit to use but not used: a duplicate, superseded by another agent "
            "of the same backend, or evicted because no tick took them in time.",
            "reason",
        )
        self.sample_metrics_unknown = counter(
            "dial_sample_metrics_unknown_total",
            "Metrics in samples that this version does not know (newer agents).",
        )
        self.agent_changes = counter(
            "dial_agent_changes_total",
            "Times another agent spoke for a backend; a steady rise means that two agents claim "
            "the same backend.",
        )
        self.log_lines_malformed = counter(
            "dial_log_lines_malformed_total",
            "Lines of the load balancer's log that could not be read.",
        )
        self.log_requests_unattributed = counter(
            "dial_log_requests_unattributed_total",
            "Logged requests that reached no backend of the service.",
        )
        self.log_requests_dropped = counter(
            "dial_log_requests_dropped_total",
            "Logged requests that were forgotten because the controller could not keep up.",
        )
        self.ticks = counter("dial_ticks_total", "Ticks of the control loop.")
        self.tick_duration = Histogram(
            "dial_tick_duration_seconds",
            "Time from the end of an interval to its plan applied.",
            registry=self.registry,
            buckets=_TICK_BUCKETS_S,
        )
        self.plans = counter("dial_plans_total", "Plans made, by what they do.", "action")
        self.weight_writes = counter(
            "dial_weight_writes_total",
            "Weights written to the load balancer, by whether they were read back as asked.",
            "result",
        )
        self.balancer_unreachable = counter(
            "dial_balancer_unreachable_total",
            "Times the load balancer could not be read or written.",
        )
        self.lease_failures = counter(
            "dial_lease_failures_total",
            "Times the lease could not be written, so that no weights were either.",
        )
        self.lease_lapses = counter(
            "dial_lease_lapses_total",
            "Times no tick was completed for as long as a lease lasts (a hung process, a machine "
            "that slept, a balancer that was away), after which the controller began again.",
        )
        self.requests_limited = counter(
            "dial_api_requests_limited_total",
            "Requests to the service that were refused because an address sent too many.",
        )
        self.streams = Gauge(
            "dial_api_streams",
            "Live streams that are open (dashboards).",
            registry=self.registry,
        )
        self.stream_skips = counter(
            "dial_api_stream_skips_total",
            "Ticks that a live stream left out because its reader was too slow for them.",
        )
        # A labelled series that appears with its first event hides that event from rate().
        for reason in REASONS:
            self.sample_batches_refused.labels(reason)
        for reason in ("duplicate", "superseded", "evicted"):
            self.samples_dropped.labels(reason)
        for action in Action:
            self.plans.labels(action.value)
        for result in ("ok", "failed"):
            self.weight_writes.labels(result)

        self._states = _SnapshotCollector()
        self.registry.register(self._states)
        self._adapter = _AdapterCollector()
        self.registry.register(self._adapter)

    def count_receipt(self, receipt: Receipt) -> None:
        """Count what became of a post that was not refused."""
        self.samples_accepted.inc(receipt.accepted)
        self.samples_dropped.labels("duplicate").inc(receipt.duplicates)
        self.samples_dropped.labels("superseded").inc(receipt.superseded)
        self.samples_dropped.labels("evicted").inc(receipt.evicted)
        self.sample_metrics_unknown.inc(receipt.unknown_metrics)
        self.agent_changes.inc(int(receipt.agent_changed))

    def show(self, snapshot: Snapshot) -> None:
        """Make ``snapshot`` the one whose weights, estimates and verdicts are scraped."""
        self._states.snapshot = snapshot

    def watch(self, adapter: Adapter) -> None:
        """Show what the adapter counts, if it counts anything."""
        if isinstance(adapter, CountsEvents):
            self._adapter.events = adapter.events

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _SnapshotCollector(Collector):
    """Turns the newest snapshot into series at scrape time."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            "dial_build", "The controller's version.", value={"version": __version__}
        )
        mode = GaugeMetricFamily(
            "dial_mode", "1 for the mode in force, 0 for the others.", labels=["mode"]
        )
        weight = _per_backend("dial_backend_weight", "Weight in force at the load balancer.")
        t_x = _per_backend(
            "dial_backend_response_time_seconds",
            "T_x: the configured percentile of the response time in the last interval.",
        )
        expected = _per_backend(
            "dial_backend_expected_response_time_seconds",
            "What T_x was expected to be at most, at this load.",
        )
        rho_bg = _per_backend(
            "dial_backend_rho_bg_ratio",
            "Share of the contended resource's capacity lost to a neighbour, estimated.",
        )
        verdict = _per_backend(
            "dial_backend_verdict",
            "1 for the cause held responsible for the backend's slowness (none: it is not slow).",
            "cause",
        )
        if self.snapshot is not None:
            for each in Mode:
                mode.add_metric([each.value], float(each is self.snapshot.mode))
            if self.snapshot.observation is not None:
                for seen in self.snapshot.observation.backends:
                    weight.add_metric([seen.name], seen.server.weight)
                    _add(t_x, seen.name, seen.window.t_x_ms, scale=1e-3)
            if self.snapshot.plan is not None:
                for planned in self.snapshot.plan.backends:
                    _add(expected, planned.name, planned.verdict.expected_t_x_ms, scale=1e-3)
                    _add(rho_bg, planned.name, planned.verdict.rho_bg)
                    verdict.add_metric([planned.name, planned.verdict.cause.value], 1.0)
        yield from (mode, weight, t_x, expected, rho_bg, verdict)


class _AdapterCollector(Collector):
    """Turns an adapter's own counts into one series each at scrape time."""

    def __init__(self) -> None:
        self.events: Mapping[str, int] = {}

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "dial_adapter_events",
            "What the adapter turned away or could not do, by kind (its own guide lists them).",
            labels=["event"],
        )
        for event, count in sorted(self.events.items()):
            family.add_metric([event], float(count))
        yield family


def _per_backend(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["backend", *labels])


def _add(family: GaugeMetricFamily, backend: str, value: Measured, scale: float = 1.0) -> None:
    if not isinstance(value, NoData):
        family.add_metric([backend], value * scale)
