"""The tenant's own utilisation, and the throughput at which it would be 1.

Problem
    Lemma 1 needs r_i, the requests/s that backend i can serve, and Eq. 1 needs rho_fg, the
    part of it in use.  No tenant runs a backend into saturation to find out.

Formula
    Utilisation law: rho_fg = n s, with arrival rate n and service demand s on the resource
    that saturates first.  So

        rho_fg = max( CPU time used per second / CPU capacity,  time all wait for the disk )
        r      = n / rho_fg

Regimes
    The law holds at every load below saturation, whoever else runs: a neighbour changes
    how long CPU time takes to get, not how much of it a request needs.  (It does not hold
    where a neighbour makes requests need more CPU time, as in the last-level cache; there
    quiet intervals only are to be learnt from, which the controller sees to.)

    Of the disk a tenant sees for how much of the time all of its tasks that had something to
    do waited for it (PSI, ``full``): at 1 nothing more can be served.  How busy the device is
    says less, for most serve many at once and are busy all the time long before they are full.
    How busy its link is it cannot see, for nobody tells it the link's speed.  Where disks are
    hidden, or links saturate first, r_i comes out too high unless it is configured.

Source
    Utilisation law: Harchol-Balter, "Performance Modeling and Design of Computer Systems",
    6.4.  Use of r: Javadi and Gandhi, IEEE TCC 2019, 2.4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dial.columns import Columns, Floats
from dial.types import AgentSample, NoData

UTILISATION_FIELDS = ("cpu_time_cores", "cpu_capacity_cores", "psi_io_full_fraction")
"""What it is made of, of an :class:`~dial.types.AgentSample`."""

NO_PEAK = NoData("not configured, and no quiet interval with a CPU sample yet")


@dataclass(frozen=True, slots=True, eq=False)
class PeakState(Columns):
    """Sums over quiet intervals, (n,), from which r = sum n / sum rho_fg follows.

    A ratio of sums, not a mean of ratios: intervals with more requests know more.
    """

    rate_sum: Floats
    rho_fg_sum: Floats

    @classmethod
    def blank(cls, n: int) -> PeakState:
        """Nothing is known of n backends."""
        return cls(np.zeros(n), np.zeros(n))


def utilisation(samples: Mapping[str, Floats]) -> Floats:
    """rho_fg of the resource that is used most, (n,) in [0, 1]; NaN where it cannot be told.

    Parameters
    ----------
    samples : (n,) of each of ``UTILISATION_FIELDS``; NaN where one is missing.
    """
    capacity_cores = samples["cpu_capacity_cores"]
    cpu = samples["cpu_time_cores"] / np.where(capacity_cores > 0.0, capacity_cores, np.nan)
    rho_fg: Floats = np.minimum(1.0, np.fmax(cpu, samples["psi_io_full_fraction"]))
    return rho_fg


def why_no_utilisation(sample: AgentSample | NoData) -> NoData:
    """Why it cannot be told."""
    if isinstance(sample, NoData):
        return sample
    for needed in (sample.cpu_time_cores, sample.cpu_capacity_cores):
        if isinstance(needed, NoData):
            return needed
    return NoData(f"CPU capacity of {sample.cpu_capacity_cores} cores")


def learn_peak(
    state: PeakState, rate_per_s: Floats, rho_fg: Floats, *, memory_intervals: int
) -> PeakState:
    """Add one quiet interval, (n,) each; where rho_fg is NaN the state is unchanged."""
    fade = 1.0 - 1.0 / memory_intervals
    return state.changed(
        ~np.isnan(rho_fg),
        rate_sum=state.rate_sum * fade + rate_per_s,
        rho_fg_sum=state.rho_fg_sum * fade + rho_fg,
    )


def peak_rps(state: PeakState, configured_rps: Floats) -> Floats:
    """r_i in requests/s, (n,): as configured, else by the utilisation law.

    Parameters
    ----------
    state : what quiet intervals say.
    configured_rps : (n,) NaN where nothing is configured.

    Returns
    -------
    (n,) NaN where neither is known.
    """
    known = (state.rho_fg_sum > 0.0) & (state.rate_sum > 0.0)
    learnt = np.where(known, state.rate_sum, np.nan) / np.where(known, state.rho_fg_sum, 1.0)
    return np.where(np.isnan(configured_rps), learnt, configured_rps)
