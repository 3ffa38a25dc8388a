"""What a machine can really do, measured at the start of each run.

``rho_bg`` is *defined* as the share of capacity that is lost, so it is measured as that:
saturation throughput with the neighbour over saturation throughput without.  Eight clients
in a closed loop keep the application busy all the time; each request asks for the mean cost,
a constant, so that three seconds are enough (some 400 requests).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dial.errors import LabError, LabUnquiet
from dial_lab import one_cache
from dial_lab.addresses import Address
from dial_lab.client import Pool
from dial_lab.processes import Children
from dial_lab.resources import Cost, Resource
from dial_lab.scenarios import Scenario
from dial_lab.topology import Machine

_CLIENTS = 8
CALIBRATION_S = 3.0
"""Some 400 requests of a machine."""
_LEAST_PART = 0.5
"""Of what a neighbour was told to take of something that others are at as well.  Of the cache it
took nothing in one of ten runs, and a run beside nobody says nothing of a controller."""

SETTLE_S = 0.7
"""A neighbour needs a moment to get going."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Saturation throughput of one machine, requests per second."""

    quiet_rps: float
    contended_rps: float
    """Equal to ``quiet_rps`` where no neighbour comes."""

    @property
    def rho_bg(self) -> float:
        """The share of capacity that the neighbour takes."""
        return 1.0 - self.contended_rps / self.quiet_rps


def saturation_rps(address: Address, cost: Cost, duration_s: float) -> float:
    """Throughput of a server that always has something to do, at the mean cost.

    Raises
    ------
    LabError
        If it answers anything but 200.
    """
    return asyncio.run(_saturate(address, cost, duration_s))


def saturation_rps_together(
    addresses: Mapping[str, Address], cost: Cost, duration_s: float
) -> dict[str, float]:
    """The same of several servers at the same time, by name.

    Raises
    ------
    LabError
        If one of them answers anything but 200.
    """

    async def together() -> list[float]:
        return await asyncio.gather(
            *(_saturate(address, cost, duration_s) for address in addresses.values())
        )

    return dict(zip(addresses, asyncio.run(together()), strict=True))


async def _saturate(address: Address, cost: Cost, duration_s: float) -> float:
    loop = asyncio.get_running_loop()
    pool = Pool(*address)
    target = cost.target(int(cost.mean))
    end_s: list[float] = []
    stopped = loop.create_future()
    start_s = loop.time()

    def again(status: int, _: bytes) -> None:
        if stopped.done():
            return
        if status != 200:
            stopped.set_exception(LabError(f"calibration: the app answered {status} to {target}"))
            return
        end_s.append(loop.time())
        if end_s[-1] - start_s >= duration_s:
            stopped.set_result(None)
        else:
            pool.get(target, again)

    for _ in range(_CLIENTS):
        pool.get(target, again)
    try:
        await asyncio.wait_for(stopped, duration_s + 30.0)
    except TimeoutError:
        raise LabError(f"calibration: the app at {address} gave no answer in 30 s") from None
    finally:
        await pool.aclose()
    if len(end_s) < 2:
        raise LabError(f"calibration: the app at {address} gave one answer in {duration_s:g} s")
    # From the first answer on: before it there are connections to open and a quota saved up.
    return (len(end_s) - 1) / (end_s[-1] - end_s[0])


def calibrate(
    children: Children,
    resource: Resource,
    machine: Machine,
    address: Address,
    *,
    rho_bg: float | None,
    seconds: float = CALIBRATION_S,
    program: str = "",
    cost: Cost | None = None,
) -> Calibration:
    """Measure ``machine`` alone and beside a neighbour told to take ``rho_bg``.

    Parameters
    ----------
    children, resource, machine, program
        As in :meth:`dial_lab.resources.Resource.start_neighbour`.
    address
        Where the machine's application listens.
    rho_bg
        ``None`` for no neighbour.
    seconds
        Of each of the two measurements.
    cost
        Of the requests; the resource's own if ``None``.

    Raises
    ------
    LabError
        If the application does not answer, or a program ended before its time.
    LabUnquiet
        If somebody outside the lab takes the resource, or the neighbour does not.
    """
    cost = cost or resource.cost
    at_most_s = seconds + SETTLE_S
    with one_cache.watching(children, resource, machine) as watch:
        quiet_rps = saturation_rps(address, cost, seconds)
        _require_quiet(resource, machine, quiet_rps, cost)
        if rho_bg is None:
            return Calibration(quiet_rps, quiet_rps)
        neighbour = resource.start_neighbour(children, machine, rho_bg, at_most_s, program)
        try:
            saturation_rps(address, cost, SETTLE_S)
            begin_s = time.monotonic()
            contended_rps = saturation_rps(address, cost, seconds)
            end_s = time.monotonic()
            # A neighbour that could not even start would pass for one that takes nothing.
            children.check()
        finally:
            children.stop(neighbour)
        if watch is not None:
            watch.require_together(begin_s, end_s)
    found = Calibration(quiet_rps, contended_rps)
    if resource.slowest_quiet_ns is not None and found.rho_bg < _LEAST_PART * rho_bg:
        raise LabUnquiet(
            f"{resource.name}: the neighbour of {machine.name} takes {found.rho_bg:.2f} of it "
            f"where {rho_bg:.2f} were asked for, {_LEAST_PART * rho_bg:.2f} is the least; "
            "try again later"
        )
    return found


