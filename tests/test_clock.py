"""Time as an argument."""

import asyncio

import pytest

from dial.clock import Clock, ManualClock, SystemClock


def test_a_manual_clock_stands_still_until_it_is_moved():
    clock = ManualClock(100.0)
    assert (clock.now_s(), clock.monotonic_s()) == (100.0, 100.0)
    clock.advance(2.5)
    assert (clock.now_s(), clock.monotonic_s()) == (102.5, 102.5)


def test_a_manual_clock_never_steps_back():
    clock = ManualClock(100.0)
    with pytest.raises(ValueError, match=r"advance\(-1\): time moves forward only"):
        clock.advance(-1)
    assert clock.now_s() == 100.0


async def test_a_manual_sleep_takes_an_hour_at_once_and_lets_others_run():
    clock = ManualClock(0.0)
    ran = asyncio.Event()
    other = asyncio.create_task(_set(ran))
    await clock.sleep(3600.0)
    assert clock.now_s() == 3600.0
    assert ran.is_set()
    await other


@pytest.mark.parametrize("make", [SystemClock, ManualClock])
async def test_a_sleep_into_the_past_returns_at_once(make):
    clock: Clock = make()
    before_s = clock.monotonic_s()
    await asyncio.wait_for(clock.sleep(-10.0), timeout=5.0)
    assert clock.monotonic_s() >= before_s


def test_the_system_clock_never_steps_back():
    clock = SystemClock()
    readings_s = [clock.monotonic_s() for _ in range(100)]
    assert readings_s == sorted(readings_s)
    assert clock.now_s() > 1_600_000_000  # after September 2020: seconds, not milliseconds
    assert clock.now_s() < 10_000_000_000


async def _set(event):
    event.set()
