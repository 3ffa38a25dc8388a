"""pBoxes that go from thread to thread, from one activity to another inside it, and to a child."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dial_pbox as pbox
from dial_pbox.activities import POOL, Pool


@contextmanager
def lasting(work: Callable[[], object]) -> Iterator[None]:
    """A thread that does its work and then lives on without any."""
    done, go = threading.Event(), threading.Event()

    def run() -> None:
        work()
        done.set()
        go.wait(10)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert done.wait(10)
        yield
    finally:
        go.set()
        thread.join()


def contend(lock: pbox.Lock) -> None:
    """Wait for a lock that another thread holds for 50 ms."""
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(0.05)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    with lock:
        pass
    holder.join()


def test_the_pbox_of_a_thread_that_lives_on_serves_another_thread(page: Path) -> None:
    pool, lock = Pool(), pbox.Lock("orders")

    def request() -> None:
        with pbox.activity("request", pool):
            contend(lock)

    with lasting(request):
        box = pool._idle["request"][0]
        before = box.stats()
        request()
        after = box.stats()
    assert (before.activities, after.activities) == (1, 2)
    assert after.deferred_s > before.deferred_s > 0.0
    assert after.events_ignored == 0


def test_threads_of_one_pool_that_run_at_once_lose_no_activity(page: Path) -> None:
    pool, together = Pool(), threading.Barrier(4, timeout=10)

    def work() -> None:
        for _ in range(100):
            with pbox.activity("request", pool):
                together.wait()  # so that pBoxes are given back in any order

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    boxes = pool._idle["request"]
    assert sum(box.stats().activities for box in boxes) == 400
    assert len(boxes) == 4


def test_the_pbox_of_an_event_loop_that_lives_on_serves_another_loop(page: Path) -> None:
    pool = Pool()

    async def request() -> None:
        async with pbox.aio.activity("request", pool):
            pass

    with lasting(lambda: asyncio.run(request())):
        asyncio.run(request())
        assert pool.take("request").stats().activities == 2


def test_what_the_outer_activity_waits_for_after_an_inner_one_is_its_own(page: Path) -> None:
    lock = pbox.Lock("orders")
    with pbox.activity("outer") as outer:
        with pbox.activity("inner") as inner:
            pass
        contend(lock)
    assert outer.stats().deferred_s > 0.0
    assert inner.stats().deferred_s == 0.0
    assert outer.stats().events_ignored == inner.stats().events_ignored == 0


def test_making_and_releasing_another_pbox_takes_no_thread_from_its_activity(page: Path) -> None:
    lock = pbox.Lock("orders")
    with pbox.activity("request") as box:
        with pbox.PBox("another"):
            pass
        contend(lock)
    assert box.stats().deferred_s > 0.0


async def blocking_part() -> None:
    async with pbox.aio.activity("part"):
        contend(pbox.Lock("orders"))  # it stops the loop, and whoever else runs there


def test_a_lock_that_stops_a_loop_is_not_the_coroutines_that_began_last(page: Path) -> None:
    asyncio.run(blocking_part())
    assert POOL.take("part").stats().deferred_s == 0.0


def test_a_loop_within_a_threads_activity_leaves_the_thread_to_it(page: Path) -> None:
    async def part() -> None:
        async with pbox.aio.activity("part"):
            pass

    with pbox.activity("request") as box:
        asyncio.run(blocking_part())
    within_s = box.stats().deferred_s
    with pbox.activity("request"):
        asyncio.run(part())
        contend(pbox.Lock("orders"))
    assert box.stats().deferred_s > within_s > 0.0
    assert POOL.take("part").stats().deferred_s == 0.0


def test_a_pbox_that_runs_on_another_thread_is_refused_and_that_one_goes_on(page: Path) -> None:
    box, began, go = pbox.PBox("request"), threading.Event(), threading.Event()

    def run() -> None:
        with box.activity():
            began.set()
            go.wait(10)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(10)
    with pytest.raises(pbox.PBoxError, match="EBUSY"), box.activity():
        pass
    with pytest.raises(pbox.PBoxError, match="EBUSY"):
        box.release()
    go.set()
    thread.join()
    assert box.stats().activities == 1


def test_an_activity_that_ends_on_another_thread_is_an_error_and_its_pbox_is_not_used_again(
    page: Path,
) -> None:
    pool = Pool()
    running = pbox.activity("request", pool)
    with lasting(running.__enter__):
        with pytest.raises(pbox.PBoxError, match="thread that it began on"):
            running.__exit__(None, None, None)
        with pbox.activity("request", pool) as box:
            pass
        assert box.stats().activities == 1


def test_a_pbox_released_in_its_activity_leaves_the_outer_one_alone(page: Path) -> None:
    lock = pbox.Lock("orders")
    with pbox.activity("outer") as outer:
        inner = pbox.PBox("inner")
        with inner.activity():
            inner.release()
        contend(lock)
    assert outer.stats().deferred_s > 0.0


def test_after_the_end_of_a_domain_the_next_one_has_pboxes_of_its_own(page: Path) -> None:
    with pbox.activity("request") as old:
        pass
    pbox.close_domain()
    pbox.open_domain(page="")
    new = pbox.PBox("another")
    with pytest.raises(pbox.PBoxError, match="ENOENT"):
        old.stats()
    old.release()  # whose number is now the new one's
    assert new.stats().activities == 0
    with pbox.activity("request") as box:
        pass
    assert box.stats().activities == 1


_FORKS = """
import os, sys, dial_pbox as p
p.open_domain(page="")
with p.activity("request") as parents:
    if (child := os.fork()) == 0:
        fresh = p.PBox("request")
# In the child that was the end of an activity that it does not have.
with p.activity("request") as box:
    pass
if child == 0:
    assert box is not parents and box.psid != fresh.psid
    assert (box.stats().activities, fresh.stats().activities) == (1, 0)
    sys.exit(0)
assert box is parents and box.stats().activities == 2
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_has_pboxes_of_its_own_and_leaves_its_parents_alone(
    libpbox: Path, tmp_path: Path
) -> None:
    environment = os.environ | {"PBOX_PAGE": str(tmp_path / "%p.page")}
    subprocess.run([sys.executable, "-c", _FORKS], check=True, env=environment, timeout=30)


def test_events_told_through_the_pbox_in_a_thread_end_in_a_sleep_not_in_an_instant(
    libpbox: Path,
) -> None:
    pbox.open_domain(page="")
    try:
        key, waits = pbox.Resource("tickets").key, threading.Event()

        def wait() -> None:
            with pbox.PBox("victim", goal_percent=10) as victim, victim.activity():
                victim.update(key, pbox.Event.PREPARE)
                waits.set()
                given_back.wait(10)
                victim.update(key, pbox.Event.ENTER)

        given_back = threading.Event()
        thread = threading.Thread(target=wait)
        with pbox.PBox("noisy") as noisy:
            with noisy.activity():
                noisy.update(key, pbox.Event.HOLD)
                thread.start()
                assert waits.wait(10)
                time.sleep(0.2)
            # p_1 = sqrt(T_d T_e) - T_e, with T_d = 0.2 s and T_e of no time at all: milliseconds.
            with noisy.activity():
                noisy.update(key, pbox.Event.UNHOLD)
                left_s = noisy.penalty_s
            stats = noisy.stats()
        given_back.set()
        thread.join()
        assert stats.penalties == 1
        assert stats.penalty_s > 1e-4
        assert left_s == 0.0
    finally:
        pbox.close_domain()
