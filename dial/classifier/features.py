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

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dial.classifier import deferral, own
from dial.classifier.baseline import QuietBaseline
from dial.classifier.metrics import (
    LEAST_CORES,
    LEAST_FRACTION,
    SAMPLE_FIELDS,
    WAITS,
    WINDOW_FIELDS,
    Metrics,
)
from dial.columns import Floats, column, table
from dial.types import AgentSample, Measured, NoData, RequestWindow

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

OF_THE_LOG = frozenset({"requests_ratio", "errors_fraction", "t_c_ratio"})
"""Those that are of the interval's own requests; the others are of the agent's newest sample."""

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


LEAST_IDLE_FRACTION = 0.02
"""Of time: what is busy all of an interval is not infinitely busy."""
LEAST_CONNECT_MS = 2.0
"""A log in whole milliseconds turns from 0 to 1 and back by chance."""
LEAST_RELOAD_NS = 5.0
"""Timing of a few hundred lines is off by that much."""


_RATIOS = {
    "requests_ratio": ("requests", 0.0),
    "cpu_time_ratio": ("cpu_time", LEAST_CORES),
    "iowait_ratio": ("iowait", LEAST_CORES),
    "t_c_ratio": ("t_c", LEAST_CONNECT_MS),
    "memory_reload_ratio": ("memory_reload", LEAST_RELOAD_NS),
}
_ODDS = {"io_pressure_odds_ratio": "io_pressure", "disk_busy_odds_ratio": "disk_busy"}
_EXCESSES = {"cpu_wait_excess": "cpu_wait", "throttled_excess": "throttled"}
"""The metrics that are compared with their quiet past, and how."""

_LOST = {deferral.FEATURE: "deferral", own.OWN_SERVICES: "own_services", own.SOFTIRQ: "softirq"}
"""Those of which an excess over the quiet past is capacity lost to the tenant itself."""


Interval = tuple[RequestWindow, AgentSample | NoData]
"""What was observed of one backend."""


class Features(Mapping[str, Floats]):
    """The features of one interval by the names of :data:`FEATURES`, each made when asked for.

    They are (n,); NaN where one is missing (:class:`FeaturesOfOne` says why).  Those of
    :mod:`dial.classifier.own` are there for whoever asks for them; the tree knows none of them.

    Parameters
    ----------
    baseline : the backends' quiet past.
    now : the interval.
    """

    def __init__(self, baseline: QuietBaseline, now: Metrics) -> None:
        self._baseline = baseline
        self._now = now
        self._made: dict[str, Floats] = {}
        self._expected: dict[str, Floats] = {}

    def __getitem__(self, name: str) -> Floats:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(FEATURES)

    def __len__(self) -> int:
        return len(FEATURES)

    def _make(self, name: str) -> Floats:
        now = self._now
        if name in _RATIOS:
            metric, least = _RATIOS[name]
            return self._ratio(metric, least * now.idle if metric == "t_c" else least)
        if name in _ODDS:
            of = _odds(self.expected(_ODDS[name])) + LEAST_FRACTION
            return (_odds(now[_ODDS[name]]) + LEAST_FRACTION) / of
        if name in _EXCESSES:
            return now[_EXCESSES[name]] - self.expected(_EXCESSES[name])
        if name in own.NAMES:
            return own.asked_part(now["targets_missed"]) if name == own.ASKED else self._lost(name)
        return now.errors_fraction if name == "errors_fraction" else now.retransmit_fraction

    def cpu_wait_ratio(self) -> tuple[Floats, Floats]:
        """CPU time used and waited for, for each CPU second used, over the quiet one; (n,).

        The second is the relative standard deviation that a sample's has in quiet times.
        """
        mean, sd = self._baseline.wait()
        quiet = 1.0 + mean
        return (1.0 + self._now["cpu_wait"]) / quiet, sd / quiet

    def disk_wait_ratio(self) -> tuple[Floats, Floats]:
        """Time in which somebody waits for the disk, over what is usual at that rate; (n,).

        A disk that serves one after another is waited for in proportion to the bytes; one that
        serves all at once as M/G/infinity is busy, in 1 - exp(-offered).  Whichever of them makes
        more of the present rate is what is usual, so that neither more nor less load than usual
        looks like a neighbour.

        The second is the relative standard deviation that a sample's has in quiet times.
        """
        mean, sd = self._baseline.disk_wait()
        rate, usual_rate = self._now["disk_rate"], self.expected("disk_rate")
        usual = np.minimum(mean * usual_rate, 1.0 - LEAST_IDLE_FRACTION)
        at_once = -np.expm1(np.log1p(-usual) * rate / usual_rate)
        of = np.fmax(np.minimum(mean * rate, 1.0), at_once) + LEAST_FRACTION
        return (self._now.waits_for_disk + LEAST_FRACTION) / of, sd / mean

    def _lost(self, name: str) -> Floats:
        """Of the capacity, to the tenant itself."""
        metric = _LOST[name]
        lost = deferral.excess(self._now[metric], self.expected(metric))
        if name == own.OWN_SERVICES:
            # What the VM asks for counts, whatever its services take.
            asked = self[own.ASKED]
            lost = np.where(asked > 0.0, np.fmax(asked, lost), lost)
        return lost

    def _ratio(self, metric: str, least: Floats | float) -> Floats:
        """Both with the least that means anything: 1 where nothing was expected nor seen."""
        of = self.expected(metric) + least
        ratio: Floats = (self._now[metric] + least) / np.where(of > 0.0, of, np.nan)
        return ratio

    def expected(self, metric: str) -> Floats:
        """(n,) of a metric in quiet times, at the present load; NaN where nothing was learnt."""
        if metric not in self._expected:
            served_per_s = self._now.served_per_s
            self._expected[metric] = self._baseline.expected(metric, served_per_s)
        return self._expected[metric]

    def has_learnt(self, metric: str, row: int) -> bool:
        """Whether anything is known of a metric of one backend in quiet times."""
        return self._baseline.has_learnt(metric, row)


