"""What a neighbour really took of a case, rho_bg.

CPU, network, disk
    As calibrated before the load began: the lab's caps give a neighbour the same share each
    time it comes.

Last-level cache
    What a neighbour takes there is decided anew each time, by which lines it meets: told the
    same, it took 0.07, 0.14 and 0.32 in calibrations of one session, and other shares in the
    stages.  But it shows: a request needs more CPU time.  So the share of capacity lost is
    measured in the case itself, over all its ticks, against the learning phase at the same load:

        rho_bg = 1 - CPU time a request in learning / in the case.

    The product estimates from the same two counters tick by tick, so for the cache the error of
    its estimate is one of following, not of inference.

Too weak
    A neighbour that took less than the product moves load for is neither contention that has to
    be found nor quiet that must not be accused: such cases are no test of either, and none to
    learn from.  They are counted.

Disturbed
    The computer's last-level cache has users outside, whom the lab neither starts nor stops.  Where
    a request of a session about the cache needs as much more CPU time as beside a neighbour worth
    finding, with none of the lab's there and its own cost taken out, somebody else was: the case is
    not known to be quiet.  It is left out, and counted.  Where ticks count, not cases, the same is
    asked of eight seconds: what follows from there on is not known to be quiet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dial.settings import GuardSettings
from dial.types import BackendObservation, Cause, NoData
from dial_training.dataset import LEARN, STAGE, LabelledTick, Session
from dial_training.replay import JudgedCase, JudgedTick, Studied

LEAST_RHO_BG = GuardSettings().engage_rho_bg
"""Below it a neighbour is too weak to be one."""


def true_rho_bg(studied: Studied, judged: JudgedCase) -> float | None:
    """Of one contended case; ``None`` where it was not measured."""
    truth = judged.case.truth
    return _lost_by_cpu_time(studied, judged) if truth.label is Cause.LLC else truth.rho_bg_true


def _lost_by_cpu_time(studied: Studied, judged: JudgedCase) -> float | None:
    """Capacity lost because a request needs more CPU time than it costs."""
    quiet_s = _cpu_s_per_request(map(_work_of_judged, studied.quiet[judged.case.machine]))
    now_s = _cpu_s_per_request(map(_work_of_judged, judged.ticks))
    lost = _lost(quiet_s, now_s, cost_factor=judged.case.truth.cost_factor)
    return None if lost is None else max(0.0, lost)


def too_weak(studied: Studied, judged: JudgedCase) -> bool:
    """Whether a case's neighbour is known to have taken next to nothing."""
    if not judged.case.truth.label.is_contention:
        return False
    taken = true_rho_bg(studied, judged)
    return taken is not None and taken < LEAST_RHO_BG


def disturbed(studied: Studied, judged: JudgedCase) -> bool:
    """Whether somebody else was in the cache in a case without a neighbour."""
    about_cache = Cause(studied.session.resource) is Cause.LLC
    if not about_cache or judged.case.truth.label.costs_capacity:
        return False
    lost = _lost_by_cpu_time(studied, judged)
    return lost is not None and lost >= LEAST_RHO_BG


_DISTURBED_S = 8.0
"""Some 300 requests, whose exponential costs together are off by 6 %: a quarter is no chance."""


def disturbed_from(session: Session) -> int | None:
    """The first tick, by its place, from which on somebody else was in the cache for 8 s.

    Asked of times in which no neighbour of the lab's was there; the product has no part in it.
    ``None`` where nobody was, and of sessions that are not about the cache.
    """
    if Cause(session.resource) is not Cause.LLC:
        return None
    first = [
        at
        for machine in session.quiet_rps
        if (at := _disturbed_from(session.ticks, machine)) is not None
    ]
    return min(first, default=None)


def _disturbed_from(ticks: Sequence[LabelledTick], machine: str) -> int | None:
    """The same of one machine."""
    truths = [tick.truths[machine] for tick in ticks]
    work = [_work(tick, machine) for tick in ticks]
    quiet_s = _cpu_s_per_request(
        w for w, truth in zip(work, truths, strict=True) if truth.phase == LEARN
    )
    for first, last in _windows([tick.observation.interval_s for tick in ticks]):
        lost = _lost(quiet_s, _cpu_s_per_request(work[first:last]))
        # At an edge of a stage a neighbour is there in part, and a little before.
        alone = all(
            truth.phase in (LEARN, STAGE) and not truth.label.costs_capacity
            for truth in truths[first:last]
        )
        if alone and lost is not None and lost >= LEAST_RHO_BG:
            return first
    return None


def _windows(intervals_s: Sequence[float]) -> Iterator[tuple[int, int]]:
    """The first place of each window of :data:`_DISTURBED_S`, and the one after its last."""
    last, covered_s = 0, 0.0
    for first, interval_s in enumerate(intervals_s):
        while last < len(intervals_s) and covered_s < _DISTURBED_S:
            covered_s += intervals_s[last]
            last += 1
        if covered_s >= _DISTURBED_S:
            yield first, last
        covered_s -= interval_s


@dataclass(frozen=True, slots=True)
class _Work:
    """What a machine did in an interval: CPU time, s, and requests; 0 where not measured."""

    cpu_s: float
    requests: float

    @classmethod
    def of(cls, seen: BackendObservation, interval_s: float) -> _Work:
        if isinstance(seen.sample, NoData) or isinstance(seen.sample.cpu_time_cores, NoData):
            return cls(0.0, 0.0)
        return cls(seen.sample.cpu_time_cores * interval_s, seen.window.requests)


def _work(tick: LabelledTick, machine: str) -> _Work:
    """At the cost that requests usually have."""
    backend = next(b for b in tick.observation.backends if b.name == machine)
    done = _Work.of(backend, tick.observation.interval_s)
    return replace(done, cpu_s=done.cpu_s / tick.truths[machine].cost_factor)


def _work_of_judged(tick: JudgedTick) -> _Work:
    return _Work.of(tick.seen, tick.interval_s)


def _lost(quiet_s: float | None, now_s: float | None, *, cost_factor: float = 1.0) -> float | None:
    """Capacity lost as a request needs more CPU time than it costs, below 0 where it needs less."""
    return None if quiet_s is None or now_s is None else 1.0 - quiet_s * cost_factor / now_s


def _cpu_s_per_request(work: Iterable[_Work]) -> float | None:
    cpu_s = requests = 0.0
    for each in work:
        cpu_s, requests = cpu_s + each.cpu_s, requests + each.requests
    return cpu_s / requests if cpu_s > 0.0 and requests > 0.0 else None
