"""From a VM's metrics to features that do not move with the tenant's own load.

Problem
    Twice the requests need twice the CPU time: a metric says nothing of a neighbour until
    it is compared with what the present load explains.

Formula
    For a metric y that load explains (CPU time, waiting for the disk, the connect time), learnt in
    quiet intervals,

        y_predicted = alpha + beta n,     feature = (y + e) / (y_predicted + e)

    with n the requests served a second (work is done for what is served, not for what
    waits), alpha and beta non-negative, and e the least of y that means anything: where next
    to nothing is predicted, next to nothing measured is no news.  For a metric that load does
    not explain (the memory's latency) the prediction is the quiet mean.  T_c is a time of waiting,
    so besides going with n it goes with 1/(1 - rho_fg), as T_x does.  For one that is
    a fraction already and near 0 in quiet times the feature is the difference from its quiet
    mean.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.2 (normalising by a linear prediction) and 4.3.1
    (the metrics usr, sys, wai, seg_ret, T_c).

Departures
    * alpha and beta are non-negative and learnt online from sufficient statistics: five
      sums instead of a training run.  Where the load never swings, the slope cannot be
      told from the intercept; then all is slope (y ~ n), the utilisation law.
    * User and system time are one metric: a neighbour in the cache slows both.
    * Signals past the paper's five: CPU time waited for (steal, gaps in the kernel's accounts,
      run-queue wait), I/O pressure, how busy the disk is, the memory's latency, own throttling.
    * All are free of the VM's size: what took 0.1 core of a small VM takes 1 of a large one.
    * Of a resource's busy fraction b the odds b / (1 - b) are compared, which are the mean
      number of jobs there (M/M/1): from a disk that is busy half of the time to one that is
      busy all of the time b only doubles.
    * A missing metric is ``NoData`` and its feature too; the tree decides what then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from dial.classifier import own
from dial.queueing import idle_fraction
from dial.types import AgentSample, Measured, NoData, RequestWindow

_UNKNOWN = NoData("rho_fg is unknown")

FEATURES: dict[str, str] = {
    "requests_ratio": "request rate / its quiet mean",
    "errors_fraction": "requests that failed / requests",
    "cpu_time_ratio": "CPU time (user and system) / predicted from the requests served",
    "cpu_wait_excess": "CPU time wanted and not given (steal, time unaccounted for, run-queue "
    "wait) for each CPU second used, above the quiet mean",
    "throttled_excess": "fraction of periods in which the VM's own CPU quota throttled it, above "
    "the quiet mean",
    "iowait_ratio": "CPUs idle while waiting for the disk / predicted from the requests served",
    "io_pressure_odds_ratio": "odds that some task waits for I/O / predicted from the requests "
    "served",
    "disk_busy_odds_ratio": "odds that the disk is busy / predicted from the requests served",
    "retransmit_fraction": "TCP segments retransmitted / segments sent",
    "t_c_ratio": "T_c, the tail of the connect time, / predicted from the requests served",
    "memory_reload_ratio": "latency of memory that others could have evicted / its quiet mean",
}
"""Name and meaning of each feature, in the order a model's feature list must have."""

_IN_WORDS: dict[str, tuple[str, str]] = {
    "requests_ratio": ("request rate", "x"),
    "errors_fraction": ("failed requests", ""),
    "cpu_time_ratio": ("CPU time", "x"),
    "cpu_wait_excess": ("CPU wait above normal by", ""),
    "throttled_excess": ("throttling by its own quota above normal by", ""),
    "iowait_ratio": ("wait for the disk", "x"),
    "io_pressure_odds_ratio": ("I/O pressure", "x"),
    "disk_busy_odds_ratio": ("disk busy", "x"),
    "retransmit_fraction": ("TCP retransmits", ""),
    "t_c_ratio": ("connect time", "x"),
    "memory_reload_ratio": ("memory latency", "x"),
}
"""What a person calls each feature, and its unit: x is times what was predicted."""


