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
_LEAST_PART = 0.8
"""Of what a neighbour was told to take of something that others are at as well, and can take at
most.  A cell in which half is left says nothing of that where it took a quarter: beside so weak a
neighbour all who look at queues are as good as one who knows.  It takes less where strangers have
taken of the victim before: half of the cache and more in quiet hours, 0.22 to 0.56 in others."""

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
    addresses: Mapping[str, Address],
    *,
    rho_bg: float | None,
    seconds: float = CALIBRATION_S,
    program: str = "",
    cost: Cost | None = None,
) -> dict[str, Calibration]:
    """Measure machines alone and beside a neighbour of ``machine``, told to take ``rho_bg``.

    Parameters
    ----------
    children, resource, machine, program
        As in :meth:`dial_lab.resources.Resource.start_neighbour`.
    addresses
        Where applications listen, by machine: ``machine``'s, and those that are at work meanwhile.
    rho_bg
        ``None`` for no neighbour.
    seconds
        Of each of the two measurements.
    cost
        Of the requests; the resource's own if ``None``.

    Returns
    -------
    dict of Calibration
        By machine.

    Raises
    ------
    LabError
        If an application does not answer, or a program ended before its time.
    LabUnquiet
        If somebody outside the lab takes the resource, or the neighbour does not.
    """
    cost = cost or resource.cost
    at_most_s = seconds + SETTLE_S
    with one_cache.watching(children, resource, machine) as watch:

        def served_rps() -> dict[str, float]:
            saturation_rps_together(addresses, cost, SETTLE_S)
            begin_s = time.monotonic()
            rps = saturation_rps_together(addresses, cost, seconds)
            end_s = time.monotonic()
            # A neighbour that could not even start would pass for one that takes nothing.
            children.check()
            if watch is not None:
                watch.require_together(begin_s, end_s)
            return rps

        quiet_rps = served_rps()
        _require_quiet(resource, machine, quiet_rps[machine.name], cost)
        if rho_bg is None:
            return {name: Calibration(rps, rps) for name, rps in quiet_rps.items()}
        neighbour = resource.start_neighbour(children, machine, rho_bg, at_most_s, program)
        try:
            contended_rps = served_rps()
        finally:
            children.stop(neighbour)
    found = {name: Calibration(quiet_rps[name], contended_rps[name]) for name in addresses}
    _require_taken(resource, machine, found[machine.name], rho_bg)
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
    if resource.in_common is None:
        return
    saturation_rps(address, resource.cost, SETTLE_S)  # what it has to have at hand, and no queue
    quiet_rps = saturation_rps(address, resource.cost, SETTLE_S)
    _require_quiet(resource, machine, quiet_rps, resource.cost)


def _require_quiet(resource: Resource, machine: Machine, quiet_rps: float, cost: Cost) -> None:
    if resource.in_common is None:
        return
    at_most_ns = resource.in_common.slowest_quiet_ns
    unit_ns = cost.unit_ns(quiet_rps, machine.capacity_cores)
    if unit_ns > at_most_ns:
        raise LabUnquiet(
            f"{resource.name}: somebody outside the lab takes it: with no neighbour started "
            f"{machine.name} needs {unit_ns:.0f} ns of CPU time for one of its {cost.parameter}, "
            f"{at_most_ns:g} at most is quiet; try again later, or end other programs"
        )


def _require_taken(resource: Resource, machine: Machine, found: Calibration, rho_bg: float) -> None:
    if resource.in_common is None:
        return
    least = _LEAST_PART * min(rho_bg, resource.in_common.most_rho_bg)
    if found.rho_bg < least:
        raise LabUnquiet(
            f"{resource.name}: the neighbour of {machine.name} takes {found.rho_bg:.2f} of it "
            f"where {rho_bg:.2f} were asked for, {least:.2f} is the least; try again later"
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
    that nobody visits is what the first one is alone.  Where a cache is taken all are measured at
    work together, as they are in a block.  Swept, siblings are machines of another kind, and the
    neighbour has of their core what they leave of it: beside siblings at rest it left the victim 87
    to 105 requests a second of 165, beside siblings at work 117 to 153.  And where lines are taken,
    a core that rests most of the time is slow when it does not: 73 to 104 requests a second were
    left of 145 beside siblings at rest, 71 to 85 beside siblings at work.

    Returns
    -------
    tuple of Calibration
        One for each machine, in order.
    """

    def beside(
        machine: Machine, resource: Resource, rho_bg: float | None, program: str = ""
    ) -> dict[str, Calibration]:
        at_work = machines if resource.calibrated_together else (machine,)
        return calibrate(
            children,
            resource,
            machine,
            {each.name: addresses[each.name] for each in at_work},
            rho_bg=rho_bg,
            program=program,
            cost=scenario.resource.cost,
        )

    by_kind: dict[tuple[str, str], Calibration] = {}
    found: dict[str, Calibration] = {}
    for visit in scenario.visits:
        machine, resource = machines[visit.machine], scenario.taken_by(visit)
        kind = (resource.name, visit.program)
        if kind not in by_kind:
            found |= beside(machine, resource, rho_bg, visit.program)
            by_kind[kind] = found[machine.name]
        found[machine.name] = by_kind[kind]
    first = machines[0].name
    if first not in found:
        found |= beside(machines[0], scenario.resource, None)
    nobody = Calibration(found[first].quiet_rps, found[first].quiet_rps)
    return tuple(found.get(machine.name, nobody) for machine in machines)


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