class FeaturesOfOne(Mapping[str, Measured]):
    """One backend's features by name, each with the reason where it is missing.

    Parameters
    ----------
    found : of all backends.
    row : of this one.
    interval : this one's window and sample, once it has to be told why a feature is missing.
    """

    __slots__ = ("_found", "_interval", "_row")

    def __init__(self, found: Features, row: int, interval: Callable[[], Interval]) -> None:
        self._found, self._row, self._interval = found, row, interval

    def number(self, name: str) -> float:
        """NaN where it is missing."""
        return float(self._found[name][self._row])

    def __getitem__(self, name: str) -> Measured:
        value = self.number(name)
        return self._why_not(name) if math.isnan(value) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def _why_not(self, name: str) -> NoData:
        seen, metric = _observed(name, *self._interval()), _COMPARED.get(name)
        if isinstance(seen, NoData):
            return seen
        if metric and not self._found.has_learnt(metric, self._row):
            return NoData("no quiet interval learnt")
        if name in _LOST:
            return NoData("nothing was left in quiet times either")
        return NoData("nothing was expected, so no ratio can be formed")


def features_of(
    baseline: QuietBaseline,
    window: RequestWindow,
    sample: AgentSample | NoData,
    rho_fg: Measured,
) -> dict[str, Measured]:
    """The features of a single backend: ``baseline`` has one row."""
    windows, samples = table([window], WINDOW_FIELDS), table([sample], SAMPLE_FIELDS)
    found = Features(baseline, Metrics(windows, samples, column([rho_fg])))
    return dict(FeaturesOfOne(found, 0, lambda: (window, sample)))


_COMPARED = {name: metric for name, (metric, _) in _RATIOS.items()} | _ODDS | _EXCESSES | _LOST

_NEEDED = {
    "cpu_time_ratio": ("cpu_time_cores",),
    "cpu_wait_excess": ("cpu_time_cores",),
    "throttled_excess": ("throttled_fraction",),
    "iowait_ratio": ("cpu_iowait_cores",),
    "io_pressure_odds_ratio": ("psi_io_some_fraction",),
    "disk_busy_odds_ratio": ("disk_busy_fraction",),
    "retransmit_fraction": ("tcp_retransmits_per_s", "tcp_segments_out_per_s"),
    "memory_reload_ratio": ("memory_reload_ns",),
    deferral.FEATURE: ("deferral_fraction",),
    own.OWN_SERVICES: ("own_services_cores",),
    own.SOFTIRQ: ("net_softirq_cores",),
}
"""Of a sample."""
_PARTS = (own.OWN_SERVICES, own.SOFTIRQ)
"""Parts of the CPU, so that its capacity is needed as well."""


def _observed(feature: str, window: RequestWindow, sample: AgentSample | NoData) -> Measured:
    """What was measured for a feature, as far as it tells why that is missing."""
    if feature == "errors_fraction":
        return NoData("no request ended")
    if feature == "t_c_ratio":
        return window.t_c_ms
    if feature not in _NEEDED:
        return window.rate_per_s
    if isinstance(sample, NoData):
        return sample
    if feature == "cpu_wait_excess":
        # One of them is enough.
        waits: list[Measured] = [getattr(sample, name) for name in WAITS]
        if all(isinstance(wait, NoData) for wait in waits):
            return waits[-1]
    needed: list[Measured] = [getattr(sample, name) for name in _NEEDED[feature]]
    missing = (each for each in needed if isinstance(each, NoData))
    return next(missing, own.part(needed[0], sample) if feature in _PARTS else needed[0])


def _odds(fraction: Floats) -> Floats:
    """Busy over idle time; a prediction may lie above 1."""
    busy = np.minimum(fraction, 1.0)
    odds: Floats = busy / (1.0 - busy + LEAST_IDLE_FRACTION)
    return odds
