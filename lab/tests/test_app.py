"""The tenant's application: what it accepts, and what it answers."""

from __future__ import annotations

import mmap
import time
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial_lab.app import (
    LIMITS,
    BadRequest,
    Disk,
    Lines,
    LoadReport,
    Work,
    WorkingSet,
    _chain,
    _follow,
    answer,
    burn,
    parse_work,
    worker,
)

DO = worker(WorkingSet(64), None)


def test_cost_is_read_from_the_query() -> None:
    assert parse_work("cpu_us=7&touches=2&disk_kib=8&bytes=3") == Work(
        cpu_us=7, touches=2, disk_kib=8, bytes=3
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("cpu_us=-1", "cpu_us = '-1': not a whole number"),
        ("cpu_us=1.5", "cpu_us = '1.5': not a whole number"),
        ("cpu_us=", "cpu_us = '': not a whole number"),
        ("cpu_us=\N{ARABIC-INDIC DIGIT ONE}", "not a whole number"),
        ("cpu_us=10000001", "cpu_us = 10000001: more than 10000000"),
        ("disk_kib=5", "disk_kib = 5: not a multiple of 4"),
        ("gpu_us=1", "'gpu_us': no such parameter"),
    ],
)
def test_a_bad_parameter_is_named(query: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        parse_work(query)


@given(st.text())
def test_any_query_is_work_within_limits_or_refused(query: str) -> None:
    try:
        work = parse_work(query)
    except BadRequest:
        return
    assert all(0 <= getattr(work, name) <= most for name, most in LIMITS.items())


def test_answer_has_the_bytes_asked_for() -> None:
    assert answer("/work?bytes=3", DO) == b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxxx"


def test_bad_request_is_answered_with_one_line() -> None:
    head, body = answer("/work?disk_kib=4", DO).split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert body == b"disk_kib: this server was started without --disk-file\n"


def test_burn_uses_the_cpu_time_asked_for_and_little_more() -> None:
    before_ns = time.thread_time_ns()
    burn(3000)
    used_us = (time.thread_time_ns() - before_ns) / 1000
    assert 3000 <= used_us < 6000  # CPU time, so a busy computer does not matter


def test_a_working_set_is_filled_with_whole_chains() -> None:
    # 48 bytes a tuple of one member, collector's header included: 65536 / 48 / 64 = 21.3 chains
    memory = WorkingSet(64)
    assert memory.touches == 21 * 64
    chains = [next(memory._turn) for _ in range(21)]
    assert next(memory._turn) is chains[0]
    for chain in chains:
        below, depth = chain, 0
        while below:
            (below,) = below
            depth += 1
        assert depth == 64


def test_touches_go_on_where_the_last_request_ended() -> None:
    memory = WorkingSet(64, scale=2.0)
    first = next(memory._turn)
    memory.touch(20 * 64 // 2)  # twice as many as asked for: the 20 chains that are left
    assert next(memory._turn) is first


def test_steps_between_touches_are_no_touches() -> None:
    memory = WorkingSet(64, steps=3)
    first = next(memory._turn)
    memory.touch(20 * 64)
    assert next(memory._turn) is first
    assert [len(near) for near in memory._steps] == [1, 1, 1]


def test_a_chain_goes_through_all_lines_before_the_first_one_again() -> None:
    words = _chain(mmap.mmap(-1, 4096), 1)
    places, word = [], 0
    for _ in range(64):
        word = words[word]
        places.append(word)
    assert sorted(places) == list(range(0, 512, Lines.WORDS))
    assert [_follow(words, 0, steps) for steps in (8, 16, 64)] == [places[7], places[15], 0]


def test_whoever_maps_the_file_has_the_same_lines_and_no_file_that_was_there_is_written_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lines"
    path.symlink_to(tmp_path / "of another one")
    (tmp_path / "of another one").write_bytes(b"kept")
    memory = Lines(path, 4)
    assert (tmp_path / "of another one").read_bytes() == b"kept"
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as other:
        words = memoryview(other).cast("Q")
        assert words.tolist() == memory._words.tolist()
        words[:: Lines.WORDS] = memoryview(bytes(4096)).cast("Q")[:: Lines.WORDS]
        words.release()
    memory.work(1)
    assert memory._word == 0  # where all lines lead now


def test_work_on_lines_is_as_many_loads_as_take_the_time_in_a_set_of_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Lines(tmp_path / "lines", 4)
    clock_ns = cycle([0, 5_000])  # 128 loads in 5 us: 1024 would be 40
    monkeypatch.setattr("dial_lab.app.time.thread_time_ns", lambda: next(clock_ns))
    memory.work(81)
    loads = 3 * (Lines.STEPS - Lines.OWN)
    assert memory._word == _follow(memory._words, 0, loads % 64)
    assert memory._own_word == _follow(memory._own_words, 0, 3 * Lines.OWN)


def test_lines_are_worked_on_where_there_are_some(tmp_path: Path) -> None:
    said = b"lines_us: this server was started without --lines-file\n"
    assert answer("/work?lines_us=100", DO).endswith(said)
    do = worker(None, None, lines=Lines(tmp_path / "lines", 4))
    assert answer("/work?lines_us=100&bytes=1", do).startswith(b"HTTP/1.1 200 OK")


def test_a_load_report_is_of_the_last_second_or_more() -> None:
    load = LoadReport(now_s=10.0)
    load.served(10.1, 10.3)
    assert load.header == b""
    load.served(10.9, 11.2)
    # 0.5 s of 1.2 s busy, 2 requests: 0.4167 and 1.667 a second.
    said = b"endpoint-load-metrics: TEXT application_utilization=0.4167, rps_fractional=1.667\r\n"
    assert load.header == said
    load.served(11.3, 11.4)
    assert load.header == said
    load.served(13.0, 13.2)
    # From 11.2 on: 0.3 s of 2 s, 2 requests.
    assert b"application_utilization=0.1500, rps_fractional=1.000\r\n" in load.header


def test_touches_without_a_working_set_are_refused() -> None:
    body = answer("/work?touches=64", worker(None, None)).split(b"\r\n\r\n")[1]
    assert body == b"touches: this server was started without --working-set-kib\n"


def test_disk_reads_past_the_cache_and_refuses_more_than_there_is(tmp_path: Path) -> None:
    file = tmp_path / "disk"
    file.write_bytes(bytes(4 * mmap.PAGESIZE))
    try:
        disk = Disk(file)
    except OSError as error:
        pytest.skip(f"no O_DIRECT on {tmp_path}: {error.strerror}")
    disk.read(8)
    with pytest.raises(BadRequest, match="disk_kib = 32: the file has 16 KiB"):
        disk.read(32)
