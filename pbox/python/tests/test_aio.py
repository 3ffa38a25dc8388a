"""Coroutines: each has its own activity, whoever else runs on the thread meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dial_pbox import aio
from dial_pbox.activities import Pool


async def test_coroutines_on_one_thread_wait_in_their_own_activities(page: Path) -> None:
    lock, pool = aio.Lock("orders"), Pool()
    boxes = []

    async def request() -> None:
        async with aio.activity("request", pool) as box:
            boxes.append(box)
            async with lock:
                await asyncio.sleep(0.05)

    await asyncio.gather(*(request() for _ in range(3)))
    waited = sorted(box.stats().deferred_s for box in boxes)
    # First come, first served: next to nothing, 0.05 and 0.1 s, on a computer with time for it.
    assert waited[0] < waited[1]
    assert waited[1] > 0.04
    assert waited[2] > 0.09
    assert len({box.psid for box in boxes}) == 3
    assert all(box.stats().events_ignored == 0 for box in boxes)


async def test_a_wait_that_is_cancelled_ends_there_and_holds_nothing(page: Path) -> None:
    lock, pool = aio.Lock("orders"), Pool()
    waiting = asyncio.Event()

    async def request() -> None:
        async with aio.activity("request", pool):
            waiting.set()
            async with lock:
                raise AssertionError("it was not to get the lock")

    await lock.acquire()
    task = asyncio.create_task(request())
    await waiting.wait()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stats = pool.take("request").stats()
    assert 0.04 < stats.deferred_s <= stats.executed_s
    assert stats.events_ignored == 0
    lock.release()
    async with lock:
        pass


async def test_a_task_of_an_activity_waits_in_it_and_one_that_outlives_it_in_none(
    page: Path,
) -> None:
    lock, pool = aio.Lock("orders"), Pool()

    async def part() -> None:
        async with lock:
            await asyncio.sleep(0.02)

    async with aio.activity("request", pool) as box:
        await lock.acquire()
        within, after = asyncio.create_task(part()), asyncio.create_task(part())
        await asyncio.sleep(0.03)
        lock.release()
        await within
    await after
    stats = box.stats()
    assert stats.activities == 1
    assert stats.deferred_s <= stats.executed_s
    assert pool.take("request") is box


async def test_tasks_of_one_activity_that_wait_for_one_lock_are_one_wait(page: Path) -> None:
    lock, pool = aio.Lock("orders"), Pool()

    async def part() -> None:
        async with lock:
            await asyncio.sleep(0.1)

    async with aio.activity("report", pool):
        await lock.acquire()
        async with aio.activity("request", pool) as box:
            tasks = [asyncio.create_task(part())]
            await asyncio.sleep(0.1)
            tasks.append(asyncio.create_task(part()))
            await asyncio.sleep(0.02)
            lock.release()
            await asyncio.gather(*tasks)
    stats = box.stats()
    # Another held the lock for 0.12 s; then the activity's own tasks had it for 0.1 s each.
    assert stats.deferred_s > 0.11
    assert stats.deferred_s <= stats.executed_s - 0.19
    assert stats.events_ignored == 0
    assert pool.take("report").stats().events_ignored == 0


async def test_a_wait_ends_with_its_activity_and_is_not_the_next_ones(page: Path) -> None:
    lock, pool = aio.Lock("orders"), Pool()

    async def part() -> None:
        async with lock:
            pass

    await lock.acquire()
    async with aio.activity("request", pool) as box:
        task = asyncio.create_task(part())
        await asyncio.sleep(0.05)
    first = box.stats()
    async with aio.activity("request", pool) as again:
        lock.release()
        await task
    assert again is box
    assert first.deferred_s > 0.04
    assert box.stats().deferred_s == first.deferred_s
    assert box.stats().events_ignored == 0


async def test_a_lock_is_given_back_for_the_activity_that_got_it(page: Path) -> None:
    lock, pool = aio.Lock("orders"), Pool()
    async with aio.activity("holder", pool) as holder:
        await lock.acquire()
    async with aio.activity("other", pool) as other:
        lock.release()  # an UNHOLD of what it did not hold, if it were its own
    async with aio.activity("holder", pool):
        pass
    await lock.acquire()
    async with aio.activity("other", pool):
        lock.release()
    assert holder.stats().events_ignored == other.stats().events_ignored == 0


async def test_pboxes_are_used_again_not_made_for_each_request(page: Path) -> None:
    pool = Pool()
    for _ in range(100):
        async with aio.activity("request", pool):
            pass
    async with aio.activity("request", pool) as box:
        assert box.stats().activities == 100


async def test_a_lock_outside_of_an_activity_is_a_plain_one(page: Path) -> None:
    lock = aio.Lock("orders")
    async with lock:
        pass
