"""The shim before programs that know nothing of it.

Each of them is led from step to step (``steps.h``), and what it shows is read between: nothing
depends on how long anything takes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.support.pbox import shim_environment
from dial.pbox.page import Page, read_page

MITIGATES, SHIM = 1, 2
"""Flags of a page's header."""

MUTEX, CONDITION = 1, 3
"""Kinds of its keys."""


class Shimmed:
    """A program of ``steps.h`` under the shim, led from step to step."""

    def __init__(self, process: subprocess.Popen[str], page: Path) -> None:
        self._process = process
        self._page = page

    def address(self) -> int:
        """What it says first: the address of its lock or condition."""
        return int(self._said())

    def wait_for_somebody_to_wait(self, key: int) -> int:
        """Until a wait for ``key`` makes up most of its activity; its length in nanoseconds."""
        give_up_s = time.monotonic() + 60.0
        while time.monotonic() < give_up_s:
            for slot in self.page().slots.values():
                waited_ns = slot.waiting_ns(time.monotonic_ns())
                before_ns = slot.wait_since_ns - slot.activity_start_ns
                if slot.wait_key == key and waited_ns > 2 * before_ns:
                    return waited_ns
            time.sleep(0.001)
        raise AssertionError("nobody waits")

    def go_on_to(self, *steps: str) -> None:
        """Let it go on, until it says that it has done each of the steps."""
        for step in steps:
            self._go_on()
            assert self._said() == step

    def page(self) -> Page:
        """What it shows now."""
        return read_page(str(self._page), {os.getuid()})

    def end(self) -> None:
        """Let it end, as it should, with its page removed."""
        self._go_on()
        self._process.communicate(timeout=60.0)
        assert self._process.returncode == 0
        assert not self._page.exists()

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip()

    def _go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@pytest.fixture
def shimmed(plain, tmp_path):
    @contextmanager
    def start(name: str, *arguments: str, **variables: str) -> Iterator[Shimmed]:
        page = tmp_path / "page"
        with subprocess.Popen(
            [str(plain / "tests" / f"pbox_{name}"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | shim_environment(plain, str(page)) | variables,
        ) as process:
            try:
                program = Shimmed(process, page)
                yield program
                program.end()
            finally:
                process.kill()

    return start


def penalties(page: Page) -> int:
    return sum(
        slot.penalties + (slot.ended.penalties if slot.ended else 0) for slot in page.slots.values()
    )


def noisy(page: Page, key: int) -> int:
    return next(shown.noisy for shown in page.keys if shown.key == key)


def test_the_shim_shows_who_waits_for_which_lock_and_delays_nobody(shimmed):
    with shimmed("contended", "mutex") as program:
        mutex = program.address()
        waited_ns = program.wait_for_somebody_to_wait(mutex)
        program.go_on_to("given back", "over")
        shown = program.page()
    assert shown.header.flags == SHIM
    key = next(key for key in shown.keys if key.key == mutex)
    assert (key.waits, key.kind, key.noisy) == (1, MUTEX, 0)
    assert key.deferred_ns >= waited_ns
    # Of the waiting thread, which has ended; the main one has never waited.
    assert sum(slot.times_ns(0)[1] for slot in shown.slots.values()) == key.deferred_ns
    assert penalties(shown) == 0


def test_under_the_shim_who_waits_for_a_condition_is_idle(shimmed):
    with shimmed("idle") as program:
        condition = program.address()
        program.go_on_to("over")
        shown = program.page()
    key = next(key for key in shown.keys if key.key == condition)
    assert (key.kind, key.not_counted) == (CONDITION, 1)
    assert key.waits >= 1
    assert key.deferred_ns > 0
    deferred_ns = sum(slot.times_ns(0)[1] for slot in shown.slots.values())
    assert deferred_ns == sum(key.deferred_ns for key in shown.keys if not key.not_counted)


@pytest.mark.parametrize("lock", ["mutex", "writer", "readers"])
def test_the_shim_delays_who_held_a_lock_when_told_to(shimmed, lock):
    with shimmed("contended", lock, PBOX_MODE="mitigate") as program:
        key = program.address()
        program.wait_for_somebody_to_wait(key)
        program.go_on_to("given back")
        shown = program.page()
    assert shown.header.flags == MITIGATES | SHIM
    assert noisy(shown, key) == 1
    assert penalties(shown) == 1


def test_the_shim_delays_who_gave_a_mutex_back_by_waiting_for_a_condition_but_not_while_it_has_it(
    shimmed,
):
    with shimmed("contended", "condition", PBOX_MODE="mitigate") as program:
        mutex = program.address()
        program.wait_for_somebody_to_wait(mutex)
        program.go_on_to("waited")
        shown = program.page()
        assert noisy(shown, mutex) == 1
        assert penalties(shown) == 0  # it has taken the mutex again
        program.go_on_to("given back")
        assert penalties(program.page()) == 1


def test_the_shim_delays_nobody_who_still_holds_a_lock(shimmed):
    with shimmed("nested", PBOX_MODE="mitigate") as program:
        mutex = program.address()
        program.wait_for_somebody_to_wait(mutex)
        program.go_on_to("inner")
        assert noisy(program.page(), mutex) == 1  # with the inner unlock of a recursive mutex
        taken = [penalties(program.page())]
        for step in ("outer", "other"):
            program.go_on_to(step)
            taken.append(penalties(program.page()))
    assert taken == [0, 0, 1]  # the outer one, then a lock that was only tried for


def test_under_the_shim_a_call_that_fails_changes_nothing_of_what_is_held(shimmed):
    with shimmed("failing", PBOX_MODE="mitigate") as program:
        contended = program.address()
        program.wait_for_somebody_to_wait(contended)
        program.go_on_to("has its own")
        shown = program.page()
        assert noisy(shown, contended) == 1
        assert penalties(shown) == 0  # the wait that failed has not given it back
        program.go_on_to("has none")
        assert penalties(program.page()) == 1  # nor has the other that failed given it another's


@pytest.mark.parametrize("condition", ["idle", "deferral"])
def test_under_the_shim_who_waits_for_a_condition_does_not_hold_its_mutex(shimmed, condition):
    with shimmed("handover", PBOX_MODE="mitigate", PBOX_CONDITION=condition) as program:
        mutex = program.address()
        program.wait_for_somebody_to_wait(mutex)
        program.go_on_to("over")
        shown = program.page()
    # The one that held it; not the one that waited on the condition, and then had it shortly.
    assert noisy(shown, mutex) == 1


def test_the_shim_exports_what_it_stands_before_and_nothing_else(plain):
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=just-symbols", str(plain / "libpbox_shim.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "pthread_rwlock_trywrlock" in symbols
    assert [symbol for symbol in symbols if "pbox" in symbol] == []