def require_alone(resource: Resource, machine: Machine, address: Address) -> None:
    """That nobody outside the lab takes what ``machine`` would lose to a neighbour.

    Takes a second and a half, and none where strangers cannot take it.

    Raises
    ------
    LabUnquiet
        If somebody does.
    LabError
        If the application does not answer.
    """
    if resource.slowest_quiet_ns is None:
        return
    saturation_rps(address, resource.cost, SETTLE_S)  # what it has to have at hand, and no queue
    quiet_rps = saturation_rps(address, resource.cost, SETTLE_S)
    _require_quiet(resource, machine, quiet_rps, resource.cost)


def _require_quiet(resource: Resource, machine: Machine, quiet_rps: float, cost: Cost) -> None:
    at_most_ns = resource.slowest_quiet_ns
    if at_most_ns is None:
        return
    unit_ns = cost.unit_ns(quiet_rps, machine.capacity_cores)
    if unit_ns > at_most_ns:
        raise LabUnquiet(
            f"{resource.name}: somebody outside the lab takes it: with no neighbour started "
            f"{machine.name} needs {unit_ns:.0f} ns of CPU time for one of its {cost.parameter}, "
            f"{at_most_ns:g} at most is quiet; try again later, or end other programs"
        )


def calibrate_all(
    children: Children,
    scenario: Scenario,
    machines: Sequence[Machine],
    addresses: Mapping[str, Address],
    *,
    rho_bg: float,
) -> tuple[Calibration, ...]:
    """Measure what a scenario's neighbours leave of each machine.

    Machines are alike: each kind of neighbour is measured where it comes first, and a machine
    that nobody visits is what the first one is alone.  Where the victim stands apart its siblings
    are machines of another kind, on one core: they are measured, together.  They are made to serve
    what the victim does as a run begins, and that changes: 141 and 144 requests a second beside
    its 144 in one run, 80 to 90 beside 90 to 130 in another.

    Returns
    -------
    tuple of Calibration
        One for each machine, in order.
    """
    cost = scenario.resource.cost
    by_kind: dict[tuple[str, str], Calibration] = {}
    visited: dict[int, Calibration] = {}
    for visit in scenario.visits:
        resource = scenario.taken_by(visit)
        kind = (resource.name, visit.program)
        if kind not in by_kind:
            machine = machines[visit.machine]
            by_kind[kind] = calibrate(
                children,
                resource,
                machine,
                addresses[machine.name],
                rho_bg=rho_bg,
                program=visit.program,
                cost=cost,
            )
        visited[visit.machine] = by_kind[kind]
    first = machines[0]
    alone = visited.get(0) or calibrate(
        children, scenario.resource, first, addresses[first.name], rho_bg=None
    )
    nobody = Calibration(alone.quiet_rps, alone.quiet_rps)
    found = [visited.get(number, nobody) for number in range(len(machines))]
    if scenario.resource.victim_apart:
        siblings = [number for number in range(1, len(machines)) if number not in visited]
        names = {machines[number].name: addresses[machines[number].name] for number in siblings}
        with one_cache.watching(children, scenario.resource, first) as watch:
            saturation_rps_together(names, cost, SETTLE_S)
            begin_s = time.monotonic()
            served = saturation_rps_together(names, cost, CALIBRATION_S)
            if watch is not None:
                watch.require_together(begin_s, time.monotonic())
        for number in siblings:
            served_rps = served[machines[number].name]
            found[number] = Calibration(served_rps, served_rps)
    return tuple(found)


def middle(several: Sequence[Sequence[Calibration]]) -> tuple[Calibration, ...]:
    """Of machines that were measured several times: the median of each figure, by machine.

    Examples
    --------
    >>> middle([[Calibration(160.0, 70.0)], [Calibration(138.0, 75.0)], [Calibration(140.0, 90.0)]])
    (Calibration(quiet_rps=140.0, contended_rps=75.0),)
    """
    return tuple(
        Calibration(
            median(each.quiet_rps for each in machine),
            median(each.contended_rps for each in machine),
        )
        for machine in zip(*several, strict=True)
    )
