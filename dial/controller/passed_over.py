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

        rho_bg = 1 - exp(m - x),    sd = d rho_bg / (x - m)

    d is the deviation of the quiet x, and that of Poisson arrivals, sqrt(1/n + 1/n_siblings), as
    far as little is learnt (:mod:`dial.controller.noise`): a policy that evens out stays below the
    latter where requests cost about the same, and above where they do not.  rho_bg over sd is then
    what x is over its own deviation: by the derivative at rho_bg 0.6 it would be 1.6 times as much,
    and heavy requests were sure to be a neighbour.

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

from dataclasses import dataclass

import numpy as np

from dial.columns import Bools, Columns, Floats
from dial.types import NoData, Observation, WeightKind

_BY_WEIGHT_ALONE = NoData("the balancer gives requests by weight alone")
SHIFTED = NoData("weights are not the configured ones")

_NOTHING = 1e-9
"""Of a residual: where its derivative says as much as the difference."""


@dataclass(frozen=True, slots=True, eq=False)
class PassedOver(Columns):
    """By how much less than their siblings backends are given, (n,).

    Attributes
    ----------
    residual
        x, the logarithm of the siblings' mean rate over its own; NaN of one that the balancer does
        not use, that has no siblings, and where there are no requests to compare.
    sd
        Of Poisson arrivals.
    requests
        It rests on so many of its own.
    """

    residual: Floats
    sd: Floats
    requests: Floats

    def rho_bg(self, quiet: Floats, quiet_sd: Floats) -> tuple[Floats, Floats]:
        """What a neighbour takes if the residual is ``quiet`` (n,) without one: mean and sd.

        The ratio of the two is that of the residual to ``quiet_sd`` (n,).

        Examples
        --------
        >>> given = PassedOver(np.log([2.0]), sd=np.array([0.2]), requests=np.array([20.0]))
        >>> mean, sd = given.rho_bg(quiet=np.zeros(1), quiet_sd=np.array([0.1]))
        >>> print(f"{mean[0]:.2f} +- {sd[0]:.3f}")
        0.50 +- 0.072
        """
        more = self.residual - quiet
        lost = -np.expm1(-more)
        some = np.abs(more) > _NOTHING
        return lost, quiet_sd * np.where(some, lost / np.where(some, more, 1.0), 1.0)


def passed_over(
    observation: Observation, rate_per_s: Floats, usable: Bools, *, even: bool
) -> PassedOver | NoData:
    """Each backend's rate beside that of the others, or why rates say nothing.

    Parameters
    ----------
    observation : of this tick.
    rate_per_s, usable : of its backends, (n,): the requests given, and who is used at all.
    even : the weights are the configured ones.
    """
    meaning = observation.meaning
    if meaning.kind is WeightKind.REQUESTS and not meaning.in_flight_bias:
        return _BY_WEIGHT_ALONE
    if not even:
        return SHIFTED
    own = np.where(usable & (rate_per_s > 0.0), rate_per_s, np.nan)
    others = np.count_nonzero(usable) - 1
    rest = sum(rate_per_s[usable].tolist()) - own
    rest = np.where((rest > 0.0) & (others > 0), rest, np.nan)
    sd = np.sqrt((1.0 / own + 1.0 / rest) / observation.interval_s)
    requests = np.rint(rate_per_s * observation.interval_s)
    return PassedOver(np.log(rest / max(others, 1) / own), sd, requests)
