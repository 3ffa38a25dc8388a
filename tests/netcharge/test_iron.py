from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.netcharge.iron import Account, global_refill, local_refill, period

amounts = st.floats(-100.0, 100.0, allow_subnormal=False)
positive = st.floats(0.0, 100.0, allow_subnormal=False)


@pytest.mark.parametrize(
    ("runtime", "gained", "idled", "after"),
    [
        (0.0, 0.0, False, 10.0),
        (3.0, 0.0, False, 13.0),
        (3.0, 0.0, True, 10.0),  # what was not used for want of work cannot be saved
        (-4.0, 0.0, False, 6.0),  # what was overdrawn is owed
        (-4.0, 0.0, True, 6.0),
        (-4.0, 6.0, False, 12.0),  # what was gained is added first
        (-4.0, 6.0, True, 10.0),
    ],
)
def test_algorithm_1_line_by_line(runtime: float, gained: float, idled: bool, after: float) -> None:
    account = global_refill(Account(runtime, gained), 10.0, idled=idled)
    assert account == Account(after, 0.0, 0.0)


@pytest.mark.parametrize(
    ("account", "cpuusage", "after"),
    [
        (Account(20.0), 0.0, Account(15.0, 0.0, 5.0)),  # a slice of 5 from the pool
        (Account(20.0, 0.0, -1.0), 0.0, Account(14.0, 0.0, 5.0)),  # and what it ran too long
        (Account(20.0), 4.0, Account(11.0, 0.0, 5.0)),  # charged
        (Account(20.0, 3.0), 4.0, Account(14.0, 0.0, 5.0)),  # what was gained pays first
        (Account(20.0, 6.0), 4.0, Account(15.0, 2.0, 5.0)),
        (Account(20.0), -4.0, Account(15.0, 4.0, 5.0)),  # credited
        (Account(0.0, 3.0), 0.0, Account(0.0, 0.0, 3.0)),  # the pool is empty, credit is not
        (Account(0.0, 9.0), 0.0, Account(0.0, 4.0, 5.0)),
        (Account(3.0), 4.0, Account(-1.0, 0.0, 0.0)),  # in debt: throttled
    ],
)
def test_algorithm_2_line_by_line(account: Account, cpuusage: float, after: Account) -> None:
    assert local_refill(account, cpuusage, 5.0) == after


@given(account=st.builds(Account, amounts, positive, amounts), cpuusage=amounts, slice_=positive)
def test_a_refill_changes_what_is_owned_by_the_charge_alone(
    account: Account, cpuusage: float, slice_: float
) -> None:
    after = local_refill(account, cpuusage, slice_)
    before = account.runtime + account.gained + account.rt_remain
    # Line 16 overwrites a runtime of 0 alone, so nothing is lost there.
    assert after.runtime + after.gained + after.rt_remain == pytest.approx(
        before - cpuusage, abs=1e-9
    )
    assert after.gained >= 0.0


def quotas(charges: list[float], used: list[float] | None = None) -> list[float]:
    account, given_ = Account(rt_remain=10.0), []
    for index, charge in enumerate(charges):
        ran = used[index] if used else max(0.0, account.rt_remain)
        account = period(account, 10.0, ran, charge)
        given_.append(account.rt_remain)
    return given_


def test_without_a_network_the_quota_is_the_configured_one() -> None:
    assert quotas([0.0] * 4) == [10.0] * 4
    assert quotas([0.0] * 4, used=[10.0] * 4) == [10.0] * 4


def test_what_is_left_over_is_kept_for_one_period_and_is_a_quota_at_most() -> None:
    assert quotas([0.0] * 3, used=[7.0, 13.0, 10.0]) == [13.0, 10.0, 10.0]
    assert quotas([0.0] * 3, used=[0.0, 0.0, 20.0]) == [20.0, 20.0, 10.0]


def test_a_flooded_group_pays_for_its_packets_and_owes_what_it_cannot() -> None:
    assert quotas([4.0] * 3) == [6.0] * 3
    # 14 of 10: nothing is left and 4 are owed, which the next period pays.
    assert quotas([14.0, 0.0, 0.0]) == [0.0, 6.0, 10.0]


def test_a_debt_is_ten_quotas_at_most() -> None:
    # 1000 are charged, 100 are owed: ten periods later the eleventh has its quota.
    assert quotas([1000.0] + [0.0] * 11)[-2:] == [0.0, 10.0]


def test_an_interrupted_group_gets_what_it_lost_with_the_next_quota() -> None:
    assert quotas([-3.0, 0.0, 0.0]) == [10.0, 13.0, 10.0]


def test_who_ran_longer_than_it_had_gets_less_next_time() -> None:
    assert quotas([0.0, 0.0], used=[12.0, 8.0]) == [8.0, 10.0]


@given(
    charges=st.lists(st.floats(-50.0, 50.0, allow_subnormal=False), min_size=1, max_size=30),
    quota=st.floats(1.0, 100.0),
)
def test_a_quota_is_never_negative_nor_more_than_twice_the_configured(
    charges: list[float], quota: float
) -> None:
    account = Account(rt_remain=quota)
    for charge in charges:
        account = period(account, quota, max(0.0, account.rt_remain), charge)
        assert -1e-9 <= account.rt_remain <= 2.0 * quota + 1e-9
        assert account.runtime >= -10.0 * quota
