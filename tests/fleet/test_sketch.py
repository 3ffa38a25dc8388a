"""Buckets: their error is bounded, and sums of them are sketches of sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.adapter import RequestBatch
from dial.fleet.sketch import (
    ALPHA,
    BUCKETS,
    LARGEST_MS,
    LEAST_MS,
    SketchedWindows,
    as_batch,
    buckets,
    times_ms,
)
from dial.telemetry import RequestWindows

NAMES = ("s1", "s2")


def batch(backend, latency_ms, *, failed=None, connect_ms=None) -> RequestBatch:
    n = len(backend)
    return RequestBatch(
        names=NAMES,
        backend=np.array(backend, np.int32),
        end_s=np.zeros(n),
        latency_ms=np.array(latency_ms, float),
        connect_ms=np.full(n, np.nan) if connect_ms is None else np.array(connect_ms, float),
        failed=np.zeros(n, bool) if failed is None else np.array(failed),
    )


@given(st.floats(LEAST_MS, LARGEST_MS))
def test_a_time_is_read_back_within_alpha(time_ms):
    (read,) = times_ms(buckets(np.array([time_ms])))
    assert abs(read - time_ms) <= ALPHA * time_ms * (1.0 + 1e-9)


def test_there_are_as_many_buckets_as_the_docstring_says():
    # ln(3.6e6 / 1e-3) / ln(1.005 / 0.995) = 22.0043 / 0.0100001 = 2200.4
    assert BUCKETS == 2201


def test_a_time_beyond_any_is_taken_as_the_largest():
    low, high = times_ms(buckets(np.array([1e-9, 1e12])))
    assert low == pytest.approx(LEAST_MS, rel=ALPHA)
    assert high == pytest.approx(LARGEST_MS, rel=ALPHA)


def test_the_percentile_of_merged_windows_is_within_alpha_of_that_of_all_requests():
    random = np.random.default_rng(1)
    one, two = random.exponential(10.0, 700), random.exponential(30.0, 300)
    merged = RequestWindows(90.0, 20)
    for times in (one, two):
        windows = SketchedWindows()
        windows.add(batch(np.zeros(times.size), times))
        merged.add(as_batch(NAMES, windows.close(NAMES)))
    closed = merged.close(NAMES)["s1"]
    exact = np.percentile(np.concatenate([one, two]), 90.0)
    assert closed.requests == closed.t_x_requests == 1000
    assert closed.t_x_ms == pytest.approx(exact, rel=ALPHA)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.floats(0.01, 1e4) | st.just(np.nan),
            st.booleans(),
            st.floats(0.01, 1e3) | st.just(np.nan),
        ),
        max_size=60,
    )
)
def test_what_windows_stand_for_adds_up_as_the_requests_do(rows):
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    seen = batch(columns[0], columns[1], failed=np.array(columns[2], bool), connect_ms=columns[3])
    direct, sketched, windows = RequestWindows(90.0, 1), RequestWindows(90.0, 1), SketchedWindows()
    direct.add(seen)
    windows.add(seen)
    sketched.add(as_batch(NAMES, windows.close(NAMES)))
    both = sketched.close(NAMES)
    for name, exact in direct.close(NAMES).items():
        ours = both[name]
        assert (ours.requests, ours.errors) == (exact.requests, exact.errors)
        assert ours.t_x_requests == exact.t_x_requests
        for mine, theirs in ((ours.t_x_ms, exact.t_x_ms), (ours.t_c_ms, exact.t_c_ms)):
            assert type(mine) is type(theirs)
            if isinstance(mine, float):
                assert mine == pytest.approx(theirs, rel=ALPHA * 1.001)


def test_a_backend_that_is_not_asked_for_is_forgotten():
    windows = SketchedWindows()
    windows.add(batch([0, 1], [1.0, 2.0]))
    (second,) = windows.close(("s2",))
    assert second.requests == 1
    assert [window.requests for window in windows.close(NAMES)] == [0, 0]


def test_rows_beyond_a_million_are_added_up(monkeypatch):
    monkeypatch.setattr("dial.fleet.sketch._COMPACT_ROWS", 3)
    windows = SketchedWindows()
    for _ in range(5):
        windows.add(batch([0, 0, 1], [1.0, 100.0, 5.0]))
    first, second = windows.close(NAMES)
    assert first.latency.count.tolist() == [5, 5]
    assert second.latency.count.tolist() == [5]


def test_what_a_sampled_log_counts_adds_up_across_balancers_too():
    sketched = SketchedWindows()
    sampled = batch([0] * 4, [1.0, 2.0, 3.0, 4.0], failed=[False, False, False, True])
    sketched.add(replace(sampled, stands_for=10))
    windows = RequestWindows(90.0, 3)
    windows.add(as_batch(("s1",), sketched.close(("s1",))))
    closed = windows.close(("s1",))["s1"]
    assert (closed.requests, closed.errors, closed.t_x_requests) == (40, 10, 3)
    assert closed.t_x_ms == pytest.approx(2.8, rel=0.01)
