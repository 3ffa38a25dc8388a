r"""The balancer as a witness: one that counts requests in flight passes a slow backend over.

Problem
    Such a policy moves load away from the first slow request on.  That is its merit, and what makes
    a neighbour hard to see: T_x of a backend that gets less rises little, where under a round robin
    its queue gives it away within a second.  What gives it away here is its rate.

Formula
    Least connections keep requests in flight even, so by Little's law rate * T is the same for all;
    with M/M/1 at each, where 1/T = mu (1 - rho_bg) - rate, that leaves

        rate / rate of a quiet sibling = 1 - rho_bg

    The residual x = ln(mean rate of its siblings / own rate) is watched as that of T_x is
    (:mod:`dial.detector.cusum`), against the backend's own quiet past: weights and machines that
    differ are normal.  With m the mean of the quiet x, and n requests, a neighbour would take

        rho_bg = 1 - exp(m - x),    sd = exp(m - x) sqrt(1/n + 1/n_siblings)

    the latter of Poisson arrivals, which a policy that evens out stays below.

Regimes
    much load
        As above.  Measured under least connections at two thirds of the capacity left, three
        backends, rho_bg 0.63: rates of 28 to 46 beside 67 to 95 in each of the first two seconds,
        5 to 9 standard deviations of the quiet x, where the sum over T_x was at 1 to 4 of 6.
    little load
        Idle backends take turns whatever their pace: what is read is too little, never too much.
    round robin
        Rates are what the weights say: no witness.  Nor is it one while load is shifted.
    other reasons
        A server that starts slowly, a limit of its connections, somebody's new weights: then it has
        less to do, and T_x falls.  So this counts only where T_x speaks the same way.

Source
    Own; Little, Operations Research 9, 1961.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dial.estimator import RhoBg
from dial.types import NoData, Observation, WeightKind

_BY_WEIGHT_ALONE = NoData("the balancer gives requests by weight alone")
_SHIFTED = NoData("load is shifted")
_OUT = NoData("the balancer does not use it, or no other one")
_NO_REQUESTS = NoData("no requests to compare")


@dataclass(frozen=True, slots=True)
class PassedOver:
    """By how much less than its siblings a backend is given.

    Attributes
    ----------
    residual
        x, the logarithm of the siblings' mean rate over its own.
    sd
        Of Poisson arrivals.
    """

    residual: float
    sd: float

    def rho_bg(self, quiet: float) -> RhoBg:
        """What a neighbour takes if the residual is ``quiet`` without one.

        Examples
        --------
        >>> PassedOver(residual=math.log(2.0), sd=0.2).rho_bg(quiet=0.0)
        RhoBg(mean=0.5, sd=0.1, surprise=0)
        """
        left = math.exp(quiet - self.residual)
        return RhoBg(1.0 - left, left * self.sd)


def passed_over(observation: Observation, *, quiet: bool) -> Mapping[str, PassedOver | NoData]:
    """Each backend's rate beside that of the others, or why it says nothing.

    Parameters
    ----------
    observation : of this tick.
    quiet : no load is shifted anywhere.
    """
    meaning = observation.meaning
    if meaning.kind is WeightKind.REQUESTS and not meaning.in_flight_bias:
        return {b.name: _BY_WEIGHT_ALONE for b in observation.backends}
    if not quiet:
        return {b.name: _SHIFTED for b in observation.backends}
    rates = {b.name: b.window.rate_per_s for b in observation.backends if b.server.usable}
    total, others = sum(rates.values()), len(rates) - 1

    def beside(name: str) -> PassedOver | NoData:
        if name not in rates or not others:
            return _OUT
        own, rest = rates[name], total - rates[name]
        if own <= 0.0 or rest <= 0.0:
            return _NO_REQUESTS
        sd = math.sqrt((1.0 / own + 1.0 / rest) / observation.interval_s)
        return PassedOver(math.log(rest / others / own), sd)

    return {b.name: beside(b.name) for b in observation.backends}
