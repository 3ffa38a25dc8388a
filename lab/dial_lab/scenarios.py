"""What happens in a run: who visits which machine when, and what the tenant's load does.

A scenario is data: a resource (:mod:`dial_lab.resources`), visits of neighbours, and
swings of the tenant's own load or of its requests' cost.  All of it falls into the
*contended* phase, also where nobody contends, so that reports read alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from dial.errors import LabError
from dial_lab.arrivals import Swing
from dial_lab.resources import CPU, DISK, INTRA_APP, LINES, LLC, NET, SELF_LIMITED, Resource
from dial_lab.resources.lines import TAKER
from dial_lab.resources.llc import STEADY, can_be_taken
from dial_lab.resources.net import NetResource


@dataclass(frozen=True, slots=True)
class Visit:
    """A neighbour beside one machine for a part of the contended phase.

    Attributes
    ----------
    machine
        Index of the machine.
    begin, end
        Fractions of the contended phase.
    resource
        What it takes; the scenario's own resource if ``None``.
    program
        Which of that resource's programs it is; the first one when empty.
    part
        Of what neighbours of this run take.
    """

    machine: int = 0
    begin: float = 0.0
    end: float = 1.0
    resource: Resource | None = None
    program: str = ""
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of run.

    Attributes
    ----------
    name, text
        As typed, and as listed.
    resource
        What requests cost, and what neighbours take that are not told otherwise.
    visits
        Of neighbours; none in scenarios that are about the tenant alone.
    rate_factor
        The arrival rate in the contended phase over that before and after it.
    cost_factor
        The same for the mean cost of a request.
    days
        How many days the contended phase is, if any.  The arrival rate then follows the hours
        of the day (:func:`day_factors`) about its mean, and ``rate_factor`` is that of the
        busiest hour over that of the quietest.
    own_doing
        What visits is the tenant's own and takes nothing from it: the true rho_bg is 0.
    steps
        Parts of what the neighbour takes, one after the other for equal times, where isolation
        is measured (:mod:`dial_lab.isolation`).
    contended_s
        How long the contended phase is unless told otherwise.
    """

    name: str
    text: str
    resource: Resource = CPU
    visits: tuple[Visit, ...] = ()
    rate_factor: float = 1.0
    cost_factor: float = 1.0
    days: int = 0
    own_doing: bool = False
    steps: tuple[float, ...] = ()
    contended_s: float = 45.0

    def program_of(self, visit: Visit) -> str:
        """The neighbour's name among the programs of what it takes."""
        return visit.program or next(iter(self.taken_by(visit).programs))

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The programs that visit, each once."""
        return tuple(sorted({self.program_of(visit) for visit in self.visits}))

    @property
    def victims(self) -> frozenset[int]:
        """Machines that are visited."""
        return frozenset(visit.machine for visit in self.visits)

    def taken_by(self, visit: Visit) -> Resource:
        """What the neighbour of one of the visits takes."""
        return visit.resource or self.resource

    def swings(self, begin_s: float, end_s: float) -> list[Swing]:
        """The tenant's own load in a contended phase from ``begin_s`` to ``end_s``."""
        rates = day_factors(self.rate_factor) * self.days if self.days else (self.rate_factor,)
        length_s = (end_s - begin_s) / len(rates)
        edges_s = [begin_s + number * length_s for number in range(len(rates))] + [end_s]
        return [
            Swing(from_s, to_s, rate, self.cost_factor)
            for (from_s, to_s), rate in zip(pairwise(edges_s), rates, strict=True)
        ]


def day_factors(busiest_over_quietest: float) -> tuple[float, ...]:
    """Arrival rate of each of 24 hours over their mean: a sine that starts in the morning.

    With a = (f - 1)/(f + 1) the rate is 1 + a sin(2 pi hour/24): at most 1 + a, at least 1 - a, f
    times less.  It begins and ends at the mean, so nothing jumps where the day begins.
    """
    amplitude = (busiest_over_quietest - 1.0) / (busiest_over_quietest + 1.0)
    return tuple(1.0 + amplitude * math.sin(2.0 * math.pi * hour / 24.0) for hour in range(24))


NET_AND_CPU = NetResource(replace(NET.cost, fixed="cpu_us=900"))
"""Tenants that need as much of the CPU as of the NIC, so that to lose either is felt.  Measured:
a machine serves 293 requests a second alone, 89 without 0.7 of its NIC and 83 without 0.7 of its
CPU time."""


def in_the_cache(*, swept: bool) -> tuple[Resource, str]:
    """What a neighbour in the cache takes, and the program that it is.

    Parameters
    ----------
    swept
        Whether one core can take the last level by sweeping through it; else it takes the lines
        that its victim has there.
    """
    return (LLC, STEADY) if swept else (LINES, TAKER)


_CACHE, _IN_CACHE = in_the_cache(swept=can_be_taken())

TENTHS = tuple(step / 10 for step in range(11))

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("none", "no neighbour: what a policy does when there is nothing to do"),
        Scenario(
            "cpu", "a neighbour takes CPU time of one machine, and goes again", visits=(Visit(),)
        ),
        Scenario(
            "disk",
            "a neighbour works on the disk of one machine, and stops again",
            resource=DISK,
            visits=(Visit(),),
        ),
        Scenario(
            "llc",
            "a neighbour takes the cache that one machine's working set lives in",
            resource=_CACHE,
            visits=(Visit(program=_IN_CACHE),),
        ),
        Scenario(
            "net",
            "a neighbour sends through the NIC of one machine, and stops again",
            resource=NET,
            visits=(Visit(),),
        ),
        Scenario(
            "two-victims",
            "neighbours take CPU time of two machines, the second from a third of the time on",
            visits=(Visit(0), Visit(1, begin=1 / 3)),
        ),
        Scenario(
            "all-slow",
            "neighbours take CPU time of every machine: there is nowhere to move load to",
            visits=(Visit(0), Visit(1), Visit(2)),
        ),
        Scenario(
            "mixed",
            "neighbours take one machine's NIC, and later another one's CPU",
            resource=NET_AND_CPU,
            visits=(Visit(0), Visit(1, begin=1 / 3, resource=CPU)),
        ),
        Scenario(
            "self-limited",
            "no neighbour, but one VM has a CPU quota of its own for a while",
            resource=SELF_LIMITED,
            visits=(Visit(),),
        ),
        Scenario(
            "intra-app",
            "no neighbour, but one VM's application blocks itself with a lock for a while",
            resource=INTRA_APP,
            visits=(Visit(),),
            own_doing=True,
        ),
        Scenario(
            "harmony",
            "a neighbour takes CPU time of one machine, from nothing to all it may in ten steps",
            visits=tuple(
                Visit(0, step / len(TENTHS), (step + 1) / len(TENTHS), part=part)
                for step, part in enumerate(TENTHS)
                if part
            ),
            steps=TENTHS,
            contended_s=110.0,
        ),
        Scenario("load", "the tenant's own load grows by half, no neighbour", rate_factor=1.5),
        Scenario("mix", "requests get heavier by half, no neighbour", cost_factor=1.5),
        Scenario(
            "day-night",
            "the tenant's own load is three times as high by day as by night, six days, "
            "no neighbour",
            rate_factor=3.0,
            days=6,
        ),
    )
}


def scenario(name: str) -> Scenario:
    """Look a scenario up.

    Raises
    ------
    LabError
        If there is none of that name; lists those there are.
    """
    if name not in SCENARIOS:
        raise LabError(f"scenario {name}: no such scenario; allowed: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
