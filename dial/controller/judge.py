"""The backends, one tick: who is slow, why, and how much does the neighbour take.

The paper's three steps in their order: detection (2.3.1), classification (2.3.2),
estimation (2.3.3).  A verdict that a neighbour is there, once made, is kept while load is
shifted away from the backend, because the symptoms it rests on fade with the load; it is
refined, and finally ended, by the estimate of rho_bg alone.

Detection and learning are of all backends at once; a cause is looked for one backend at a time, of
those that are slow, that ask for load to move, or that it was moved away from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dial.classifier import Metrics
from dial.columns import Bools, Floats
from dial.controller.classify import find_cause
from dial.controller.control_groups import ControlGroups
from dial.controller.doubts import in_doubt
from dial.controller.engage import Suspicion, asked, by_chance, engage
from dial.controller.finding import Finding
from dial.controller.follow import follow
from dial.controller.history import WINDOW_INTERVALS, History, Witnesses
from dial.controller.look import Look, Looks, own_utilisation
from dial.controller.noise import noise
from dial.controller.policy import Policy
from dial.controller.siblings import Siblings
from dial.controller.state import Backends, Contention, Known, Release, Suspect, without
from dial.controller.verdict import Verdicts
from dial.detector import Signal
from dial.estimator import learn_peak, peak_rps
from dial.types import Cause, NoData

_SHORT_INTERVALS = (1, 2)
"""Of a strong neighbour the newest says enough, of a weak one the two that load is moved after."""


def judge(
    policy: Policy, backends: Backends, looks: Looks, *, tick: int, quiet: bool
) -> tuple[Backends, Verdicts]:
    """Detect, classify and estimate.

    Parameters
    ----------
    policy : the strategies.
    backends : what is remembered of them.
    looks : their interval, in the same order.
    tick : its number, for the record.
    quiet : no load is shifted anywhere, so this interval may be learnt from.
    """
    names, contentions = backends.names, dict(backends.contentions)
    contended = np.fromiter(map(contentions.__contains__, names), np.bool_, len(names))
    known, signal = _detect(policy, backends.known, looks, contended, learn=quiet)
    history = known.history.then(looks.read)
    groups = ControlGroups(names, _witnesses(policy, known, history))
    short = _resource_witnesses(policy, known, looks, groups, where=~contended)
    signal = signal.but(above=signal.above | short, likely=signal.likely | short)
    peak = looks.peak_rps
    if quiet:
        trusted = known.costs.weight >= policy.learn_intervals
        known, peak = _learn(policy, known, history, looks, where=signal.calm, trusted=trusted)
        # Who asks for load to move may be calm: its interval is read beside what it taught.
        looks = looks.beside(known.curve)
    at_ease = signal.calm & ~short & ~np.isnan(looks.seen.windows["t_x_ms"]) & ~contended
    uneasy_intervals = np.minimum(known.uneasy_intervals + ~contended, WINDOW_INTERVALS)
    uneasy_intervals[at_ease] = 0
    suspects = without(
        {names[row] for row in np.flatnonzero(at_ease)} if backends.suspects else set(),
        backends.suspects,
    )
    releases = dict(backends.releases)

    # Of this interval alone: what was before says nothing of whether a neighbour is still there.
    slower = looks.seen.windows["t_x_ms"] > signal.upper_ms
    siblings = Siblings(
        groups,
        unlikely=np.flatnonzero(signal.above & ~signal.likely & ~contended),
        likely=np.flatnonzero(signal.likely & ~contended),
        intervals=uneasy_intervals.copy(),
        followed=np.flatnonzero(contended),
    )

    judged: dict[int, tuple[Look, Finding]] = {}
    ended = np.zeros(len(names), np.bool_)
    for look in looks.into(np.flatnonzero(contended | signal.above | looks.asks)):
        row, name = look.row, names[look.row]
        contention, suspected = contentions.pop(name, None), suspects.pop(name, None)
        sample_at_s = look.sample_at_s
        if contention is None:
            before = None if suspected is None else suspected.cause
            suspicion = Suspicion(
                likely=bool(signal.likely[row]),
                detected=bool(signal.detected[row]),
                before=suspected,
                release=releases.get(name),
            )
            above = bool(signal.above[row])
            finding, after, suspect = _look_into(
                policy, look, suspicion, siblings, above=above, tick=tick
            )
        else:
            before = contention.cause
            suspect = None if suspected is None else suspected.before(sample_at_s)
            finding, after, suspect = follow(
                policy,
                contention,
                look,
                above=bool(slower[row]),
                suspect=suspect,
                siblings=siblings,
                tick=tick,
            )
            if after is None:
                ended[row] = True
                releases[name] = Release(tick, contention.returns)
            if after is None or after.cause is not Cause.UNKNOWN:
                suspect = None
        if after is not None:
            contentions[name] = after
        if suspect is not None:
            suspects[name] = Suspect(suspect, sample_at_s)
        if finding.cause.is_own_doing and look.asked == 0.0:
            finding = replace(finding, begins=finding.cause is not before)
        judged[row] = look, finding
    uneasy_intervals[ended] = 0
    known = known.but(
        cusum=policy.cusum.ended(known.cusum, ended),
        history=history.latest(),
        uneasy_intervals=uneasy_intervals,
    )
    doubts = in_doubt(policy, backends.doubts, looks, groups, contentions, tick=tick)
    backends = Backends(names, known, contentions, suspects, releases, doubts)
    return backends, Verdicts(policy, looks, signal, peak, judged)


def _look_into(
    policy: Policy,
    look: Look,
    suspicion: Suspicion,
    siblings: Siblings,
    *,
    above: bool,
    tick: int,
) -> tuple[Finding, Contention | None, Cause | None]:
    """Why a backend is slow, or asks for load to move: what is held of it, and its class."""
    finding = Finding(Cause.NONE, NoData("not slower than expected"))
    suspect = None if suspicion.before is None else suspicion.before.cause
    contention = None
    if above:
        found = find_cause(policy, look, siblings if suspicion.likely else None)
        if suspicion.likely:
            finding, contention = engage(policy, look, found, suspicion, siblings, tick=tick)
        else:
            finding = by_chance(found, siblings.why_not(look.row))
        suspect = found.cause
    if contention is None:
        contention = asked(policy, look, suspicion.release, tick=tick)
        if contention is not None:
            finding = Finding(contention.cause, contention.rho_bg, contention.evidence)
    return finding, contention, suspect


def _detect(
    policy: Policy, known: Known, looks: Looks, contended: Bools, *, learn: bool
) -> tuple[Known, Signal]:
    """Ask the detector that was chosen."""
    t_x_ms = looks.seen.windows["t_x_ms"]
    if policy.strategies.detect == "band":
        band, signal = policy.band.step(known.band, t_x_ms, learn=learn)
        return known.but(band=band), signal
    requests = looks.seen.windows["t_x_requests"]
    rho_fg = looks.rho_fg if learn else _with_usual_load(known, looks.rho_fg, ~contended)
    cusum, signal = policy.cusum.step(known.cusum, t_x_ms, rho_fg, requests, learn=learn)
    known, given = known.but(cusum=cusum), looks.passed_over
    if isinstance(given, NoData):
        # What was before says nothing of the time after.
        return known.but(rates=known.rates.calmed(known.rates.evidence > 0.0)), signal
    rates = known.rates.calmed(np.isnan(given.residual))
    rates, witness = policy.cusum.watch(rates, given.residual, given.requests, learn=learn)
    return known.but(rates=rates), signal.beside(witness)


def _with_usual_load(known: Known, rho_fg: Floats, where: Bools) -> Floats:
    """rho_fg, (n,), or what it usually is if that is more, ``where`` (n,) is true.

    While load is shifted a backend may have far less of it than when it was learnt from, and T_x of
    many a service falls less with its load than M/M/1's: requests that wait for nobody take as long
    at any.  One that is no slower than at its usual load is not slow.
    """
    usual = known.curve.usual_rho_fg()
    return np.where(where & (usual > rho_fg), usual, rho_fg)


def _resource_witnesses(
    policy: Policy, known: Known, looks: Looks, groups: ControlGroups, where: Bools
) -> Bools:
    """Whose CPU or disk surely gives less than usual, and less than its siblings', (n,).

    By the CPU time of a request, which a neighbour in the cache makes more, or by the time that it
    or the disk is waited for, where one takes those.  All show at once what T_x shows seconds later
    where there is little load: CPU times of 1.5 times the usual left T90 within what is expected
    at most for 6 s, 28 ms where it had been 17.  Few requests are as quick as ever now and then,
    so that it is asked of all intervals since the backend was calm as well.  It is reason to ask,
    not to move load: that takes T_x (:func:`engage`); and to go on learning, for requests may be
    dearer for good.
    """
    found = np.zeros(where.size, np.bool_)
    if policy.strategies.detect == "band":
        return found
    least, times = policy.guards.engage_rho_bg, len(_SHORT_INTERVALS) + 1
    for rho_bg, beside in (
        (1.0 - 1.0 / looks.read.slowdown, groups.by_cpu_time),
        (looks.read.wait, groups.by_cpu_wait),
        (looks.read.disk, groups.by_disk_wait),
    ):
        rows = np.flatnonzero(where & (rho_bg >= least))
        short = np.repeat(_SHORT_INTERVALS, rows.size)
        intervals = np.append(short, known.uneasy_intervals[rows] + 1)
        compared = beside(np.tile(rows, times), intervals)
        surely = (not isinstance(one, NoData) and one.exceeds(least) for one in compared)
        found[rows] |= np.fromiter(surely, np.bool_).reshape(times, -1).any(axis=0)
    return found


def _witnesses(policy: Policy, known: Known, history: History) -> Witnesses:
    """What the last intervals say, each with the errors that it has at that backend."""
    errors = noise(known.costs, known.cusum, known.curve.usual_rho_fg(), policy.percentile)
    return Witnesses(history, policy.sampling, policy.percentile, errors)


def _learn(
    policy: Policy,
    known: Known,
    history: History,
    looks: Looks,
    *,
    where: Bools,
    trusted: Bools,
) -> tuple[Known, Floats]:
    """Remember a quiet interval, ``where`` it is one; returns r_i as known by then, too.

    How much costs vary is learnt of all backends: without the dear intervals they would seem to
    vary little.  Whose usual cost can be ``trusted`` is known by then; who does not have a load for
    long (``has_load``) has samples of before it.
    """
    memory = policy.memory_intervals
    rate_per_s, t_x_ms = looks.seen.windows["rate_per_s"], looks.seen.windows["t_x_ms"]
    used = looks.utilisation
    # With next to no requests what the VM does for itself is all that would be learnt.
    heard = where & ~np.isnan(t_x_ms)
    peak_state = learn_peak(
        known.peak, rate_per_s, np.where(heard, used, np.nan), memory_intervals=memory
    )
    peak = peak_rps(peak_state, looks.configured_rps)
    rho_fg = own_utilisation(rate_per_s, used, peak)
    now = Metrics(looks.seen.windows, looks.seen.samples, rho_fg)
    before, slowdown = history.spaced("slowdown")
    slowdown = np.where(history.has_load(), slowdown, np.nan)
    requests = history.requests_of_samples()
    return known.but(
        costs=known.costs.learn((before, slowdown), requests, trusted, memory_intervals=memory),
        baseline=known.baseline.learn(now, where, memory_intervals=memory),
        peak=peak_state,
        curve=known.curve.learn(np.where(where, t_x_ms, np.nan), rho_fg, memory_intervals=memory),
    ), peak
