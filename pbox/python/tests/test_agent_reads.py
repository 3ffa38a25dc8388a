"""The agent's reader on pages that the real library writes: both sides of the contract."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import dial_pbox as pbox
from dial.agent.files import Tree, Unavailable
from dial.pbox.application import ApplicationPages
from dial.pbox.page import Slot, read_page

OURS = {os.getuid()}


def reader(path: Path) -> ApplicationPages:
    return ApplicationPages(str(path), OURS, Tree(), time.monotonic_ns)


def test_what_a_program_waited_for_is_what_the_agent_tells(page: Path) -> None:
    lock, key = pbox.Lock("orders"), pbox.Resource("tickets").key
    agent = reader(page)
    with pbox.PBox("request") as box, lock:
        before, begin = agent.read(), time.monotonic()
        with box.activity():
            box.update(key, pbox.Event.PREPARE)
            time.sleep(0.15)
            box.update(key, pbox.Event.ENTER)
            time.sleep(0.05)
        after, stats = agent.read(), box.stats()
    told = agent.rates(before, after, time.monotonic() - begin)
    fraction = stats.deferred_s / stats.executed_s
    assert 0.1 < fraction < 0.9
    assert told["deferral_fraction"] == pytest.approx(fraction)
    assert told["interference_level"] == pytest.approx(fraction / (1.0 - fraction))
    assert told["top_resource"] == "tickets"


def test_a_wait_in_progress_shows_before_it_ends(page: Path) -> None:
    key = pbox.Resource("tickets").key
    agent = reader(page)
    with pbox.PBox("request") as box, box.activity():
        box.update(key, pbox.Event.PREPARE)
        before, begin = agent.read(), time.monotonic()
        time.sleep(0.1)
        told = agent.rates(before, agent.read(), time.monotonic() - begin)
    assert told["deferral_fraction"] == pytest.approx(1.0)
    assert told["top_resource"] == "tickets"


_WRITER = """
import sys, time, dial_pbox as p
p.open_domain(mode=p.Mode.MEASURE, page=sys.argv[1])
lock = p.Lock("orders")
box = p.PBox("request")
print("open", flush=True)
while True:
    with box.activity(), lock:
        pass
"""


def writer(path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_killed_program_is_no_signal_and_its_successor_is_one_again(
    libpbox: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pbox.page"
    agent = reader(path)
    for _ in range(2):
        with writer(path) as process:
            before = agent.read()
            time.sleep(0.1)
            told = agent.rates(before, agent.read(), 0.1)
            assert told["deferral_fraction"] == pytest.approx(0.0, abs=0.2)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            assert process.stdout is not None
        with pytest.raises(Unavailable, match="crashed"):
            agent.read()


def test_a_page_that_is_written_all_the_time_reads_consistently(page: Path) -> None:
    stop = threading.Event()
    lock = pbox.Lock("orders")

    def work() -> None:
        with pbox.PBox("request") as box:
            while not stop.is_set():
                with box.activity(), lock:
                    pass

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        last: dict[int, int] = {}
        for _ in range(200):
            found = read_page(str(page), OURS)
            now_ns = time.monotonic_ns()
            for slot in found.slots.values():
                executed_ns, deferred_ns = slot.times_ns(now_ns)
                assert deferred_ns <= executed_ns
                assert slot.executed_ns >= last.get(slot.psid, 0)
                last[slot.psid] = slot.executed_ns
        assert len(last) == 2
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_what_a_reader_has_seen_never_falls_when_pboxes_end(page: Path) -> None:
    stop = threading.Event()
    key = pbox.Resource("tickets").key

    def come_and_go() -> None:
        while not stop.is_set():
            with pbox.PBox("request") as box:
                for _ in range(3):
                    with box.activity():
                        box.update(key, pbox.Event.PREPARE)
                        box.update(key, pbox.Event.ENTER)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        last: dict[int, tuple[int, int]] = {}
        give_up_s = time.monotonic() + 60.0
        ended = 0
        while ended < 300:
            assert time.monotonic() < give_up_s
            found = read_page(str(page), OURS)
            for index, slot in found.slots.items():
                now = finished(slot)
                was = last.get(index, (0, 0))
                assert now[0] >= was[0]
                assert now[1] >= was[1]
                last[index] = now
            ended = sum(slot.ended.pboxes for slot in found.slots.values() if slot.ended)
            assert last.keys() - found.left_out <= found.slots.keys()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def finished(slot: Slot) -> tuple[int, int]:
    """T_e and T_d of finished activities."""
    return slot._replace(activity_start_ns=0).times_ns(0)


def test_a_page_whose_domain_has_ended_is_gone(page: Path) -> None:
    agent = reader(page)
    agent.read()
    pbox.close_domain()
    with pytest.raises(Unavailable, match="no such page"):
        agent.read()
    pbox.open_domain(page="")
