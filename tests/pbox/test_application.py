"""Growth between two readings of an application's pages."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.agent.files import Tree, Unavailable
from dial.agent.sampler import Sampler
from dial.errors import SettingError
from dial.pbox.application import ApplicationPages, Growth, Reading, owner_ids
from dial.types import NoData

from .pages import FakePage, written

S = 10**9
ROOT = Tree()


class Clock:
    """CLOCK_MONOTONIC by hand."""

    def __init__(self) -> None:
        self.ns = 100 * S

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pages(tmp_path: Path, clock: Clock) -> ApplicationPages:
    return ApplicationPages(str(tmp_path / "pbox-*.page"), {os.getuid()}, ROOT, clock)


def told(pages: ApplicationPages, path: Path, before: FakePage, after: FakePage) -> dict:
    """What a second between the two pages comes to."""
    with written(path, before):
        first = pages.read()
    with written(path, after):
        return dict(pages.rates(first, pages.read(), 1.0))


def test_all_pboxes_of_a_page_are_one_application(pages: ApplicationPages, tmp_path: Path) -> None:
    before, after = FakePage(), FakePage()
    before.slot(0, executed_ns=5 * S, deferred_ns=1 * S)
    after.slot(0, executed_ns=6 * S, deferred_ns=2 * S)  # 1 s, all of it waiting
    before.slot(1, executed_ns=0)
    after.slot(1, executed_ns=1 * S)  # 1 s without waiting
    before.key(0, key=7, deferred_ns=9 * S, name=b"log")
    after.key(0, key=7, deferred_ns=9 * S, name=b"log")
    after.key(1, key=8, deferred_ns=1 * S, name=b"buffer pool")
    found = told(pages, tmp_path / "pbox-1.page", before, after)
    assert found["deferral_fraction"] == 0.5
    assert found["interference_level"] == 1.0
    assert found["top_resource"] == "buffer pool"


def test_a_wait_of_ten_seconds_shows_in_its_first_second(
    pages: ApplicationPages, tmp_path: Path, clock: Clock
) -> None:
    page = FakePage()
    page.slot(0, activity_start_ns=99 * S, wait_since_ns=100 * S, wait_key=7)
    page.key(0, key=7, name=b"row 5")
    with written(tmp_path / "pbox-1.page", page):
        first = pages.read()
        clock.ns += S
        found = dict(pages.rates(first, pages.read(), 1.0))
    assert found["deferral_fraction"] == 1.0
    assert found["top_resource"] == "row 5"


def test_who_waits_for_work_is_nobodys_victim(pages: ApplicationPages, tmp_path: Path) -> None:
    before, after = FakePage(), FakePage()
    before.slot(0)
    after.slot(0, executed_ns=S)
    after.key(0, key=7, deferred_ns=5 * S, not_counted=1, name=b"queue")
    found = told(pages, tmp_path / "pbox-1.page", before, after)
    assert found["deferral_fraction"] == 0.0
    assert found["top_resource"] == NoData("nothing was waited for")


def test_who_was_found_to_be_the_cause_does_not_dilute_what_it_causes(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    before, after = FakePage(), FakePage()
    before.slot(0, times_noisy=3)
    after.slot(0, times_noisy=4, executed_ns=S)  # a report that holds a table all the time
    before.slot(1, times_noisy=3)
    after.slot(1, times_noisy=3, executed_ns=S // 10, deferred_ns=S // 20)  # a request
    found = told(pages, tmp_path / "pbox-1.page", before, after)
    assert found["deferral_fraction"] == 0.5


def test_the_cause_stays_the_cause_while_hardly_anybody_is_there_to_complain() -> None:
    def growth(requests_s: float, *found: int) -> Growth:
        return Growth({0: 1e9, 1: 1e9 * requests_s}, {0: 0.0, 1: 0.0}, frozenset(found), {})

    causes = growth(0.5, 0).causes(frozenset())
    assert causes == {0}, "a report that holds a table all the time"
    causes = growth(0.01).causes(causes)
    assert causes == {0}, "the balancer sends probes only"
    assert growth(0.01).totals(causes).active_s == pytest.approx(0.01)
    assert growth(1.5).causes(causes) == set(), "others are active, and nobody complains"
    assert growth(1.5, 1).causes(causes) == {0, 1}, "whom it keeps waiting is unknown again"


def test_a_cause_that_has_ended_is_forgotten() -> None:
    ended = Growth({0: 0.0, 1: 0.0}, {0: 0.0, 1: 0.0}, frozenset(), {})
    assert ended.causes(frozenset({0, 5})) == set()


def test_an_agents_pages_remember_the_cause(pages: ApplicationPages, tmp_path: Path) -> None:
    first, second, third = FakePage(), FakePage(), FakePage()
    for page, report_s, noisy in ((first, 0, 0), (second, 1, 1), (third, 2, 1)):
        page.slot(0, times_noisy=noisy, executed_ns=report_s * S)
        page.slot(1)
    second.slot(1, executed_ns=S // 2, deferred_ns=S // 4)
    third.slot(1, executed_ns=S // 2 + S // 10, deferred_ns=S // 4 + S // 20)
    path = tmp_path / "pbox-1.page"
    readings = []
    for page in (first, second, third):
        with written(path, page):
            readings.append(pages.read())
    for before, after in pairwise(readings):
        assert pages.rates(before, after, 1.0)["deferral_fraction"] == 0.5


def test_what_a_pbox_did_before_it_ended_counts_with_that_of_its_successor(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    before, after = FakePage(), FakePage()
    before.slot(0, psid=4, executed_ns=50 * S, deferred_ns=50 * S)
    after.slot(
        0,
        psid=5,
        executed_ns=S // 4,
        deferred_ns=S // 8,
        ended_pboxes=1,
        ended_executed_ns=50 * S + S // 4,
        ended_deferred_ns=50 * S + S // 4,
    )
    found = told(pages, tmp_path / "pbox-1.page", before, after)
    assert found["deferral_fraction"] == 0.75  # 1/4 + 1/8 of 1/4 + 1/4


def test_a_pbox_that_was_made_and_released_between_two_readings_counts(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    before, after = FakePage(), FakePage()
    before.slot(0, psid=0, ended_pboxes=7, ended_executed_ns=50 * S, ended_deferred_ns=9 * S)
    after.slot(
        0, psid=0, ended_pboxes=8, ended_executed_ns=51 * S, ended_deferred_ns=9 * S + S // 4
    )
    after.slot(1, psid=0, ended_pboxes=1, ended_executed_ns=S, ended_deferred_ns=S // 4)
    assert told(pages, tmp_path / "pbox-1.page", before, after)["deferral_fraction"] == 0.25


def test_a_place_where_the_cause_has_ended_is_left_out(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    before, after = FakePage(), FakePage()
    before.slot(0, times_noisy=3, ended_pboxes=1, ended_times_noisy=2)
    after.slot(0, psid=0, ended_pboxes=2, ended_times_noisy=6, ended_executed_ns=S)
    before.slot(1, times_noisy=1)
    after.slot(1, ended_pboxes=1, ended_times_noisy=1, executed_ns=S // 10, deferred_ns=S // 20)
    assert told(pages, tmp_path / "pbox-1.page", before, after)["deferral_fraction"] == 0.5


def test_on_a_page_that_forgets_who_ended_a_new_pbox_counts_from_its_birth(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    before, after = (FakePage(minor=0, slot_stride=192) for _ in range(2))
    before.slot(0, psid=4, executed_ns=50 * S, deferred_ns=50 * S)
    after.slot(0, psid=5, executed_ns=S // 2, deferred_ns=S // 4)
    after.slot(1, psid=0, executed_ns=S, deferred_ns=S)  # what is left of one that has ended
    assert told(pages, tmp_path / "pbox-1.page", before, after)["deferral_fraction"] == 0.5


def test_a_slot_that_could_not_be_read_before_has_no_growth(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    before, after = FakePage(), FakePage()
    before.slot(0, seq=1, executed_ns=50 * S)
    after.slot(0, seq=2, executed_ns=50 * S, deferred_ns=50 * S)
    before.slot(1)
    after.slot(1, executed_ns=S)
    assert told(pages, tmp_path / "pbox-1.page", before, after)["deferral_fraction"] == 0.0


def test_a_page_made_anew_counts_from_its_second_reading(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    old, new = FakePage(created_unix_ns=1), FakePage(created_unix_ns=2)
    new.slot(0, executed_ns=9 * S, deferred_ns=9 * S)
    found = told(pages, tmp_path / "pbox-1.page", old, new)
    assert found["deferral_fraction"] == NoData("the page is new: a rate needs two readings")


def test_pages_of_several_workers_are_summed_and_a_bad_one_spoils_none(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    quiet, waiting, other = FakePage(), FakePage(), FakePage(major=9)
    quiet.slot(0, executed_ns=S)
    waiting.slot(0, executed_ns=S, deferred_ns=S)
    empty = FakePage()
    empty.slot(0)
    names = ("pbox-1.page", "pbox-2.page", "pbox-3.page")
    with ExitStack() as now:
        for name, page in zip(names, (empty, empty, other), strict=True):
            now.enter_context(written(tmp_path / name, page))
        first = pages.read()
    with ExitStack() as now:
        for name, page in zip(names, (quiet, waiting, other), strict=True):
            now.enter_context(written(tmp_path / name, page))
        found = dict(pages.rates(first, pages.read(), 1.0))
    assert found["deferral_fraction"] == 0.5


def test_of_a_shared_page_the_places_of_a_crashed_process_are_left_out(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait(10)
    ours = Tree().read("/proc/self/stat").rpartition(")")[2].split()[19]

    def page(executed_ns: int, deferred_ns: int) -> FakePage:
        made = FakePage(flags=4)
        made.slot(0, pid=gone.pid, start_ticks=1, executed_ns=executed_ns, deferred_ns=executed_ns)
        made.slot(1, start_ticks=int(ours), executed_ns=executed_ns, deferred_ns=deferred_ns)
        # Its number is used again, by a process that began at another time.
        made.slot(2, start_ticks=int(ours) + 1, executed_ns=executed_ns, deferred_ns=executed_ns)
        return made

    found = told(pages, tmp_path / "pbox-1.page", page(0, 0), page(S, S // 4))
    assert found["deferral_fraction"] == 0.25


def in_a_container(root: Path, id_here: int, id_there: int, start_ticks: int) -> None:
    """A process as the kernel shows it to those outside of its container."""
    directory = root / "proc" / str(id_here)
    directory.mkdir(parents=True)
    fields = ["S", *["0"] * 18, str(start_ticks), "0"]
    (directory / "stat").write_text(f"{id_here} (a (b) c) {' '.join(fields)}\n")
    (directory / "status").write_text(f"Name:\ta\nNSpid:\t{id_here}\t{id_there}\nThreads:\t1\n")


def test_processes_of_a_container_are_known_by_their_ids_there(
    tmp_path: Path, clock: Clock
) -> None:
    in_a_container(tmp_path, id_here=4711, id_there=7, start_ticks=100)
    in_a_container(tmp_path, id_here=4712, id_there=9, start_ticks=200)
    in_a_container(tmp_path, id_here=8, id_there=1, start_ticks=300)  # its id there is another's
    pages = ApplicationPages(
        str(tmp_path / "pbox-*.page"), {os.getuid()}, Tree(str(tmp_path)), clock
    )

    def page(executed_ns: int) -> FakePage:
        made = FakePage(flags=4)
        made.slot(0, pid=7, start_ticks=100, executed_ns=executed_ns, deferred_ns=executed_ns // 4)
        made.slot(1, pid=8, start_ticks=200, executed_ns=executed_ns, deferred_ns=executed_ns)
        made.slot(2, pid=9, start_ticks=100, executed_ns=executed_ns, deferred_ns=executed_ns)
        return made

    found = told(pages, tmp_path / "pbox-1.page", page(0), page(S))
    assert found["deferral_fraction"] == 0.25


def test_of_a_shared_page_a_free_place_is_nobodys_and_counts(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    def page(ended_executed_ns: int) -> FakePage:
        made = FakePage(flags=4)
        made.slot(
            0,
            psid=0,
            pid=2**22 + 1,  # no process has such a number: it has ended in good order
            start_ticks=1,
            ended_pboxes=1,
            ended_executed_ns=ended_executed_ns,
            ended_deferred_ns=ended_executed_ns // 2,
        )
        return made

    assert told(pages, tmp_path / "pbox-1.page", page(0), page(S))["deferral_fraction"] == 0.5


def test_processes_that_cannot_be_seen_are_no_signal_and_not_no_activity(
    tmp_path: Path, clock: Clock
) -> None:
    in_a_container(tmp_path, id_here=1, id_there=1, start_ticks=300)  # the agent's own container
    pages = ApplicationPages(
        str(tmp_path / "pbox-*.page"), {os.getuid()}, Tree(str(tmp_path)), clock
    )
    page = FakePage(flags=4)
    page.slot(0, pid=1, start_ticks=100, executed_ns=S)
    with (
        written(tmp_path / "pbox-1.page", page),
        pytest.raises(Unavailable, match=r"pbox-1\.page: none of its processes is to be seen"),
    ):
        pages.read()


def test_planted_and_stale_pages_however_many_hide_no_good_one(
    pages: ApplicationPages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, foreign = FakePage(), FakePage(), set()
    before.slot(0)
    after.slot(0, executed_ns=S, deferred_ns=S // 2)
    for i in range(100):
        (tmp_path / f"pbox-0{i}.page").write_bytes(FakePage().data)  # nobody holds its lock
        planted = tmp_path / f"pbox-00{i}.page"
        planted.write_bytes(FakePage().data)
        foreign.add(str(planted))
    real_lstat, real_open, opened = os.lstat, os.open, []

    def lstat(path: str) -> os.stat_result:
        found = list(real_lstat(path)[:10])
        found[4] += path in foreign
        return os.stat_result(found)

    def count(path: str, *how: int) -> int:
        opened.append(path)
        return real_open(path, *how)

    with monkeypatch.context() as patch:
        patch.setattr("dial.pbox.application.os.lstat", lstat)
        patch.setattr("dial.pbox.page.os.open", count)
        found = told(pages, tmp_path / "pbox-1.page", before, after)
    assert found["deferral_fraction"] == 0.5
    assert len(foreign & set(opened)) <= 3


def test_a_page_of_a_user_who_is_not_named_says_so_where_there_is_no_other(
    tmp_path: Path, clock: Clock
) -> None:
    stranger = ApplicationPages(str(tmp_path / "pbox-*.page"), {os.getuid() + 1}, ROOT, clock)
    with (
        written(tmp_path / "pbox-1.page", FakePage()),
        pytest.raises(Unavailable, match="owned by user"),
    ):
        stranger.read()


def test_no_page_and_only_bad_pages_are_told_apart(pages: ApplicationPages, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no such page"):
        pages.read()
    with (
        written(tmp_path / "pbox-1.page", FakePage(major=2)),
        pytest.raises(Unavailable, match="version 2"),
    ):
        pages.read()


def test_a_bad_page_costs_a_sample_three_fields_and_nothing_else(
    pages: ApplicationPages, tmp_path: Path
) -> None:
    now_s = 0.0
    sampler = Sampler([pages], {}, lambda: now_s, lambda: now_s)
    with written(tmp_path / "pbox-1.page", FakePage(state=2)):
        sampler.take()
        now_s = 1.0
        sample = sampler.take()
    assert sample is not None
    for value in (sample.deferral_fraction, sample.interference_level, sample.top_resource):
        assert isinstance(value, NoData)
        assert "its program has ended" in value.reason


def test_owners_are_names_or_numbers_and_by_default_ourselves() -> None:
    assert owner_ids([]) == {os.geteuid()}
    assert owner_ids(["root", "4711"]) == {0, 4711}
    with pytest.raises(SettingError, match="no such user"):
        owner_ids(["nobody of that name"])


instants = st.integers(0, 2**64 - 1)
readings = st.builds(
    Reading,
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(1, 3), *[instants] * 3)),
    st.frozensets(st.integers(0, 3)),
    st.dictionaries(st.integers(1, 3), st.tuples(st.sampled_from("ab"), instants)),
)


@given(readings, readings, st.floats(0.01, 60.0))
def test_no_page_claims_more_than_the_time_that_passed(before, after, interval_s) -> None:
    totals = Growth.between(before, after, interval_s).totals(frozenset())
    assert 0.0 <= totals.deferred_s <= totals.active_s
    assert totals.active_s <= 1.06 * interval_s * len(after.activities)
