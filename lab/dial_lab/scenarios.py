"""What happens in a run: who visits which machine when, and what the tenant's load does.

A scenario is data: a resource (:mod:`dial_lab.resources`), visits of neighbours, and a
swing of the tenant's own load or of its requests' cost.  All of it falls into the
*contended* phase, also where nobody contends, so that reports read alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dial.errors import LabError
from dial_lab.resources import CPU, DISK, LLC, NET, SELF_LIMITED, Resource
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
    """

    machine: int = 0
    begin: float = 0.0
    end: float = 1.0
    resource: Resource | None = None
    program: str = ""


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
    """

    name: str
    text: str
    resource: Resource = CPU
    visits: tuple[Visit, ...] = ()
    rate_factor: float = 1.0
    cost_factor: float = 1.0

    @property
    def victims(self) -> frozenset[int]:
        """Machines that are visited."""
        return frozenset(visit.machine for visit in self.visits)

    def taken_by(self, visit: Visit) -> Resource:
        """What the neighbour of one of the visits takes."""
        return visit.resource or self.resource


NET_AND_CPU = NetResource(replace(NET.cost, fixed="cpu_us=900"))
"""Tenants that need as much of the CPU as of the NIC, so that to lose either is felt.  Measured:
a machine serves 293 requests a second alone, 89 without 0.7 of its NIC and 83 without 0.7 of its
CPU time."""

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
            "a neighbour sweeps the last-level cache that one machine's working set lives in",
            resource=LLC,
            visits=(Visit(),),
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
        Scenario("load", "the tenant's own load grows by half, no neighbour", rate_factor=1.5),
        Scenario("mix", "requests get heavier by half, no neighbour", cost_factor=1.5),
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
