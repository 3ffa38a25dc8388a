"""What a machine can really do, measured at the start of each run.

``rho_bg`` is *defined* as the share of capacity that is lost, so it is measured as that:
saturation throughput with the neighbour over saturation throughput without.  Eight clients
in a closed loop keep the application busy all the time; each request asks for the mean cost,
a constant, so that three seconds are enough (some 400 requests).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dial.errors import LabError
from dial_lab.addresses import Address
from dial_lab.client import Pool
from dial_lab.processes import Children
from dial_lab.resources import Cost, Resource
from dial_lab.topology import Machine

_CLIENTS = 8
_SETTLE_S = 0.7
"""A neighbour needs a moment to get going."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Saturation throughput of one machine, requests per second."""

    quiet_rps: float
    contended_rps: float
    """Equal to ``quiet_rps`` in a run without a neighbour."""

    @property
    def rho_bg(self) -> float:
        """The share of capacity that the neighbour takes."""
        return 1.0 - self.contended_rps / self.quiet_rps

    def rate_per_s(self, load: float, machines: int, victims: int) -> float:
        """Arrival rate that is ``load`` of all machines' capacity during contention."""
        return load * ((machines - victims) * self.quiet_rps + victims * self.contended_rps)

    def load(self, rate_per_s: float, machines: int, victims: int) -> float:
        """The inverse of :meth:`rate_per_s`."""
        return rate_per_s / self.rate_per_s(1.0, machines, victims)


def saturation_rps(address: Address, cost: Cost, duration_s: float) -> float:
    """Throughput of a server that always has something to do, at the mean cost.

    Raises
    ------
    LabError
        If it answers anything but 200.
    """
    return asyncio.run(_saturate(address, cost, duration_s))


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
    # From the first answer on: before it there are connections to open and a quota saved up.
    return (len(end_s) - 1) / (end_s[-1] - end_s[0])


def calibrate(
    children: Children,
    resource: Resource,
    machine: Machine,
    address: Address,
    *,
    rho_bg: float | None,
    seconds: float = 3.0,
) -> Calibration:
    """Measure ``machine`` alone and beside a neighbour told to take ``rho_bg``."""
    quiet_rps = saturation_rps(address, resource.cost, seconds)
    if rho_bg is None:
        return Calibration(quiet_rps, quiet_rps)
    neighbour = resource.start_neighbour(children, machine, rho_bg, seconds + _SETTLE_S)
    try:
        saturation_rps(address, resource.cost, _SETTLE_S)
        return Calibration(quiet_rps, saturation_rps(address, resource.cost, seconds))
    finally:
        children.stop(neighbour)
