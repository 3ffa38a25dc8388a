"""The backends' interval beside their own quiet past: all that is computed of it, once.

What is made of it is another matter: :mod:`dial.controller.judge` decides who is slow and why,
:mod:`dial.controller.control_groups` whether others are as slow.

:class:`Looks` are all backends in columns.  :class:`Look` is one of them, for those that are asked
about more: in most ticks most are quiet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat

import numpy as np

from dial.classifier import WAIT_VARIES, Features, FeaturesOfOne, Metrics, QuietBaseline, own
from dial.columns import Bools, Floats, Ints
from dial.controller.history import Read
from dial.controller.noise import rate_deviation
from dial.controller.passed_over import PassedOver, passed_over
from dial.controller.policy import Policy
from dial.controller.state import Known
from dial.estimator import (
    NO_CURVE,
    SLOWDOWN,
    QuietCurve,
    Reading,
    RhoBg,
    peak_rps,
    utilisation,
    why_no_utilisation,
)
from dial.queueing import MM1, RHO_MAX, Number, TailCurve
from dial.seen import Seen
from dial.types import BackendObservation, Cause, Measured, NoData, Observation

_DRAINS = 1.25
"""With 25 requests a second that is chance in one of ten intervals, which then are not read; beside
a backlog that load has left it is 1.5 to 5."""


_MOST_WITHOUT_LOAD = 0.5
"""Of the CPU time at the usual load, what does not depend on it (the kernel's, an agent's): as much
again as the requests', at most.  Assumed: what a VM does without load is mostly not seen.  Where
requests cost 1.5 times as much, CPU time then decides down to half of the usual load (with 1 it
would down to two thirds), and where requests go by delay such a victim keeps more than that."""


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
    interval_s
        How long it was.
    asks
        (n,) whether the VM asks for load to move: its own services miss their targets.
    baseline, curve
        Their quiet past.
    read
        What siblings are compared by.
    passed_over
        What the balancer gives them beside their siblings.
    part_of_usual
        (n,) the part of their usual requests that they have, at most 1; 1 too where it is not
        known, or where the CPU time that does not depend on load is.
    part_shifted
        (n,) the same while weights are not the configured ones, else 1: nobody has few because of
        that.
    """

    seen: Seen
    configured_rps: Floats
    peak_rps: Floats
    utilisation: Floats
    rho_fg: Floats
    interval_s: float
    asks: Bools
    baseline: QuietBaseline
    curve: QuietCurve
    read: Read
    passed_over: PassedOver | NoData
    part_of_usual: Floats
    part_shifted: Floats
    _scales_ms: dict[TailCurve, Floats] = field(default_factory=dict)

    def into(self, rows: Ints) -> list[Look]:
        """Some of the backends, one by one."""
        if not rows.size:
            return []
        windows, samples = self.seen.windows.take(rows), self.seen.samples.take(rows)
        features = Features(self.baseline.take(rows), Metrics(windows, samples, self.rho_fg[rows]))
        heard = ~np.isnan(samples["interval_s"])
        return [
            Look(self, row, there, FeaturesOfOne(features, at, partial(self.seen.interval, row)))
            for at, (row, there) in enumerate(zip(rows.tolist(), heard.tolist(), strict=True))
        ]

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
    heard
        Whether its agent was.
    features
        By name (:data:`dial.classifier.FEATURES`, :data:`dial.classifier.own.FEATURES`), and
        :data:`dial.classifier.own.ASKED`.
    """

    looks: Looks
    row: int
    heard: bool
    features: FeaturesOfOne

    @property
    def seen(self) -> BackendObservation:
        """What was observed, made for whoever needs more of it than numbers."""
        return self.looks.seen[self.row]

    def window(self, name: str) -> float:
        """A number of its window; NaN where it is missing."""
        return float(self.looks.seen.windows[name][self.row])

    @property
    def sample_at_s(self) -> float | None:
        """When the newest sample of its agent ended, by the agent's clock."""
        sample = self.seen.sample
        return None if isinstance(sample, NoData) else sample.at_s

    @property
    def part_of_usual(self) -> float:
        """See :attr:`Looks.part_of_usual`."""
        return float(self.looks.part_of_usual[self.row])

    @property
    def usable(self) -> bool:
        """Whether the balancer uses it."""
        return bool(self.looks.seen.usable[self.row])

    @property
    def t_x_ms(self) -> Measured:
        """T_x, or why there is none."""
        t_x_ms = self.window("t_x_ms")
        return self.seen.window.t_x_ms if math.isnan(t_x_ms) else t_x_ms

    @property
    def rho_fg(self) -> Measured:
        """The backend's own utilisation, or why it is not known."""
        rho_fg = float(self.looks.rho_fg[self.row])
        return why_no_utilisation(self.seen.sample) if math.isnan(rho_fg) else rho_fg

    @property
    def asked(self) -> float:
        """The part of its load that the VM asks to be relieved of; mostly 0."""
        return self.features.number(own.ASKED)

    def curve(self, shape: TailCurve = MM1) -> TailCurve | NoData:
        """Eq. 1 of the backend, or why there is none yet."""
        scale_ms = float(self.looks.scale_ms(shape)[self.row])
        return NO_CURVE if math.isnan(scale_ms) else shape.scaled(scale_ms)