def in_words(feature: str, value: float | None = None) -> str:
    """A feature, and its value where there is one, as the evidence names it.

    Examples
    --------
    >>> in_words("t_c_ratio", 6.07)
    'connect time 6.07x'
    """
    name, unit = _IN_WORDS[feature]
    return name if value is None else f"{name} {value:.3g}{unit}"


LEAST_CORES = 0.02
"""A sample of 1 s in ticks of 10 ms is off by 0.01 core; agents themselves take 0.001."""
LEAST_FRACTION = 0.02
"""Of time waiting: an idle system's own writing makes up to 0.01 of a 2 s interval."""
LEAST_IDLE_FRACTION = 0.02
"""Of time: what is busy all of an interval is not infinitely busy."""
LEAST_CONNECT_MS = 2.0
"""A log in whole milliseconds turns from 0 to 1 and back by chance."""
LEAST_RELOAD_NS = 5.0
"""Timing of a few hundred lines is off by that much."""
LEAST_SEGMENTS_PER_S = 10.0
"""So that one segment sent again by an idle VM is not a tenth of all."""


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
        # spread / sum_n^2 is the squared coefficient of variation of the load.  Below 10 %, which
        # Poisson arrivals alone make at a hundred requests an interval, the slope would be set by
        # what the metric does for other reasons.
        if spread > 1e-2 * self.sum_n * self.sum_n:
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

    cpu_time: Line = field(default_factory=Line)
    iowait: Line = field(default_factory=Line)
    io_pressure: Line = field(default_factory=Line)
    disk_busy: Line = field(default_factory=Line)
    t_c: Line = field(default_factory=Line)
    requests: Mean = field(default_factory=Mean)
    cpu_wait: Mean = field(default_factory=Mean)
    throttled: Mean = field(default_factory=Mean)
    memory_reload: Mean = field(default_factory=Mean)
    deferral: Mean = field(default_factory=Mean)
    own_services: Mean = field(default_factory=Mean)
    softirq: Line = field(default_factory=Line)

    def learn(
        self,
        window: RequestWindow,
        sample: AgentSample | NoData,
        rho_fg: Measured,
        *,
        memory_intervals: int,
    ) -> QuietBaseline:
        """Learn one quiet interval; metrics that are missing leave theirs unchanged."""
        fade = 1.0 - 1.0 / memory_intervals
        n = _served_per_s(window)
        learnt: dict[str, Line | Mean] = {}
        for name, y in _metrics(window, sample, rho_fg).items():
            if isinstance(y, NoData):
                continue
            past: Line | Mean = getattr(self, name)
            learnt[name] = past.learn(n, y, fade) if isinstance(past, Line) else past.learn(y, fade)
        return replace(self, **learnt)  # type: ignore[arg-type]


def features(
    baseline: QuietBaseline,
    window: RequestWindow,
    sample: AgentSample | NoData,
    rho_fg: Measured = _UNKNOWN,
) -> dict[str, Measured]:
    """The features of one interval, by the names of :data:`FEATURES`.

    Parameters
    ----------
    baseline : the same backend's quiet past.
    window : its requests in the interval.
    sample : what its agent saw, or why there is none; then all features that need it are
        ``NoData`` with that reason.
    rho_fg : the backend's own utilisation; without it T_c is taken as it is.
    """
    now = _metrics(window, sample, rho_fg)
    n = _served_per_s(window)
    found: dict[str, Measured] = {
        "requests_ratio": _ratio(now["requests"], baseline.requests.value(), 0.0),
        "errors_fraction": (
            window.errors / window.requests if window.requests else NoData("no request ended")
        ),
        "cpu_time_ratio": _ratio(now["cpu_time"], baseline.cpu_time.predict(n), LEAST_CORES),
        "cpu_wait_excess": _excess(now["cpu_wait"], baseline.cpu_wait.value()),
        "throttled_excess": _excess(now["throttled"], baseline.throttled.value()),
        "iowait_ratio": _ratio(now["iowait"], baseline.iowait.predict(n), LEAST_CORES),
        "io_pressure_odds_ratio": _ratio(
            _odds(now["io_pressure"]), _odds(baseline.io_pressure.predict(n)), LEAST_FRACTION
        ),
        "disk_busy_odds_ratio": _ratio(
            _odds(now["disk_busy"]), _odds(baseline.disk_busy.predict(n)), LEAST_FRACTION
        ),
        "retransmit_fraction": sample
        if isinstance(sample, NoData)
        else _per(
            sample.tcp_retransmits_per_s, sample.tcp_segments_out_per_s, LEAST_SEGMENTS_PER_S
        ),
        "t_c_ratio": _ratio(
            now["t_c"], baseline.t_c.predict(n), LEAST_CONNECT_MS * idle_fraction(rho_fg)
        ),
        "memory_reload_ratio": _ratio(
            now["memory_reload"], baseline.memory_reload.value(), LEAST_RELOAD_NS
        ),
    }
    return {name: found[name] for name in FEATURES}


