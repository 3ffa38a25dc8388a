"""Windows of requests: percentiles, errors, pooling, bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.adapter import RequestBatch
from dial.telemetry import RequestWindows
from dial.types import NoData


def batch(latency_ms, *, name="s1", connect_ms=None, failed=None):
    n = len(latency_ms)
    return RequestBatch(
        names=(name,),
        backend=np.zeros(n, dtype=np.int32),
        end_s=np.arange(n, dtype=np.float64),
        latency_ms=np.array(latency_ms, dtype=np.float64),
        connect_ms=np.array(connect_ms if connect_ms is not None else [np.nan] * n, dtype=float),
        failed=np.array(failed if failed is not None else [False] * n, dtype=np.bool_),
    )


def close(windows, name="s1"):
    return windows.close((name,))[name]


def test_the_percentile_by_hand():
    # 1..21: the 90th lies at rank 0.9 * 20 = 18 from 0, which is 19.  Mean 11.
    windows = RequestWindows(90.0, 20)
    windows.add(batch(range(21, 0, -1)))
    window = close(windows)
    assert (window.t_x_ms, window.t_mean_ms) == (19.0, 11.0)
    assert (window.requests, window.errors, window.t_x_requests) == (21, 0, 21)


def test_a_percentile_between_two_requests_is_interpolated():
    # 10 and 20: rank 0.9 of 1 from 0, so 10 + 0.9 * 10.
    windows = RequestWindows(90.0, 2)
    windows.add(batch([10.0, 20.0]))
    assert close(windows).t_x_ms == pytest.approx(19.0)


def test_batches_of_a_tick_are_one_window_whatever_their_order():
    windows = RequestWindows(50.0, 1)
    for part in ([9.0, 1.0], [5.0], [7.0, 3.0]):
        windows.add(batch(part))
    assert close(windows).t_x_ms == 5.0


def test_backends_are_kept_apart_and_those_not_asked_for_are_left_out():
    windows = RequestWindows(50.0, 1)
    windows.add(
        RequestBatch(
            names=("s1", "s2", "other"),
            backend=np.array([0, 1, 0, 2], dtype=np.int32),
            end_s=np.zeros(4),
            latency_ms=np.array([1.0, 10.0, 3.0, 99.0]),
            connect_ms=np.full(4, np.nan),
            failed=np.array([False, False, False, False]),
        )
    )
    closed = windows.close(("s1", "s2", "idle"))
    assert {name: window.requests for name, window in closed.items()} == {
        "s1": 2,
        "s2": 1,
        "idle": 0,
    }
    assert (closed["s1"].t_x_ms, closed["s2"].t_x_ms) == (2.0, 10.0)


def test_a_window_has_enough_when_it_would_have_a_percentile():
    windows = RequestWindows(90.0, 3)
    assert not windows.has_enough("s1")
    windows.add(batch([1.0, 2.0, 3.0], failed=[False, False, True]))
    assert not windows.has_enough("s1")
    windows.add(batch([3.0, 4.0]))
    assert windows.has_enough("s1")
    assert not windows.has_enough("s2")
    assert close(windows).t_x_requests == 4
    assert not windows.has_enough("s1")


def test_a_fast_error_does_not_make_a_backend_look_fast():
    windows = RequestWindows(50.0, 3)
    windows.add(batch([10.0, 0.1, 20.0, 0.1, 30.0], failed=[False, True, False, True, False]))
    window = close(windows)
    assert (window.requests, window.errors) == (5, 2)
    assert (window.t_x_ms, window.t_mean_ms, window.t_x_requests) == (20.0, 20.0, 3)


def test_a_request_without_a_time_is_counted_and_not_measured():
    windows = RequestWindows(50.0, 2)
    windows.add(batch([10.0, np.nan, 20.0]))
    window = close(windows)
    assert (window.requests, window.errors, window.t_x_requests) == (3, 0, 2)
    assert window.t_x_ms == 15.0


def test_connect_times_are_of_new_connections_only():
    windows = RequestWindows(50.0, 2)
    windows.add(batch([10.0] * 4, connect_ms=[1.0, np.nan, 3.0, np.nan]))
    assert close(windows).t_c_ms == 2.0
    windows.add(batch([10.0] * 4, connect_ms=[1.0] + [np.nan] * 3))
    assert close(windows).t_c_ms == NoData("1 new connections; 2 are needed")


def test_too_few_requests_say_how_many_there_were():
    windows = RequestWindows(90.0, 20)
    windows.add(batch([1.0] * 19))
    window = close(windows)
    assert (
        window.t_x_ms == window.t_mean_ms == NoData("19 requests since the last T_x; 20 are needed")
    )
    assert (window.requests, window.t_x_requests) == (19, 19)


def test_each_tick_begins_anew():
    windows = RequestWindows(50.0, 1)
    windows.add(batch([100.0]))
    close(windows)
    windows.add(batch([1.0]))
    assert close(windows).t_x_ms == 1.0


# ---------------------------------------------------------------- pooling


def test_requests_are_gathered_over_ticks_until_there_are_enough():
    # Ticks of 4 requests, 10 are needed: every third tick has a T_x, of 12.
    windows = RequestWindows(50.0, 10)
    found = []
    for value in (10.0, 20.0, 30.0, 40.0, 50.0, 60.0):
        windows.add(batch([value] * 4))
        found.append(close(windows))
    assert [w.requests for w in found] == [4] * 6
    assert [w.t_x_requests for w in found] == [4, 8, 12, 4, 8, 12]
    missing = [NoData(f"{n} requests since the last T_x; 10 are needed") for n in (4, 8)]
    assert [w.t_mean_ms for w in found] == [*missing, 20.0, *missing, 50.0]


@given(sizes=st.lists(st.integers(0, 7), min_size=1, max_size=40))
def test_each_request_counts_in_at_most_one_percentile(sizes):
    windows = RequestWindows(50.0, 5)
    used = 0
    for size in sizes:
        windows.add(batch([1.0] * size))
        window = close(windows)
        if not isinstance(window.t_x_ms, NoData):
            used += window.t_x_requests
    left = 0 if not isinstance(window.t_x_ms, NoData) else window.t_x_requests
    assert used + left == sum(sizes)
    assert left < 5


def test_a_full_tick_forgets_the_slow_past_at_once():
    windows = RequestWindows(50.0, 10)
    windows.add(batch([1000.0] * 50))
    close(windows)
    windows.add(batch([1.0] * 10))
    assert close(windows).t_x_ms == 1.0


@pytest.mark.parametrize("failed", [[], [True, True]], ids=["nothing", "errors only"])
def test_a_tick_without_a_success_does_not_repeat_the_last_one(failed):
    # A stalled backend would look as well as it was for four ticks, and be learnt from again.
    windows = RequestWindows(50.0, 10)
    windows.add(batch([5.0] * 100))
    close(windows)
    windows.add(batch([0.1] * len(failed), failed=failed))
    window = close(windows)
    assert window.t_x_ms == NoData("0 requests since the last T_x; 10 are needed")
    assert (window.requests, window.errors) == (len(failed), len(failed))


def test_clearing_forgets_all_that_was_gathered():
    windows = RequestWindows(50.0, 2)
    windows.add(batch([4.0]))
    close(windows)
    windows.add(batch([1000.0] * 9))
    windows.clear()
    windows.add(batch([2.0, 2.0]))
    assert close(windows).t_mean_ms == 2.0


def test_a_backend_that_left_is_forgotten():
    windows = RequestWindows(50.0, 2)
    windows.add(batch([4.0]))
    windows.close(())
    windows.add(batch([2.0, 2.0]))
    assert close(windows).t_mean_ms == 2.0


# ---------------------------------------------------------------- bounds


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    limit=st.integers(1, 20),
)
def test_the_newest_up_to_the_limit_are_kept_however_they_come(sizes, limit):
    # Requests numbered in order; the mean of the newest `limit` tells which were kept.
    windows = RequestWindows(50.0, 1, max_kept=limit)
    number = 0
    for size in sizes:
        values = list(range(number, number + size))
        windows.add(batch(values, connect_ms=values))
        number += size
    window = close(windows)
    assert window.requests == number
    assert window.t_x_requests == min(number, limit)
    if number:
        newest = range(max(0, number - limit), number)
        assert window.t_mean_ms == pytest.approx(sum(newest) / len(newest))
        assert window.t_c_ms == pytest.approx(np.percentile(list(newest), 50))


def test_connect_times_of_failed_requests_are_bounded_too():
    windows = RequestWindows(50.0, 1, max_kept=10)
    for value in range(100):
        windows.add(batch([1.0], connect_ms=[float(value)], failed=[True]))
    window = close(windows)
    assert (window.requests, window.errors) == (100, 100)
    assert window.t_c_ms == 94.5  # the newest ten, 90 to 99


def test_an_empty_batch_changes_nothing():
    windows = RequestWindows(50.0, 1)
    windows.add(batch([]))
    assert close(windows).requests == 0


def test_the_batch_is_left_as_it_was():
    windows = RequestWindows(50.0, 1, max_kept=2)
    mine = batch([3.0, 1.0, 2.0])
    windows.add(mine)
    close(windows)
    assert list(mine.latency_ms) == [3.0, 1.0, 2.0]


# ---------------------------------------------------------------- many backends


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 1e6)), max_size=120),
    percentile=st.sampled_from([50.0, 90.0, 99.9]),
    long=st.sampled_from([1, 10_000]),
)
def test_each_of_many_backends_has_numpys_percentile_to_the_last_bit(rows, percentile, long):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dial.telemetry.requests._LONG", long)
        names = tuple(f"s{i}" for i in range(5))
        windows = RequestWindows(percentile, 3)
        for part in (rows[::2], rows[1::2]):
            windows.add(
                RequestBatch(
                    names=names,
                    backend=np.array([b for b, _ in part], dtype=np.int32),
                    end_s=np.zeros(len(part)),
                    latency_ms=np.array([v for _, v in part], dtype=float),
                    connect_ms=np.full(len(part), np.nan),
                    failed=np.zeros(len(part), dtype=np.bool_),
                )
            )
        closed = windows.close(names)
    for i, name in enumerate(names):
        values = [v for b, v in rows if b == i]
        assert closed[name].requests == len(values)
        if len(values) >= 3:
            assert closed[name].t_x_ms == np.percentile(values, percentile)
            assert closed[name].t_mean_ms == pytest.approx(np.mean(values))
        else:
            assert isinstance(closed[name].t_x_ms, NoData)


def test_backends_that_come_go_and_change_places_keep_what_is_theirs():
    windows = RequestWindows(50.0, 2)
    windows.add(batch([1.0], name="s1"))
    windows.add(batch([5.0], name="s2"))
    windows.close(("s1", "s2"))
    windows.add(batch([7.0], name="s2"))
    windows.add(batch([9.0], name="s3"))
    closed = windows.close(("s3", "s2"))
    assert (closed["s2"].t_x_ms, closed["s2"].requests) == (6.0, 1)
    assert closed["s3"].t_x_requests == 1
    windows.add(batch([3.0], name="s1"))
    assert close(windows).t_x_requests == 1


def test_where_a_line_stands_for_ten_requests_counts_are_tens_and_percentiles_are_of_lines():
    windows = RequestWindows(90.0, 3)
    windows.add(replace(batch([1.0, 2.0, 3.0, 4.0], failed=[0, 0, 0, 1]), stands_for=10))
    closed = windows.close(("s1",))["s1"]
    assert (closed.requests, closed.errors, closed.t_x_requests) == (40, 10, 3)
    assert closed.t_x_ms == pytest.approx(2.8)
