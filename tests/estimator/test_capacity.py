"""The utilisation law: rho_fg from CPU time and the disk, r_i from rho_fg."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial import estimator
from dial.columns import column, table
from dial.estimator import UTILISATION_FIELDS, PeakState, why_no_utilisation
from dial.types import METRIC_NAMES, AgentSample, NoData

NOTHING = AgentSample(0.0, 1.0, **{name: NoData("not sent") for name in METRIC_NAMES})


def sample(usr, sys, capacity):
    return replace(NOTHING, cpu_usr_cores=usr, cpu_sys_cores=sys, cpu_capacity_cores=capacity)


def utilisation(seen):
    (rho_fg,) = estimator.utilisation(table([seen], UTILISATION_FIELDS)).tolist()
    return rho_fg


def peak_state(rate_sum=0.0, rho_fg_sum=0.0):
    return PeakState(column([rate_sum]), column([rho_fg_sum]))


def learn_peak(state, rate_per_s, rho_fg, memory_intervals):
    return estimator.learn_peak(
        state, column([rate_per_s]), column([rho_fg]), memory_intervals=memory_intervals
    )


def peak_rps(state, configured_rps=math.nan):
    (peak,) = estimator.peak_rps(state, column([configured_rps])).tolist()
    return peak


def test_utilisation_is_cpu_time_used_over_cpu_time_to_be_had():
    # (0.10 + 0.05) of 0.30 cores.
    assert utilisation(sample(0.10, 0.05, 0.30)) == pytest.approx(0.5)


def test_utilisation_never_exceeds_1():
    # Clock ticks of 10 ms can make a busy second look like 1.01.
    assert utilisation(sample(0.30, 0.03, 0.30)) == 1.0


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (NoData("the agent is silent"), "the agent is silent"),
        (sample(NoData("no usr"), 0.1, 1.0), "no usr"),
        (sample(0.1, NoData("no sys"), 1.0), "no sys"),
        (sample(0.1, 0.1, NoData("no quota")), "no quota"),
        (sample(0.1, 0.1, 0.0), "CPU capacity of 0.0 cores"),
    ],
)
def test_without_a_measurement_the_reason_is_handed_on(seen, reason):
    assert math.isnan(utilisation(seen))
    assert why_no_utilisation(seen) == NoData(reason)


def test_the_resource_that_is_used_most_counts():
    cpu = sample(0.05, 0.01, 0.30)  # 0.2
    assert utilisation(replace(cpu, psi_io_full_fraction=0.7)) == pytest.approx(0.7)
    assert utilisation(replace(cpu, psi_io_full_fraction=0.1)) == pytest.approx(0.2)
    assert utilisation(replace(NOTHING, psi_io_full_fraction=0.7)) == pytest.approx(0.7)


def test_a_busy_device_is_not_a_full_one():
    # It may serve many requests at once.
    cpu = sample(0.05, 0.01, 0.30)
    assert utilisation(replace(cpu, disk_busy_fraction=1.0)) == pytest.approx(0.2)


def test_the_peak_is_a_ratio_of_sums():
    # 60 req/s at 0.4 and 20 req/s at 0.2: 80/0.6 = 133.3, not the mean of 150 and 100 (125).
    state = peak_state()
    for rate_per_s, rho_fg in ((60.0, 0.4), (20.0, 0.2)):
        state = learn_peak(state, rate_per_s, rho_fg, memory_intervals=10**12)
    assert peak_rps(state) == pytest.approx(80.0 / 0.6)


@given(demand_s=st.floats(1e-4, 0.1), rates=st.lists(st.floats(0.5, 500.0), min_size=1))
def test_the_peak_is_one_over_the_service_demand_at_whatever_load(demand_s, rates):
    # rho = n s at every load, so r = 1/s, however the past fades.
    state = peak_state()
    for rate_per_s in rates:
        state = learn_peak(state, rate_per_s, rate_per_s * demand_s, memory_intervals=10)
    assert peak_rps(state) == pytest.approx(1.0 / demand_s, rel=1e-9)


def test_an_old_peak_is_forgotten():
    # 100/s for long, then the VM is halved: after 30 intervals of memory 10 the old counts
    # 0.9^30 = 4 % of what it did.
    state = peak_state()
    for _ in range(200):
        state = learn_peak(state, 20.0, 0.2, memory_intervals=10)
    for _ in range(30):
        state = learn_peak(state, 20.0, 0.4, memory_intervals=10)
    assert peak_rps(state) == pytest.approx(50.0, rel=0.05)


def test_an_interval_without_utilisation_teaches_nothing():
    state = peak_state(10.0, 0.1)
    assert learn_peak(state, 50.0, NoData("no agent"), memory_intervals=10) == state


def test_a_configured_peak_wins():
    assert peak_rps(peak_state(80.0, 0.6), 200.0) == 200.0
    assert peak_rps(peak_state(), 200.0) == 200.0


@pytest.mark.parametrize("state", [peak_state(), peak_state(0.0, 0.3), peak_state(30.0, 0.0)])
def test_without_requests_or_use_there_is_no_peak(state):
    assert math.isnan(peak_rps(state))
