"""The backends' interval beside their own quiet past: all that is computed of it, once.

What is made of it is another matter: :mod:`dial.controller.judge` decides who is slow and why,
:mod:`dial.controller.siblings` whether others are as slow.

:class:`Looks` are all backends in columns.  :class:`Look` is one of them, for those that are asked
about more: in most ticks most are quiet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dial.classifier import Features, FeaturesOfOne, Metrics, QuietBaseline, deferral, own
from dial.columns import Bools, Floats, Ints
from dial.controller.history import Read
from dial.controller.passed_over import PassedOver, passed_over
from dial.controller.policy import Policy
from dial.controller.state import Known
from dial.estimator import (
    NO_CURVE,
    SLOWDOWN,
    QuietCurve,
    Reading,
    peak_rps,
    utilisation,
    why_no_utilisation,
)
from dial.queueing import MM1, TailCurve
from dial.seen import Seen
from dial.types import AgentSample, BackendObservation, Cause, Measured, NoData, Observation

_DRAINS = 1.25
"""With 25 requests a second that is chance in one of ten intervals, which then are not read; beside
a backlog that load has left it is 1.5 to 5."""


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """All backends in one interval, in the order in which they were observed.

    Attributes
    ----------
    seen
        What was observed.
    configured_rps, peak_rps
        (n,) r_i as configured, and as it is known; NaN where it is not.
    utilisation, rho_fg
        (n,) the backends' own utilisation as measured, and as it is known; NaN where it is not.
    asks
        (n,) whether the VM asks for load to move: its own services miss their targets.
    baseline, curve
        Their quiet past.
    read
        What siblings are compared by.
    passed_over
        What the balancer gives them beside their siblings.
    """

    seen: Seen
    configured_rps: Floats
    peak_rps: Floats
    utilisation: Floats
    rho_fg: Floats
    asks: Bools
    baseline: QuietBaseline
    curve: QuietCurve
    read: Read
    passed_over: PassedOver | NoData
    _scales_ms: dict[TailCurve, Floats] = field(default_factory=dict)

    def into(self, rows: Ints) -> list[Look]:
        """Some of the backends, one by one."""
        if not rows.size:
            return []
        seen = [self.seen[row] for row in rows.tolist()]
        baseline = self.baseline.take(rows)
        features = Features(
            baseline,
            Metrics(self.seen.windows.take(rows), self.seen.samples.take(rows), self.rho_fg[rows]),
        )
        looks = []
        for at, (row, each) in enumerate(zip(rows.tolist(), seen, strict=True)):
            beside = _own_doing(each, features, at)
            of = FeaturesOfOne(features, baseline, at, each.window, each.sample, beside=beside)
            rho_fg = rho_fg_of(self.rho_fg[row], each.sample)
            looks.append(Look(self, row, each, rho_fg, of))
        return looks

    def beside(self, curve: QuietCurve) -> Looks:
        """The same beside what is known of Eq. 1 by now."""
        return replace(self, curve=curve, _scales_ms={})

    def scale_ms(self, shape: TailCurve) -> Floats:
        """(n,) T_x of the idle backends, by a shape of Eq. 1; NaN where it is not known."""
        if shape not in self._scales_ms:
            self._scales_ms[shape] = self.curve.scale_ms(shape)
        return self._scales_ms[shape]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One backend in one interval.

    Attributes
    ----------
    looks
        All of them.
    row
        Of this one.
    seen
        What was observed.
    rho_fg
        The backend's own utilisation.
    features
        By name (:data:`dial.classifier.FEATURES`, :data:`dial.classifier.own.FEATURES`), and
        :data:`dial.classifier.own.ASKED`.
    """

    looks: Looks
    row: int
    seen: BackendObservation
    rho_fg: Measured
    features: Mapping[str, Measured]

    @property
    def asked(self) -> float:
        """The part of its load that the VM asks to be relieved of; mostly 0."""
        part = self.features[own.ASKED]
        return 0.0 if isinstance(part, NoData) else part

    def curve(self, shape: TailCurve = MM1) -> TailCurve | NoData:
        """Eq. 1 of the backend, or why there is none yet."""
        scale_ms = float(self.looks.scale_ms(shape)[self.row])
        return NO_CURVE if math.isnan(scale_ms) else shape.scaled(scale_ms)