def look_at(
    policy: Policy, known: Known, seen: Seen, observation: Observation, *, even: bool
) -> Looks:
    """Compare an interval with what is known of the backends.

    Parameters
    ----------
    policy : the strategies.
    known : what is remembered of them.
    seen : the backends of the observation, in the order of the rows of ``known``.
    observation : of this tick.
    even : the weights are the configured ones.
    """
    windows, samples, usable = seen.windows, seen.samples, seen.usable
    configured = map(policy.peak_rps.get, seen.names, repeat(math.nan))
    configured_rps = np.fromiter(configured, float, len(seen))
    peak = peak_rps(known.peak, configured_rps)
    used = utilisation(samples)
    rho_fg = own_utilisation(windows["rate_per_s"], used, peak)
    features = Features(known.baseline, Metrics(windows, samples, rho_fg))
    heard = usable & (windows["requests"] > 0.0)
    given = passed_over(observation, windows["rate_per_s"], usable, even=even)
    part_of_usual = _part_of_usual(known, features)
    part_shifted = np.ones(len(seen)) if even else part_of_usual
    # A sample that is longer than the interval is in the next one's too.
    overlap = np.fmax(samples["interval_s"] / observation.interval_s, 1.0)
    read = Read(
        np.where(usable, windows["t_x_ms"] / known.curve.scale_ms(), np.nan),
        rho_fg,
        windows["t_x_requests"],
        np.where(heard, _surely_dearer(features["cpu_time_ratio"], part_shifted), np.nan),
        windows["requests"],
        *_by_cpu_wait(features, seen, overlap, heard, _for_its_load(used, known.curve)),
        *_by_rate(policy, known, given),
        np.where(heard, _stretch(features, used, known.curve, even=even), np.nan),
        overlap,
        *_by_disk_wait(features, seen, overlap, heard),
    )
    return Looks(
        seen,
        configured_rps,
        peak,
        used,
        rho_fg,
        observation.interval_s,
        samples["targets_missed_s"] > 0.0,
        known.baseline,
        known.curve,
        read,
        given,
        part_of_usual,
        part_shifted,
    )


def _part_of_usual(known: Known, features: Features) -> Floats:
    """(n,) the part of its usual requests that a backend has, at most 1.

    CPU time that does not depend on load is booked to the requests, and makes few of them dear:
    where it takes half of the usual CPU time, those of a fifth of the load cost three times as
    much.  It is 1 where load differed enough, while it was learnt from, to tell the two apart.
    """
    told = known.baseline.tells_idle("cpu_time")
    return np.where(told, 1.0, np.fmin(features["requests_ratio"], 1.0))


def _surely_dearer(slowdown: Number, part_of_usual: Number) -> Number:
    """CPU time of a request over the quiet one, as far as having few of them does not explain it.

    Of the CPU time as much is held not to depend on load as need be, all of it at most.
    """
    surely: Number = np.maximum(slowdown * part_of_usual, np.minimum(slowdown, 1.0))
    return surely


def _by_rate(policy: Policy, known: Known, given: PassedOver | NoData) -> tuple[Floats, Floats]:
    """rho_bg and its error; NaN where a backend's usual part of the requests is not known yet."""
    trusted = known.rates.learnt >= policy.learn_intervals
    if isinstance(given, NoData):
        nothing = np.full(trusted.size, np.nan)
        return nothing, nothing
    quiet = np.where(trusted, known.rates.mean, np.nan)
    return given.rho_bg(quiet, rate_deviation(known.rates, given.sd, given.requests))


def _for_its_load(used: Floats, curve: QuietCurve) -> Floats:
    """(n,) by how much a backend's CPU serves longer for the load that is the backend's own.

    By 1 / (1 - rho), as queues have it, over what it is at the usual load; with less than that, or
    where it is not known, 1.

    Parameters
    ----------
    used : (n,) its own utilisation in the time that the agent's sample is of.
    curve : of its quiet past.
    """
    now, usual = np.minimum(used, RHO_MAX), curve.usual_rho_fg()
    return np.fmax((1.0 - usual) / (1.0 - now), 1.0)


def _stretch(features: Features, used: Floats, curve: QuietCurve, *, even: bool) -> Floats:
    """(n,) CPU time used and waited for, for each CPU second used, over the quiet one.

    Where load is not even, without what more load of its own than usual makes of it, at the CPU
    time that requests usually cost: that they cost more is the neighbour's doing.  Where it is even
    more load is more of all, and they are compared.
    """
    ratio, _ = features.cpu_wait_ratio()
    if even:
        return ratio
    found: Floats = ratio / _for_its_load(used / features["cpu_time_ratio"], curve)
    return found


