"""From a VM's metrics to features that do not move with the tenant's own load.

Problem
    Twice the requests need twice the CPU time: a metric says nothing of a neighbour until
    it is compared with what the present load explains.

Formula
    For a metric y that load explains (CPU time in user and system mode), learnt in quiet
    intervals,

        y_predicted = alpha + beta n,     feature = y / y_predicted

    with n the request rate, alpha and beta non-negative.  For a metric that is near 0 in
    quiet times (waiting, retransmits), a ratio would divide by nothing; the feature is the
    difference from its quiet mean.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.2 (normalising by a linear prediction) and 4.3.1
    (the metrics usr, sys, wai, seg_ret, T_c).

Departures
    * alpha and beta are non-negative and learnt online from sufficient statistics: five
      sums instead of a training run.  Where the load never swings, the slope cannot be
      told from the intercept; then all is slope (y ~ n), the utilisation law.
    * Signals past the paper's five: CPU time denied (steal and run-queue wait), I/O
      pressure, own throttling.
    * A missing metric is ``NoData`` and its feature too; the tree decides what then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from dial.types import AgentSample, Measured, NoData, RequestWindow

FEATURES: dict[str, str] = {
    "requests_ratio": "request rate / its quiet mean",
    "errors_fraction": "requests that failed / requests",
    "usr_ratio": "user CPU time / predicted from the request rate",
    "sys_ratio": "system CPU time / predicted from the request rate",
    "iowait_excess_cores": "CPUs idle while waiting for the disk, above the quiet mean",
    "io_pressure_excess": "fraction of time some task waited for I/O, above the quiet mean",
    "retransmit_fraction": "TCP segments retransmitted / segments sent",
    "t_c_ratio": "T_c, the tail of the connect time, / its quiet mean",
    "cpu_denied_excess_cores": "CPU time wanted and not given (steal and run-queue wait, CPU "
    "seconds a second), above the quiet mean",
    "throttled_fraction": "periods in which the VM's own CPU quota throttled it / periods",
}
"""Name and meaning of each feature, in the order a model's feature list must have."""


@dataclass(frozen=True, slots=True)
class Line:
    """A fading non-negative least-squares line y = alpha + beta n, as its five sums."""

    weight: float = 0.0
    sum_n: float = 0.0
    sum_nn: float = 0.0
    sum_y: float = 0.0
    sum_ny: float = 0.0

    def learn(self, n: float, y: float, fade: float) -> Line:
        """Add the point (n, y); older points count ``fade`` of what they did."""
        return Line(
            self.weight * fade + 1.0,
            self.sum_n * fade + n,
            self.sum_nn * fade + n * n,
            self.sum_y * fade + y,
            self.sum_ny * fade + n * y,
        )

    def predict(self, n: float) -> Measured:
        """The value of y at n, or why it cannot be told."""
        if self.weight == 0.0:
            return NoData("no quiet interval learnt")
        spread = self.weight * self.sum_nn - self.sum_n * self.sum_n
        # spread / sum_n^2 is the squared coefficient of variation of the load.  Below 3 % the
        # slope would be set by what the metric does for other reasons; Poisson arrivals alone
        # vary by 10 % at a hundred requests an interval.
        if spread > 1e-3 * self.sum_n * self.sum_n:
            beta = (self.weight * self.sum_ny - self.sum_n * self.sum_y) / spread
            alpha = (self.sum_y - beta * self.sum_n) / self.weight
            if beta <= 0.0:
                return self.sum_y / self.weight
            if alpha >= 0.0:
                return alpha + beta * n
        if self.sum_nn == 0.0:
            return self.sum_y / self.weight
        return self.sum_ny / self.sum_nn * n


@dataclass(frozen=True, slots=True)
class Mean:
    """A fading mean."""

    weight: float = 0.0
    sum_y: float = 0.0

    def learn(self, y: float, fade: float) -> Mean:
        """Add ``y``; older values count ``fade`` of what they did."""
        return Mean(self.weight * fade + 1.0, self.sum_y * fade + y)

    def value(self) -> Measured:
        """The mean, or why there is none."""
        if self.weight == 0.0:
            return NoData("no quiet interval learnt")
        return self.sum_y / self.weight