def usual_softirq(baseline: QuietBaseline, window: RequestWindow) -> Measured:
    """The part of the CPU that packets take where nothing but the requests served sends any."""
    return baseline.softirq.predict(_served_per_s(window))


def _served_per_s(window: RequestWindow) -> float:
    served = window.served_per_s
    return window.rate_per_s if isinstance(served, NoData) else served


def _metrics(
    window: RequestWindow, sample: AgentSample | NoData, rho_fg: Measured
) -> dict[str, Measured]:
    """The raw metrics, by the names of :class:`QuietBaseline`'s fields."""
    t_c_ms = window.t_c_ms
    if not isinstance(t_c_ms, NoData):
        t_c_ms *= idle_fraction(rho_fg)
    outside: dict[str, Measured] = {"requests": window.rate_per_s, "t_c": t_c_ms}
    if isinstance(sample, NoData):
        inside: dict[str, Measured] = {
            f.name: sample for f in fields(QuietBaseline) if f.name not in outside
        }
    else:
        cpu_time = sample.cpu_time_cores
        waited = _sum_of_known(
            sample.cpu_steal_cores, sample.cpu_unaccounted_cores, sample.run_queue_wait_cores
        )
        inside = {
            "cpu_time": cpu_time,
            "cpu_wait": _per(waited, cpu_time, LEAST_CORES),
            "throttled": sample.throttled_fraction,
            "iowait": sample.cpu_iowait_cores,
            "io_pressure": sample.psi_io_some_fraction,
            "disk_busy": sample.disk_busy_fraction,
            "memory_reload": sample.memory_reload_ns,
            "deferral": sample.deferral_fraction,
            "own_services": own.part(sample.own_services_cores, sample),
            "softirq": own.part(sample.net_softirq_cores, sample),
        }
    return outside | inside


def _sum_of_known(*parts: Measured) -> Measured:
    """The sum of what is known, a lower bound; with nothing known, the last reason.

    Steal, time unaccounted for and run-queue wait never count the same time twice.
    """
    known = [part for part in parts if not isinstance(part, NoData)]
    return sum(known) if known else parts[-1]


def _ratio(observed: Measured, expected: Measured, least: float) -> Measured:
    """Both with the least that means anything added: 1 where nothing was expected nor seen."""
    if isinstance(observed, NoData):
        return observed
    if isinstance(expected, NoData):
        return expected
    if expected + least <= 0.0:
        return NoData("nothing was expected, so no ratio can be formed")
    return (observed + least) / (expected + least)


def _odds(fraction: Measured) -> Measured:
    """Busy over idle time; a prediction may lie above 1."""
    if isinstance(fraction, NoData):
        return fraction
    busy = min(fraction, 1.0)
    return busy / (1.0 - busy + LEAST_IDLE_FRACTION)


def _per(amount: Measured, of: Measured, least: float) -> Measured:
    """``amount`` for each unit of ``of``, held to be at least ``least``, which is positive."""
    if isinstance(amount, NoData):
        return amount
    if isinstance(of, NoData):
        return of
    return amount / (of + least)


def _excess(observed: Measured, expected: Measured) -> Measured:
    if isinstance(observed, NoData):
        return observed
    if isinstance(expected, NoData):
        return expected
    return observed - expected
