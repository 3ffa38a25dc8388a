"""Which pages are believed, and what is said of those that are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dial.agent.files import Unavailable, Vanished
from dial.pbox.page import MAGIC, read_page

from .pages import KEY_OFFSET, PAGE_BYTES, SLOT_OFFSET, FakePage, written

OURS = frozenset({os.getuid()})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pbox-1.page"


def test_a_page_whose_writer_lives_says_what_its_pboxes_did(path: Path) -> None:
    page = FakePage()
    page.slot(1, executed_ns=5_000, deferred_ns=2_000)
    page.key(2, key=7, deferred_ns=2_000, name=b"undo log")
    with written(path, page):
        found = read_page(str(path), OURS)
    assert list(found.slots) == [1]
    assert found.slots[1].times_ns(now_ns=99) == (5_000, 2_000)
    assert [(key.key, key.name, key.deferred_ns) for key in found.keys] == [(7, "undo log", 2_000)]
    assert found.left_out == frozenset()


def test_an_activity_and_a_wait_in_progress_count_as_far_as_they_have_come(path: Path) -> None:
    page = FakePage()
    page.slot(
        0,
        executed_ns=100,
        deferred_ns=10,
        activity_start_ns=1_000,
        activity_deferred_ns=30,
        wait_since_ns=1_400,
    )
    with written(path, page):
        slot = read_page(str(path), OURS).slots[0]
    # T_e = 100 + (1500 - 1000), T_d = 10 + 30 + (1500 - 1400).
    assert slot.times_ns(now_ns=1_500) == (600, 140)
    assert slot.times_ns(now_ns=900) == (100, 40)  # of another clock: nothing is negative


def test_a_key_without_a_name_is_its_number(path: Path) -> None:
    page = FakePage()
    page.key(0, key=255)
    with written(path, page):
        assert read_page(str(path), OURS).keys[0].name == "0xff"


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ({"magic": b"whatever"}, "not a statistics page"),
        ({"byte_order": 0x04030201}, "another byte order"),
        ({"major": 2}, "version 2; this agent reads version 1"),
        ({"state": 0}, "it is being made"),
        ({"state": 2}, "its program has ended"),
        ({"uid": os.getuid() + 1}, "made by user"),
        ({"page_bytes": PAGE_BYTES + 1}, "damaged"),
        ({"header_bytes": 64}, "damaged"),
        ({"slot_stride": 0}, "damaged"),
        ({"slot_stride": 100_000}, "damaged"),
        ({"key_stride": 8}, "damaged"),
        ({"slot_used": 5}, "damaged"),
        ({"slot_count": 2**32 - 1}, "damaged"),
        ({"key_count": 2**32 - 1}, "damaged"),
        ({"key_offset": PAGE_BYTES}, "damaged"),
        ({"slot_offset": 0}, "damaged"),
        ({"clock_id": 0}, "damaged"),
    ],
)
def test_a_page_that_fails_one_check_is_refused_by_its_name(
    path: Path, header: dict, told: str
) -> None:
    with written(path, FakePage(**header)), pytest.raises(Unavailable, match=told) as refusal:
        read_page(str(path), OURS)
    assert str(path) in str(refusal.value)


def test_a_later_minor_version_with_longer_slots_is_read(path: Path) -> None:
    page = FakePage(minor=3, slot_count=2, slot_used=2, slot_stride=384)
    page.data[SLOT_OFFSET + 384 : SLOT_OFFSET + 392] = bytes([0, 0, 0, 0, 9, 0, 0, 0])
    with written(path, page):
        assert [slot.psid for slot in read_page(str(path), OURS).slots.values()] == [9]


def test_a_free_place_tells_what_was_done_in_it_and_one_never_used_nothing(path: Path) -> None:
    page = FakePage()
    page.slot(1, psid=0, ended_pboxes=3, ended_executed_ns=5_000, ended_deferred_ns=2_000)
    with written(path, page):
        found = read_page(str(path), OURS)
    assert list(found.slots) == [1]
    assert found.slots[1].times_ns(now_ns=99) == (5_000, 2_000)


def test_a_page_of_version_1_0_says_nothing_of_those_that_have_ended(path: Path) -> None:
    page = FakePage(minor=0, slot_stride=192)
    page.slot(0, executed_ns=5_000)
    page.slot(1, psid=2, seq=4)  # its first bytes are where a longer slot would go on
    with written(path, page):
        found = read_page(str(path), OURS)
    assert [slot.ended for slot in found.slots.values()] == [None, None]
    assert found.slots[0].times_ns(now_ns=99) == (5_000, 0)


def test_a_page_of_a_user_who_is_not_believed_is_refused(path: Path) -> None:
    with written(path, FakePage()), pytest.raises(Unavailable, match="owned by user"):
        read_page(str(path), {os.getuid() + 1})


def test_a_link_a_pipe_and_a_directory_are_no_pages_and_hold_nobody_up(
    path: Path, tmp_path: Path
) -> None:
    with written(path, FakePage()):
        (tmp_path / "link").symlink_to(path)
        os.mkfifo(tmp_path / "pipe")
        for name in ("link", "pipe", "."):
            with pytest.raises(Unavailable):
                read_page(str(tmp_path / name), OURS)
    with pytest.raises(Vanished):
        read_page(str(tmp_path / "nothing"), OURS)


@pytest.mark.parametrize("length", [0, 8, 191, 192, KEY_OFFSET, PAGE_BYTES - 1])
def test_a_page_cut_short_is_refused(path: Path, length: int) -> None:
    page = FakePage()
    del page.data[length:]
    with written(path, page), pytest.raises(Unavailable):
        read_page(str(path), OURS)


def test_a_page_that_shrinks_between_the_checks_and_the_figures_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = FakePage()
    page.slot(0, executed_ns=1)
    real = os.pread

    def shrinking(descriptor: int, size: int, offset: int) -> bytes:
        if offset:
            os.truncate(path, SLOT_OFFSET + 10)
        return real(descriptor, size, offset)

    monkeypatch.setattr("dial.pbox.page.os.pread", shrinking)
    with written(path, page), pytest.raises(Unavailable, match="cut short"):
        read_page(str(path), OURS)


def test_a_slot_whose_writer_died_within_is_left_out_alone(path: Path) -> None:
    page = FakePage()
    page.slot(0, seq=7, executed_ns=10**18)
    page.slot(1, seq=8, executed_ns=5)
    with written(path, page):
        found = read_page(str(path), OURS)
    assert found.left_out == {0}
    assert [slot.executed_ns for slot in found.slots.values()] == [5]


def test_a_slot_that_changes_while_it_is_read_is_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = FakePage()
    page.slot(0, seq=2, executed_ns=5)
    real, calls = os.pread, 0

    def torn(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal calls
        raw = bytearray(real(descriptor, size, offset))
        if offset == SLOT_OFFSET:
            calls += 1
            if calls <= 3:  # half of an update, with the number of a slot at rest
                raw[56] = calls
        return bytes(raw)

    monkeypatch.setattr("dial.pbox.page.os.pread", torn)
    with written(path, page):
        found = read_page(str(path), OURS)
    assert found.slots[0].executed_ns == 5
    assert found.left_out == frozenset()


def test_the_page_of_a_killed_program_is_refused_and_its_lock_given_back(path: Path) -> None:
    path.write_bytes(FakePage().data)
    program = (
        "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH);"
        "print('held', flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        read_page(str(path), OURS)
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
        for _ in range(2):  # a lock that was kept would pass for a writer
            with pytest.raises(Unavailable, match="crashed"):
                read_page(str(path), OURS)


@given(st.binary(max_size=32), st.integers(0, PAGE_BYTES - 1), st.integers(0, PAGE_BYTES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_over_a_page_it_is_read_or_refused(
    path: Path, noise: bytes, at: int, length: int
) -> None:
    page = FakePage()
    page.slot(0, executed_ns=5)
    page.key(0, key=7, name=b"log")
    page.data[at : at + len(noise)] = noise
    del page.data[max(length, len(MAGIC)) :]
    with written(path, page):
        try:
            slots = read_page(str(path), OURS).slots
        except Unavailable:
            slots = {}
    for slot in slots.values():
        assert min(slot.times_ns(10**18)) >= 0