def _by_cpu_wait(
    features: Features, seen: Seen, overlap: Floats, heard: Bools, for_its_load: Floats
) -> tuple[Floats, Floats]:
    """rho_bg by the CPU time waited for, and its error; NaN where it is not ``heard``.

    Who takes a part of the CPU makes that which is left take 1 / (1 - rho_bg) times as long, and
    more load of one's own than usual explains a part of that.
    """
    ratio, quiet_sd = features.cpu_wait_ratio()
    return _lost_by_wait(ratio / for_its_load, quiet_sd, seen, overlap, heard)


def _by_disk_wait(
    features: Features, seen: Seen, overlap: Floats, heard: Bools
) -> tuple[Floats, Floats]:
    """rho_bg by the time waited for the disk, and its error; NaN where it is not ``heard``.

    As M/M/1 with requests of two classes has it: where a neighbour's take rho_bg of the disk, one
    of the tenant's is there for 1 / (1 - rho_bg) times as long.
    """
    return _lost_by_wait(*features.disk_wait_ratio(), seen, overlap, heard)


def _lost_by_wait(
    ratio: Floats, quiet_sd: Floats, seen: Seen, overlap: Floats, heard: Bools
) -> tuple[Floats, Floats]:
    """rho_bg of what takes ``ratio`` times as long as in quiet times, and its error."""
    requests = np.maximum(seen.windows["requests"] * overlap, 1.0)
    sd = np.fmax(quiet_sd, WAIT_VARIES / np.sqrt(requests))
    left = np.where(heard & (ratio > 0.0), 1.0 / ratio, np.nan)
    return 1.0 - left, left * sd


def own_utilisation(rate_per_s: Floats, measured_rho: Floats, peak: Floats) -> Floats:
    """rho_fg, (n,): the backend's rate over its peak, else as it is measured.

    The rate comes first although the CPU time is measured directly: samples and ticks do
    not begin together, and a neighbour in the cache makes each request use more CPU time,
    which is not the tenant's own doing.
    """
    return np.where(np.isnan(peak), measured_rho, np.minimum(1.0, rate_per_s / peak))


def used_part(seen: BackendObservation) -> Measured:
    """The part of its CPU that the VM uses, packets included."""
    if isinstance(seen.sample, NoData):
        return seen.sample
    return own.part(seen.sample.cpu_time_cores, seen.sample)


def drains(look: Look) -> bool:
    """Whether the backend serves what waited: more requests end than arrive.

    Their response times are those of the load that they came with, not of the present one.
    """
    return 0.0 < _DRAINS * look.window("rate_per_s") < look.window("served_per_s")


def reading_of(
    policy: Policy, look: Look, cause: Cause, held: RhoBg | None = None
) -> Reading | NoData:
    """What rho_bg is estimated from: T_x, or of a cache in contention the CPU time a request.

    Load moves by no more CPU time than a neighbour alone explains.  It returns by that which was
    measured, for a neighbour that is still there makes few requests as dear as many; unless having
    few explains as much as the neighbour would: then CPU time tells nothing, and T_x decides, as
    where no agent tells the CPU time any more: a victim would be probed without end.

    Parameters
    ----------
    policy : the strategies.
    look : the backend's interval.
    cause : the resource.
    held : what is held of a neighbour that load was moved away from; ``None`` where none was.
    """
    if cause is Cause.LLC:
        if held is None:
            return _cpu_time(look, float(look.looks.part_shifted[look.row]))
        if (1.0 - held.value) * as_dear_for_being_few(look) <= 1.0:
            measured = _cpu_time(look, 1.0)
            if look.heard or not isinstance(measured, NoData):
                return measured
    curve, t_x_ms, rho_fg = look.curve(policy.shapes.get(cause, MM1)), look.t_x_ms, look.rho_fg
    if isinstance(curve, NoData):
        return curve
    if isinstance(t_x_ms, NoData):
        return t_x_ms
    if isinstance(rho_fg, NoData):
        return rho_fg
    return Reading(curve, t_x_ms, rho_fg, look.window("t_x_requests"), policy.percentile)


def as_dear_for_being_few(look: Look) -> float:
    """How many times their usual CPU time the requests may cost at most for being few alone.

    Where f of the CPU time does not depend on load, requests at the part q of the usual load cost
    f / q + 1 - f times as much.
    """
    part = look.part_of_usual
    return _MOST_WITHOUT_LOAD / part + 1.0 - _MOST_WITHOUT_LOAD if part else math.inf


def _cpu_time(look: Look, part_of_usual: float) -> Reading | NoData:
    slowdown, requests = look.features["cpu_time_ratio"], look.window("requests")
    if isinstance(slowdown, NoData):
        return slowdown
    if not requests:
        return NoData("no request ended, so there is no CPU time of one")
    surely = _surely_dearer(slowdown, part_of_usual)
    return Reading(SLOWDOWN, surely, 0.0, requests, percentile=None)
