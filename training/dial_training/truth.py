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
    not known to be quiet.  It is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from dial.settings import GuardSettings
from dial.types import Cause, NoData
from dial_training.replay import JudgedCase, JudgedTick, Studied


def true_rho_bg(studied: Studied, judged: JudgedCase) -> float | None:
    """Of one contended case; ``None`` where it was not measured."""
    truth = judged.case.truth
    return _lost_by_cpu_time(studied, judged) if truth.label is Cause.LLC else truth.rho_bg_true


def _lost_by_cpu_time(studied: Studied, judged: JudgedCase) -> float | None:
    """Capacity lost because a request needs more CPU time than it costs."""
    quiet_s = _cpu_s_per_request(studied.quiet[judged.case.machine])
    now_s = _cpu_s_per_request(judged.ticks)
    if quiet_s is None or now_s is None:
        return None
    return max(0.0, 1.0 - quiet_s * judged.case.truth.cost_factor / now_s)


LEAST_RHO_BG = GuardSettings().engage_rho_bg
"""Below it a neighbour is too weak to be one."""


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


def _cpu_s_per_request(ticks: Sequence[JudgedTick]) -> float | None:
    """CPU seconds over requests that ended, of ticks that have both."""
    cpu_s = requests = 0.0
    for tick in ticks:
        sample = tick.seen.sample
        if isinstance(sample, NoData):
            continue
        cpu_time_cores = sample.cpu_time_cores
        if not isinstance(cpu_time_cores, NoData):
            cpu_s += cpu_time_cores * tick.interval_s
            requests += tick.seen.window.requests
    return cpu_s / requests if cpu_s > 0.0 and requests > 0.0 else None
