from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from dial.agent.capacity import Capacity, FixedCapacity, quota_cores_v1, quota_cores_v2
from dial.agent.cpu import GroupCpuV1, GroupCpuV2, GroupTimesV1, MachineCpu, user_share
from dial.agent.files import Tree
from dial.agent.throttling import Throttling
from dial.types import NoData

Plant = Callable[[Mapping[str, str]], Tree]


def test_machine_times_are_cores_by_kind(plant: Plant) -> None:
    tree = plant({"/proc/stat": "cpu  100 10 50 900 20 3 7 5 0 0\ncpu0 1 1 1\ncpu1 1 1 1\n"})
    cpu = MachineCpu(tree, ticks_per_s=100)
    before = cpu.read()
    plant({"/proc/stat": "cpu  160 30 80 990 30 5 11 25 0 0\ncpu0 1 1 1\ncpu1 1 1 1\n"})
    # over 2 s = 200 ticks a core: user 60 + nice 20 = 80; system 30 + irq 2 = 32
    assert cpu.rates(before, cpu.read(), 2.0) == {
        "cpu_usr_cores": 0.40,
        "cpu_sys_cores": 0.16,
        "cpu_softirq_cores": 0.02,
        "cpu_iowait_cores": 0.05,
        "cpu_steal_cores": 0.10,
        # 60 + 20 + 30 + 90 + 10 + 2 + 4 + 20 = 236 of the 400 ticks of two CPUs
        "cpu_unaccounted_cores": pytest.approx(0.82),
    }


def test_a_cpu_that_comes_or_goes_leaves_no_gap_in_the_accounts(plant: Plant) -> None:
    cpu = MachineCpu(plant({"/proc/stat": "cpu 1 0 5 9 2 0 7 0\ncpu0 1\n"}), 100)
    before = cpu.read()
    plant({"/proc/stat": "cpu 101 0 5 9 2 0 7 0\ncpu0 1\ncpu1 1\n"})
    rates = cpu.rates(before, cpu.read(), 1.0)
    assert rates["cpu_unaccounted_cores"] == NoData("/proc/stat: 1 CPUs, then 2")


def test_a_tick_too_many_is_no_negative_gap(plant: Plant) -> None:
    cpu = MachineCpu(plant({"/proc/stat": "cpu 0 0 0 0 0 0 0 0\ncpu0 1\n"}), 100)
    before = cpu.read()
    plant({"/proc/stat": "cpu 0 0 0 101 0 0 0 0\ncpu0 1\n"})
    assert cpu.rates(before, cpu.read(), 1.0)["cpu_unaccounted_cores"] == 0.0


def test_iowait_going_backwards_costs_iowait_only(plant: Plant) -> None:
    cpu = MachineCpu(plant({"/proc/stat": "cpu 100 0 50 900 20 0 7 5\n"}), 100)
    before = cpu.read()
    plant({"/proc/stat": "cpu 110 0 50 900 19 0 7 5\n"})
    rates = cpu.rates(before, cpu.read(), 1.0)
    assert isinstance(rates["cpu_iowait_cores"], NoData)
    assert rates["cpu_usr_cores"] == 0.1


def test_a_kernel_without_steal_has_no_data_for_it(plant: Plant) -> None:
    cpu = MachineCpu(plant({"/proc/stat": "cpu 1 0 5 9 2 0 7\n"}), 100)
    assert isinstance(cpu.rates(cpu.read(), cpu.read(), 1.0)["cpu_steal_cores"], NoData)


