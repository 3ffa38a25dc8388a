from __future__ import annotations

from pathlib import Path

import pytest

from dial.agent.counters import fraction_of_time, parse_count, per_second
from dial.agent.files import Tree, Unavailable, Vanished
from dial.types import NoData


def test_a_rate_is_the_growth_over_the_interval() -> None:
    # (700 - 200) counts of 100 a second = 5 s of time, in 2.5 s: 2 cores
    assert per_second(200, 700, 2.5, per_unit=100) == 2.0


def test_a_counter_that_goes_backwards_is_no_data() -> None:
    rate = per_second(4_294_967_290, 10, 1.0)
    assert isinstance(rate, NoData)
    assert "backwards" in rate.reason


def test_no_time_between_readings_is_no_data() -> None:
    assert isinstance(per_second(1, 2, 0.0), NoData)


def test_the_reason_of_the_newer_reading_is_kept() -> None:
    assert per_second(1, NoData("gone"), 1.0) == NoData("gone")


def test_a_fraction_of_time_is_at_most_one() -> None:
    assert fraction_of_time(0, 1_001_000, 1.0, per_second_counts=1e6) == 1.0


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_000", "1.5", "\u0661", "9" * 21, "0x1", " 1"])
def test_what_is_no_unsigned_counter_is_refused(text: str) -> None:
    with pytest.raises(Unavailable, match="/proc/x"):
        parse_count(text, "/proc/x")


def test_a_missing_file_and_a_missing_process_are_vanished(tmp_path: Path) -> None:
    with pytest.raises(Vanished, match="/proc/1/stat: not there"):
        Tree(str(tmp_path)).read("/proc/1/stat")
    with pytest.raises(Vanished):
        Tree(str(tmp_path)).names("/proc/1/task")
    with pytest.raises(Vanished):
        Tree(str(tmp_path)).link("/proc/1/ns/net")


def test_a_directory_in_place_of_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    with pytest.raises(Unavailable, match="directory"):
        Tree(str(tmp_path)).read("/proc")


def test_a_file_longer_than_one_read_is_whole(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 200_000)
    assert len(Tree(str(tmp_path)).read("/long")) == 200_000
