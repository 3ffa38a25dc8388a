"""The binding on the real library: times by hand, threads, errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import dial_pbox as pbox
from dial_pbox.activities import Pool


def test_an_activity_counts_its_time_and_its_waiting(page: Path) -> None:
    key = pbox.Resource("undo log").key
    with pbox.PBox("purge") as box:
        with box.activity():
            box.update(key, pbox.Event.PREPARE)
            time.sleep(0.05)
            box.update(key, pbox.Event.ENTER)
            time.sleep(0.05)
        stats = box.stats()
    assert stats.activities == 1
    assert 0.05 <= stats.deferred_s <= stats.executed_s - 0.05
    assert stats.events_ignored == 0


def test_a_thread_that_finds_the_lock_taken_is_deferred_and_the_holder_is_not(page: Path) -> None:
    lock = pbox.Lock("orders")
    held, stats = threading.Event(), {}

    def hold() -> None:
        with pbox.PBox("report") as box:
            with box.activity(), lock:
                held.set()
                time.sleep(0.1)
            stats["holder"] = box.stats()

    def wait() -> None:
        held.wait()
        with pbox.PBox("request") as box:
            with box.activity(), lock:
                pass
            stats["waiter"] = box.stats()

    threads = [threading.Thread(target=run) for run in (hold, wait)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stats["waiter"].deferred_s > 0.05
    assert stats["holder"].deferred_s == 0.0


def test_a_lock_that_is_not_had_in_time_is_not_held_and_the_wait_has_ended(page: Path) -> None:
    lock = pbox.Lock("orders")
    other = threading.Thread(target=lock.acquire)
    other.start()
    other.join()
    with pbox.PBox() as box:
        with box.activity():
            assert lock.acquire(timeout_s=0.05) is False
            time.sleep(0.05)
        stats = box.stats()
    assert 0.05 <= stats.deferred_s <= stats.executed_s - 0.05
    assert stats.events_ignored == 0


def test_an_exception_ends_the_activity_and_gives_the_lock_back(page: Path) -> None:
    lock = pbox.Lock("orders")
    pool = Pool()

    def fails() -> None:
        with pbox.activity("request", pool), lock:
            raise ValueError("on purpose")

    for _ in range(3):
        with pytest.raises(ValueError, match="on purpose"):
            fails()
    assert lock.acquire(timeout_s=0.0) is True
    # The pBox of the first served them all.
    assert pool.take("request").stats().activities == 3


def test_a_lock_outside_of_an_activity_is_a_plain_lock(page: Path) -> None:
    lock = pbox.Lock("orders")
    with lock:
        assert lock.acquire(timeout_s=0.0) is False
    with lock:
        pass


def test_activities_of_two_kinds_at_once_have_a_pbox_each(page: Path) -> None:
    with pbox.activity("outer") as outer, pbox.activity("inner") as inner:
        assert outer.psid != inner.psid
    with pbox.activity("outer") as again:
        assert again.psid == outer.psid


def test_what_the_library_refuses_is_an_error_that_says_why(page: Path) -> None:
    with pytest.raises(pbox.PBoxError, match="create_pbox: Invalid argument"):
        pbox.PBox(goal_percent=0)
    with pytest.raises(pbox.PBoxError, match="EALREADY"):
        pbox.open_domain()
    box = pbox.PBox()
    box.release()
    with pytest.raises(pbox.PBoxError, match="ENOENT"):
        box.stats()


def test_the_page_is_where_it_was_asked_for_and_goes_with_the_domain(page: Path) -> None:
    assert pbox.page_path() == page
    assert page.read_bytes()[:8] == b"PBOXPAGE"
    pbox.close_domain()
    assert not page.exists()
    pbox.open_domain(page="")
    assert pbox.page_path() is None


def test_without_the_library_it_says_what_to_install() -> None:
    program = "import dial_pbox as p\ntry: p.open_domain()\nexcept p.LibraryMissing as e: print(e)"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PBOX_LIBRARY": "/nowhere/libpbox.so.1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "/nowhere/libpbox.so.1" in said
    assert "install libpbox, or set PBOX_LIBRARY" in said


def test_a_noisy_thread_is_delayed_where_the_domain_mitigates(libpbox: Path) -> None:
    pbox.open_domain(page="")
    lock, stop, stats = pbox.Lock("orders"), threading.Event(), {}

    def noisy() -> None:
        with pbox.PBox("report", goal_percent=50) as box:
            while not stop.is_set():
                with box.activity(), lock:
                    time.sleep(0.02)
            stats["noisy"] = box.stats()

    def victim() -> None:
        with pbox.PBox("request", goal_percent=10) as box:
            for _ in range(30):
                with box.activity(), lock:
                    time.sleep(0.001)
            stop.set()

    try:
        threads = [threading.Thread(target=run) for run in (noisy, victim)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30.0)
        assert stats["noisy"].penalties > 0
        assert stats["noisy"].penalty_s > 0.0
    finally:
        pbox.close_domain()