def test_v1_divides_the_exact_total_by_the_ratio_of_ticks(plant: Plant) -> None:
    group = {"/c/cpuacct.usage": "1000000000\n", "/c/cpuacct.stat": "user 60\nsystem 40\n"}
    cpu = GroupCpuV1(plant(group), "/c")
    before = cpu.read()
    plant({"/c/cpuacct.usage": "1042000000\n", "/c/cpuacct.stat": "user 63\nsystem 41\n"})
    # 42 ms in 1 s; 3 of 4 ticks are user's: 0.0315 and 0.0105, where ticks say 0.03 and 0.01
    rates = cpu.rates(before, cpu.read(), 1.0)
    assert rates["cpu_usr_cores"] == pytest.approx(0.0315)
    assert rates["cpu_sys_cores"] == pytest.approx(0.0105)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ((10, 30), (10, 30), 0.25),  # no tick in the interval: 10 of 40 since the beginning
        ((0, 0), (0, 0), 1.0),  # none ever: the kernel's rule
        ((9, 2), (8, 24), 0.25),  # ticks went backwards: 8 of 32 since the beginning
    ],
)
def test_without_ticks_the_split_falls_back(
    before: tuple[int, int], after: tuple[int, int], share: float
) -> None:
    assert user_share(GroupTimesV1(0, *before), GroupTimesV1(5, *after)) == share


def test_a_v1_group_made_anew_is_no_data(plant: Plant) -> None:
    cpu = GroupCpuV1(plant({"/c/cpuacct.usage": "9", "/c/cpuacct.stat": "user 6\nsystem 4"}), "/c")
    before = cpu.read()
    plant({"/c/cpuacct.usage": "8"})
    assert all(isinstance(rate, NoData) for rate in cpu.rates(before, cpu.read(), 1.0).values())


def test_v2_counts_microseconds(plant: Plant) -> None:
    cpu = GroupCpuV2(plant({"/c/cpu.stat": "usage_usec 9\nuser_usec 6\nsystem_usec 3\n"}), "/c")
    before = cpu.read()
    plant({"/c/cpu.stat": "usage_usec 750009\nuser_usec 500006\nsystem_usec 250003\n"})
    rates = cpu.rates(before, cpu.read(), 2.0)
    assert rates == {"cpu_usr_cores": 0.25, "cpu_sys_cores": 0.125}


def test_capacity_is_the_online_cpus(plant: Plant) -> None:
    tree = plant({"/sys/devices/system/cpu/online": "0-1,4\n"})
    assert Capacity(tree).read() == 3.0


def test_capacity_is_the_own_quota_where_that_is_less(plant: Plant) -> None:
    tree = plant(
        {
            "/sys/devices/system/cpu/online": "0-1\n",
            "/v1/cpu.cfs_quota_us": "3000\n",
            "/v1/cpu.cfs_period_us": "10000\n",
            "/v2/cpu.max": "400000 100000\n",
        }
    )
    assert Capacity(tree, lambda: quota_cores_v1(tree, "/v1")).read() == 0.3
    assert Capacity(tree, lambda: quota_cores_v2(tree, "/v2")).read() == 2.0  # quota 4, CPUs 2


def test_a_group_without_quota_has_none(plant: Plant) -> None:
    tree = plant({"/v1/cpu.cfs_quota_us": "-1\n", "/v2/cpu.max": "max 100000\n"})
    assert quota_cores_v1(tree, "/v1") is None
    assert quota_cores_v2(tree, "/v2") is None


def test_a_given_capacity_is_taken_as_it_is() -> None:
    fixed = FixedCapacity(0.3)
    assert fixed.rates(fixed.read(), fixed.read(), 1.0) == {"cpu_capacity_cores": 0.3}


def test_throttled_fraction_is_of_periods(plant: Plant) -> None:
    throttling = Throttling(plant({"/c/cpu.stat": "nr_periods 100\nnr_throttled 10\n"}), "/c")
    before = throttling.read()
    plant({"/c/cpu.stat": "nr_periods 120\nnr_throttled 15\nthrottled_time 7\n"})
    # 5 of 20 periods
    assert throttling.rates(before, throttling.read(), 1.0) == {"throttled_fraction": 0.25}


def test_a_group_that_did_not_run_was_not_throttled(plant: Plant) -> None:
    throttling = Throttling(plant({"/c/cpu.stat": "nr_periods 0\nnr_throttled 0\n"}), "/c")
    reading = throttling.read()
    assert throttling.rates(reading, reading, 1.0) == {"throttled_fraction": 0.0}