def _own_doing(seen: BackendObservation, features: Features, row: int) -> dict[str, Measured]:
    """What the VM loses to the tenant itself beyond the usual, and what it asks for."""
    sample = seen.sample
    if isinstance(sample, NoData):
        return {**dict.fromkeys(own.FEATURES.values(), sample), own.ASKED: 0.0}

    def beyond(metric: str, part: Measured) -> Measured:
        if isinstance(part, NoData):
            return part
        usual = float(features.expected(metric)[row])
        if math.isnan(usual):
            return NoData("no quiet interval learnt")
        return deferral.excess(part, usual)

    asked = own.asked_part(sample.targets_missed_s)
    taken = beyond("own_services", own.part(sample.own_services_cores, sample))
    if asked > 0.0:
        taken = asked if isinstance(taken, NoData) else max(taken, asked)
    return {
        deferral.FEATURE: beyond("deferral", sample.deferral_fraction),
        own.OWN_SERVICES: taken,
        own.SOFTIRQ: beyond("softirq", own.part(sample.net_softirq_cores, sample)),
        own.ASKED: asked,
    }


def look_at(
    policy: Policy, known: Known, seen: Seen, observation: Observation, *, quiet: bool
) -> Looks:
    """Compare an interval with what is known of the backends.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of them.
    seen : the backends of the observation, in the order of the rows of ``known``.
    observation : of this tick.
    quiet : no load is shifted anywhere.
    """
    windows, samples, usable = seen.windows, seen.samples, seen.usable
    configured = (policy.peak_rps.get(name, math.nan) for name in seen.names)
    configured_rps = np.fromiter(configured, float, len(seen))
    peak = peak_rps(known.peak, configured_rps)
    used = utilisation(samples)
    rho_fg = own_utilisation(windows["rate_per_s"], used, peak)
    slowdown = Features(known.baseline, Metrics(windows, samples, rho_fg))["cpu_time_ratio"]
    given = passed_over(observation, windows["rate_per_s"], usable, quiet=quiet)
    read = Read(
        np.where(usable, windows["t_x_ms"] / known.curve.scale_ms(), np.nan),
        rho_fg,
        windows["t_x_requests"],
        np.where(usable & (windows["requests"] > 0.0), slowdown, np.nan),
        windows["requests"],
        *_by_rate(policy, known, given),
    )
    return Looks(
        seen,
        configured_rps,
        peak,
        used,
        rho_fg,
        samples["targets_missed_s"] > 0.0,
        known.baseline,
        known.curve,
        read,
        given,
    )


def _by_rate(policy: Policy, known: Known, given: PassedOver | NoData) -> tuple[Floats, Floats]:
    """rho_bg and its error; NaN where a backend's usual part of the requests is not known yet."""
    trusted = known.rates.learnt >= policy.learn_intervals
    if isinstance(given, NoData):
        nothing = np.full(trusted.size, np.nan)
        return nothing, nothing
    return given.rho_bg(np.where(trusted, known.rates.mean, np.nan))


def own_utilisation(rate_per_s: Floats, measured_rho: Floats, peak: Floats) -> Floats:
    """rho_fg, (n,): the backend's rate over its peak, else as it is measured.

    The rate comes first although the CPU time is measured directly: samples and ticks do
    not begin together, and a neighbour in the cache makes each request use more CPU time,
    which is not the tenant's own doing.
    """
    return np.where(np.isnan(peak), measured_rho, np.minimum(1.0, rate_per_s / peak))


def rho_fg_of(rho_fg: float, sample: AgentSample | NoData) -> Measured:
    """One backend's own utilisation, or why it is not known."""
    return why_no_utilisation(sample) if math.isnan(rho_fg) else float(rho_fg)


def used_part(seen: BackendObservation) -> Measured:
    """The part of its CPU that the VM uses, packets included."""
    if isinstance(seen.sample, NoData):
        return seen.sample
    return own.part(seen.sample.cpu_time_cores, seen.sample)


def drains(seen: BackendObservation) -> bool:
    """Whether the backend serves what waited: more requests end than arrive.

    Their response times are those of the load that they came with, not of the present one.
    """
    served, arrived = seen.window.served_per_s, seen.window.rate_per_s
    return not isinstance(served, NoData) and 0.0 < _DRAINS * arrived < served


def reading_of(policy: Policy, look: Look, cause: Cause) -> Reading | NoData:
    """What rho_bg is estimated from: T_x, or of a cache in contention the CPU time a request."""
    if cause is Cause.LLC:
        return _cpu_time(look)
    window, curve = look.seen.window, look.curve(policy.shapes.get(cause, MM1))
    if isinstance(curve, NoData):
        return curve
    if isinstance(window.t_x_ms, NoData):
        return window.t_x_ms
    if isinstance(look.rho_fg, NoData):
        return look.rho_fg
    return Reading(curve, window.t_x_ms, look.rho_fg, window.t_x_requests, policy.percentile)


def _cpu_time(look: Look) -> Reading | NoData:
    slowdown, requests = look.features["cpu_time_ratio"], look.seen.window.requests
    if isinstance(slowdown, NoData):
        return slowdown
    if not requests:
        return NoData("no request ended, so there is no CPU time of one")
    return Reading(SLOWDOWN, slowdown, 0.0, requests, percentile=None)
