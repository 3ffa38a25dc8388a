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

from dataclasses import dataclass

from dial.types import AgentSample, Measured, NoData


@dataclass(frozen=True, slots=True)
class PeakState:
    """Sums over quiet intervals from which r = sum n / sum rho_fg follows.

    A ratio of sums, not a mean of ratios: intervals with more requests know more.
    """

    rate_sum: float = 0.0
    rho_fg_sum: float = 0.0


def utilisation(sample: AgentSample | NoData) -> Measured:
    """rho_fg of the resource that is used most, in [0, 1], or why it cannot be told."""
    if isinstance(sample, NoData):
        return sample
    cpu = _cpu_utilisation(sample)
    disk = sample.psi_io_full_fraction
    known = [part for part in (cpu, disk) if not isinstance(part, NoData)]
    return min(1.0, max(known)) if known else cpu


def _cpu_utilisation(sample: AgentSample) -> Measured:
    used_cores = sample.cpu_time_cores
    if isinstance(used_cores, NoData):
        return used_cores
    capacity_cores = sample.cpu_capacity_cores
    if isinstance(capacity_cores, NoData):
        return capacity_cores
    if capacity_cores <= 0.0:
        return NoData(f"CPU capacity of {capacity_cores} cores")
    return used_cores / capacity_cores


def learn_peak(
    state: PeakState, rate_per_s: float, rho_fg: Measured, *, memory_intervals: int
) -> PeakState:
    """Add one quiet interval; without a utilisation the state is unchanged."""
    if isinstance(rho_fg, NoData):
        return state
    fade = 1.0 - 1.0 / memory_intervals
    return PeakState(state.rate_sum * fade + rate_per_s, state.rho_fg_sum * fade + rho_fg)


def peak_rps(state: PeakState, configured_rps: float | None) -> Measured:
    """r_i in requests/s: as configured, else by the utilisation law, else why not."""
    if configured_rps is not None:
        return configured_rps
    if state.rho_fg_sum <= 0.0 or state.rate_sum <= 0.0:
        return NoData("not configured, and no quiet interval with a CPU sample yet")
    return state.rate_sum / state.rho_fg_sum
