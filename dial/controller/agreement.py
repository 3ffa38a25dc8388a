"""When one interval is enough: where T_x, the balancer's choice and the resource say the same.

Or where the wait for the CPU or the disk alone leaves no doubt, and T_x does not speak against it.

Problem
    Of one interval T_x says next to nothing, so load moves after two, and each second of waiting is
    a second of tail.  Two other witnesses are heard in the same interval, and may be sure.

Formula
    Each witness says what a neighbour would take, r_i with its standard error s_i: T_x beside the
    siblings (:mod:`dial.controller.control_groups`), what the balancer gives it beside the siblings
    (:mod:`dial.controller.passed_over`), and the resource beside the siblings, by the time it is
    waited for where that is the CPU or the disk, or by the CPU time of a request where it is the
    cache; and if that tells of a half of what load is moved for, but not of all, by the time of a
    request at the CPU, using it and waiting for it.  With b the least that load is moved for, they
    agree when for all i

        r_i >= b,    z_i = r_i / s_i >= 1.5,    and    sqrt(sum min(z_i, 3.5)^2) >= 4.5.

    While load is shifted the balancer's choice says nothing, and the other two have to be as sure
    by themselves, which takes both at 2.8.  What the neighbour takes is then the middle of what
    they say.  T_x of one interval is off by a half of it; the agent's sample is partly of the time
    before, and the balancer's choice says too little at little load.

    The wait is the surest of the three by far: of 25 requests s is 0.05 where that of T_x is 0.25.
    Where it would be enough alone, r >= b and z >= 4, T_x has but not to speak against it, r > 0
    and r + s >= b, and the balancer's choice is not asked.

Regimes
    one witness that is very sure
        It counts as 3.5, so that the others have to be sure at two: under least connections a
        server that waits for a database is passed over, and its few requests look dearer.
    a suspicion that has lasted
        Errors are of all its intervals, but each witness has to say so of the newest alone: without
        20 requests there is no T_x, and what a sample tells of a second that is over is no reason
        to move load now.
    a second victim
        Load is shifted already.  In 75 simulated hours of three backends that had a neighbour for a
        third of the time each, two witnesses were enough 61 times, each time for one that was
        there.  Behind a round robin, which has no third witness in quiet times either, two
        intervals are waited for, unless the CPU is waited for without a doubt.
    it is the CPU, and looks like the cache
        Who waits for a processor pays for it in CPU time too.  Half an interval of such a neighbour
        would be named for good, so the cache is not accused at once where the CPU is waited for.
    little load
        The balancer's choice says nothing of who is idle most of the time, and T_x of one interval
        next to nothing: it is the wait that load moves by.  Of 24 recorded blocks beside a
        neighbour on the CPU, at a quarter of the load, load left it after 3.7 s in the mean; after
        5.4 s, and in one never, as long as T_x had to say as much.
    it looks like the CPU or the disk, and is another resource
        What is waited for then explains less than a half of T_x; two intervals are waited for.
    costs that vary much
        One heavy request shows by all three: where the CPU time of a request varies by much more
        than its mean (:mod:`dial.controller.noise`), one interval is never enough.  One of them
        in some minutes is enough to be known.
    it has come back
        What comes again within ten minutes of its release, as a garbage collection does, has to be
        seen for two intervals like anything else (:func:`dial.controller.engage.engage`).
    the detector
        Of a first interval it is not sure by T_x however slow that is, so that it takes a CPU that
        surely gives less, by 3 standard errors, to be asked at all (:mod:`dial.controller.judge`).

Source
    Own.  The three are not independent, and the bounds are not those of a chance: simulated with
    the controller in the loop, three backends at half and three quarters of their capacity under
    least connections, exponential costs, they were met in none of 10 hours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median, pstdev
from typing import Literal

from dial.controller.classify import lost_by
from dial.controller.comparison import Comparison
from dial.controller.finding import Finding
from dial.controller.look import Look
from dial.controller.passed_over import SHIFTED
from dial.controller.policy import Policy
from dial.controller.siblings import Siblings
from dial.estimator import RhoBg
from dial.types import Cause, NoData

_LEAST_DEVIATIONS, _MOST_DEVIATIONS = 1.5, 3.5
"""z_i has to be as much, and counts no more."""

_TOGETHER_DEVIATIONS = 4.5
"""Three at 2.6; or one at 3.5, and two at 2."""

_LEAST_EXPLAINED = 0.5
"""Of rho_bg by T_x, by the wait: T_x of one interval is off by as much."""

_WAITED_FOR = frozenset({Cause.CPU, Cause.DISK})
"""Resources whose wait the VM measures itself."""

_LEAST_OF_USE = 0.5
"""Of what load is moved for, by the CPU time alone, where a cache is accused."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the witnesses of one interval say, as all say that a neighbour is there.

    Attributes
    ----------
    by_t_x, by_resource, by_rate
        What it would take by each of them; the last is ``None`` where it was not asked.
    of
        Of what the VM shows the second.
    """

    by_t_x: RhoBg
    by_resource: RhoBg
    by_rate: RhoBg | None = None
    of: Literal["CPU", "disk"] = "CPU"

    @property
    def witnesses(self) -> tuple[RhoBg, ...]:
        """Those that say anything."""
        both = self.by_t_x, self.by_resource
        return both if self.by_rate is None else (*both, self.by_rate)

    @property
    def rho_bg(self) -> RhoBg:
        """What it takes: the middle one, as unsure as they differ."""
        means = [one.mean for one in self.witnesses]
        return RhoBg(median(means), pstdev(means))

    def __str__(self) -> str:
        by_rate = (
            "" if self.by_rate is None else f"{self.by_rate.mean:.2f} by the balancer's choice, "
        )
        by_its = f"{self.by_resource.mean:.2f} by its {self.of}"
        return f"all say so: {self.by_t_x.mean:.2f} by T_x, {by_rate}{by_its}"


def agreement(
    policy: Policy, look: Look, found: Finding, beside: Comparison, siblings: Siblings
) -> Agreement | None:
    """The witnesses of an interval, if all of them speak for a neighbour and are sure of it.

    Parameters
    ----------
    policy : for the least that load is moved for.
    look : the backend's interval.
    found : what the classifier makes of it.
    beside : the backend beside its siblings by T_x.
    siblings : what they suffer.
    """
    by_resource = siblings.by_resource(look.row, found.cause)
    if by_resource is None or not siblings.noise.alike[look.row]:
        return None
    agreed = _all_agree(policy, look, found.cause, (beside, by_resource), siblings)
    if agreed is not None or isinstance(found.rho_bg, NoData):
        return agreed
    now = _by_resource_now(look, found.cause) >= policy.guards.engage_rho_bg
    explained = by_resource.excess.mean >= _LEAST_EXPLAINED * found.rho_bg.mean
    if now and explained and waits_without_doubt(policy, found, beside, by_resource):
        return Agreement(found.rho_bg, by_resource.excess, of=_shows(found.cause))
    return None


def waits_without_doubt(
    policy: Policy, found: Finding, beside: Comparison, by_resource: Comparison
) -> bool:
    """Whether CPU or disk are waited for without a doubt, and T_x does not speak against it.

    Parameters
    ----------
    policy : for the least that load is moved for.
    found : what the classifier makes of the interval.
    beside, by_resource : the backend beside its siblings, by T_x and by what the resource gives.
    """
    least, by_t_x = policy.guards.engage_rho_bg, beside.excess
    against = by_t_x.mean <= 0.0 or by_t_x.mean + by_t_x.sd < least
    return found.cause in _WAITED_FOR and by_resource.exceeds(least, alone=True) and not against


def _all_agree(
    policy: Policy,
    look: Look,
    cause: Cause,
    compared: tuple[Comparison, Comparison],
    siblings: Siblings,
) -> Agreement | None:
    """The same where all three have to be sure; ``compared`` by T_x, and by the resource."""
    least = policy.guards.engage_rho_bg
    beside, by_resource = compared
    if cause is Cause.LLC and _LEAST_OF_USE * least <= by_resource.excess.mean < least:
        # A VM that uses more of the CPU waits for more of it, and both are lost.
        at_cpu = siblings.by_cpu_residence(look.row)
        by_resource = by_resource if isinstance(at_cpu, NoData) else at_cpu
    # What it said before load was shifted is not of this interval.
    by_rate = None if _is_shifted(look) else siblings.by_rate(look.row)
    if isinstance(by_rate, NoData) or beside.shared or not _say_so_now(policy, look, cause):
        return None
    if cause is Cause.LLC and _waits(siblings, look.row, least):
        return None
    agreed = Agreement(beside.excess, by_resource.excess, by_rate, of=_shows(cause))
    deviations = [one.mean / one.sd for one in agreed.witnesses]
    if min(one.mean for one in agreed.witnesses) < least or min(deviations) < _LEAST_DEVIATIONS:
        return None
    together = math.hypot(*(min(one, _MOST_DEVIATIONS) for one in deviations))
    return agreed if together >= _TOGETHER_DEVIATIONS else None


def _is_shifted(look: Look) -> bool:
    """Whether the balancer's choice says nothing because load is shifted somewhere."""
    return look.looks.passed_over is SHIFTED


def _say_so_now(policy: Policy, look: Look, cause: Cause) -> bool:
    """Whether each of the witnesses says it of this interval alone, however sure."""
    read, row, least = look.looks.read, look.row, policy.guards.engage_rho_bg
    by_rate = math.inf if _is_shifted(look) else read.rate[row]
    by_t_x = lost_by(policy, look, Cause.UNKNOWN)
    if isinstance(by_t_x, NoData):
        return False
    return bool(
        by_t_x.mean >= least and by_rate >= least and _by_resource_now(look, cause) >= least
    )


def _by_resource_now(look: Look, cause: Cause) -> float:
    """What the resource says of this interval alone."""
    read = look.looks.read
    if cause is Cause.LLC:
        return float(1.0 - 1.0 / read.residence[look.row])
    return float((read.disk if cause is Cause.DISK else read.wait)[look.row])


def _shows(cause: Cause) -> Literal["CPU", "disk"]:
    """What of the VM shows a cause."""
    return "disk" if cause is Cause.DISK else "CPU"


def _waits(siblings: Siblings, row: int, least: float) -> bool:
    by_wait = siblings.by_cpu_wait(row)
    return not isinstance(by_wait, NoData) and by_wait.excess.mean >= least
