from __future__ import annotations

import pytest

from dial.netcharge.interrupts import Overhead, parse_softirq_ns

MS = 1_000_000


def test_what_ticks_show_beyond_what_was_timed_is_spread_over_the_softirqs() -> None:
    # Of two CPUs one is interrupted; the other's softirqs are all there is.
    learnt = Overhead().learn([60 * MS, 30 * MS], [20 * MS, 30 * MS], [2_000, 70_000])
    assert learnt.per_run_ns() == (20_000.0, 0.0)


def test_the_past_fades_over_two_seconds() -> None:
    learnt = Overhead().learn([60 * MS], [20 * MS], [2_000])
    learnt = learnt.learn([0], [0], [2_000])
    # 40 ms fade to 36, 2000 softirqs to 1800.
    assert learnt.per_run_ns() == (pytest.approx(36e6 / 3_800),)


def test_ticks_that_fell_beside_the_softirqs_are_no_credit() -> None:
    assert Overhead().learn([0], [20 * MS], [2_000]).per_run_ns() == (0.0,)


def test_nothing_is_learnt_of_a_few() -> None:
    assert Overhead().learn([60 * MS], [0], [999]).per_run_ns() == (0.0,)


def test_a_cpu_that_is_off_has_no_line_and_no_time() -> None:
    stat = "cpu  0 0 0 0 0 9 9 0 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 5 0\n"
    assert parse_softirq_ns(stat, 2) == (130 * MS, 0)
