from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.agent.files import Unavailable
from dial.partition.latency import Bucket, Histogram, Log, Window, least_requests, percentile_ms
from dial.types import NoData


def exactly(*times_ms: float) -> list[Bucket]:
    return [Bucket(ms, ms, 1.0) for ms in times_ms]


def test_the_percentile_of_a_log_is_the_time_of_a_request() -> None:
    assert percentile_ms(exactly(*range(1, 101)), 95.0) == 95.0


def test_beyond_the_last_bound_only_the_bound_is_known() -> None:
    assert percentile_ms([Bucket(0, 5, 1), Bucket(5, math.inf, 9)], 90.0) == 5.0


@given(
    times=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50),
    percentile=st.floats(50.0, 99.9),
)
def test_a_percentile_lies_among_the_times(times: list[float], percentile: float) -> None:
    assert min(times) <= percentile_ms(exactly(*times), percentile) <= max(times)


@pytest.mark.parametrize(
    ("percentile", "least"), [(50.0, 2), (90.0, 10), (99.0, 100), (99.9, 1000)]
)
def test_a_percentile_needs_a_request_beyond_it(percentile: float, least: int) -> None:
    assert least_requests(percentile) == least


def test_a_window_takes_no_more_intervals_than_it_needs() -> None:
    window = Window(90.0)
    window.add(0.0, exactly(*[100.0] * 10))
    window.add(0.5, exactly(*[1.0] * 6))
    assert window.latency_ms() == 100.0
    window.add(1.0, exactly(*[1.0] * 6))
    assert window.latency_ms() == 1.0


def test_a_window_forgets_after_five_seconds() -> None:
    window = Window(90.0)
    window.add(0.0, exactly(*[100.0] * 10))
    window.add(5.0, [])
    assert isinstance(window.latency_ms(), NoData)


def log(path: Path, *, field: int = 2, separator: str | None = None) -> Log:
    return Log(str(path), field, separator, 1000.0)


def test_a_log_is_read_from_its_end_and_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("GET 9.0\n")
    source = log(path)
    assert source.poll() == []
    with path.open("a") as file:
        file.write("GET 0.5 x\nno number\n\nGET -1\nGET nan\nGET 0.")
    assert source.poll() == exactly(500.0)
    with path.open("a") as file:
        file.write("25\n")
    assert source.poll() == exactly(250.0)


def test_a_rotated_log_and_one_that_was_cut_are_read_from_their_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("GET 1\n")
    source = log(path)
    source.poll()
    path.rename(tmp_path / "log.1")
    path.write_text("GET 2\nGET 3\n")
    assert source.poll() == exactly(2000.0, 3000.0)
    path.write_text("GET 4\n")
    assert source.poll() == exactly(4000.0)


def test_of_a_flood_the_newest_count_and_no_half_line_does(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    source = log(path)
    source.poll()
    path.write_text("GET 1\n" * 300_000)
    assert 150_000 < len(source.poll()) < 180_000
    with path.open("a") as file:
        file.write("GET 2\n")
    assert source.poll() == exactly(2000.0)


def test_a_log_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        log(tmp_path / "none").poll()


PAGE = """# TYPE rt histogram
rt_bucket{{path="/",le="0.01"}} {0}
rt_bucket{{path="/",le="0.1"}} {1}
rt_bucket{{path="/",le="+Inf"}} {2}
rt_bucket{{path="/other",le="0.01"}} 999
rt_bucket_other{{le="0.01"}} 5
rt_count 7
"""


def test_a_histogram_tells_what_was_added_between_two_looks() -> None:
    pages = iter([PAGE.format(1, 2, 2), PAGE.format(5, 8, 9)])
    source = Histogram(lambda: next(pages), "rt", {"path": "/"}, 1000.0)
    assert source.poll() == []
    assert source.poll() == [Bucket(0, 10, 4), Bucket(10, 100, 2), Bucket(100, math.inf, 1)]


def test_a_restarted_service_begins_anew() -> None:
    pages = iter([PAGE.format(5, 5, 5), PAGE.format(1, 1, 1), PAGE.format(1, 1, 2)])
    source = Histogram(lambda: next(pages), "rt", {"path": "/"}, 1000.0)
    assert [source.poll(), source.poll()] == [[], []]
    assert source.poll() == [Bucket(100, math.inf, 1)]


def test_a_page_without_the_histogram_is_no_reading() -> None:
    with pytest.raises(Unavailable, match="rt_bucket"):
        Histogram(lambda: 'rt_bucket{le="x"} y\n', "rt", {}, 1000.0).poll()