@dataclass(frozen=True, slots=True)
class QuietBaseline:
    """What one backend's metrics were while nobody disturbed it.

    Immutable: :meth:`learn` returns the next one.
    """

    usr: Line = field(default_factory=Line)
    sys: Line = field(default_factory=Line)
    requests: Mean = field(default_factory=Mean)
    t_c: Mean = field(default_factory=Mean)
    iowait: Mean = field(default_factory=Mean)
    io_pressure: Mean = field(default_factory=Mean)
    cpu_denied: Mean = field(default_factory=Mean)

    def learn(
        self, window: RequestWindow, sample: AgentSample | NoData, *, memory_intervals: int
    ) -> QuietBaseline:
        """Learn one quiet interval; metrics that are missing leave theirs unchanged."""
        fade = 1.0 - 1.0 / memory_intervals
        n = window.rate_per_s
        learnt: dict[str, Line | Mean] = {}
        for name, y in _metrics(window, sample).items():
            if isinstance(y, NoData):
                continue
            past: Line | Mean = getattr(self, name)
            learnt[name] = past.learn(n, y, fade) if isinstance(past, Line) else past.learn(y, fade)
        return replace(self, **learnt)  # type: ignore[arg-type]


def features(
    baseline: QuietBaseline, window: RequestWindow, sample: AgentSample | NoData
) -> dict[str, Measured]:
    """The features of one interval, by the names of :data:`FEATURES`.

    Parameters
    ----------
    baseline : the same backend's quiet past.
    window : its requests in the interval.
    sample : what its agent saw, or why there is none; then all features that need it are
        ``NoData`` with that reason.
    """
    now = _metrics(window, sample)
    n = window.rate_per_s
    found: dict[str, Measured] = {
        "requests_ratio": _ratio(now["requests"], baseline.requests.value()),
        "errors_fraction": (
            window.errors / window.requests if window.requests else NoData("no request ended")
        ),
        "usr_ratio": _ratio(now["usr"], baseline.usr.predict(n)),
        "sys_ratio": _ratio(now["sys"], baseline.sys.predict(n)),
        "iowait_excess_cores": _excess(now["iowait"], baseline.iowait.value()),
        "io_pressure_excess": _excess(now["io_pressure"], baseline.io_pressure.value()),
        "retransmit_fraction": sample
        if isinstance(sample, NoData)
        else _ratio(sample.tcp_retransmits_per_s, sample.tcp_segments_out_per_s),
        "t_c_ratio": _ratio(now["t_c"], baseline.t_c.value()),
        "cpu_denied_excess_cores": _excess(now["cpu_denied"], baseline.cpu_denied.value()),
        "throttled_fraction": sample if isinstance(sample, NoData) else sample.throttled_fraction,
    }
    return {name: found[name] for name in FEATURES}


def _metrics(window: RequestWindow, sample: AgentSample | NoData) -> dict[str, Measured]:
    """The raw metrics, by the names of :class:`QuietBaseline`'s fields."""
    outside: dict[str, Measured] = {"requests": window.rate_per_s, "t_c": window.t_c_ms}
    if isinstance(sample, NoData):
        inside: dict[str, Measured] = {
            f.name: sample for f in fields(QuietBaseline) if f.name not in outside
        }
    else:
        inside = {
            "usr": sample.cpu_usr_cores,
            "sys": sample.cpu_sys_cores,
            "iowait": sample.cpu_iowait_cores,
            "io_pressure": sample.psi_io_some_fraction,
            "cpu_denied": _sum_of_known(sample.cpu_steal_cores, sample.run_queue_wait_cores),
        }
    return outside | inside


def _sum_of_known(first: Measured, second: Measured) -> Measured:
    """Steal and run-queue wait never count the same time twice; one alone is a lower bound."""
    if isinstance(first, NoData):
        return second
    if isinstance(second, NoData):
        return first
    return first + second


def _ratio(observed: Measured, expected: Measured) -> Measured:
    if isinstance(observed, NoData):
        return observed
    if isinstance(expected, NoData):
        return expected
    if expected <= 0.0:
        return NoData("nothing was expected, so no ratio can be formed")
    return observed / expected


def _excess(observed: Measured, expected: Measured) -> Measured:
    if isinstance(observed, NoData):
        return observed
    if isinstance(expected, NoData):
        return expected
    return observed - expected
