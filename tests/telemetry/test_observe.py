"""The join of windows, samples and the balancer's own state."""

from dataclasses import replace

import numpy as np
import pytest

from dial.adapter import RequestBatch
from dial.seen import SAMPLE_NAMES, WINDOW_NAMES, Seen
from dial.telemetry import Observer, RequestWindows
from dial.types import (
    METRIC_NAMES,
    AgentSample,
    BalancerState,
    NoData,
    ServerState,
    WeightKind,
    WeightMeaning,
)

MEANING = WeightMeaning(WeightKind.REQUESTS, 1, 256, True)
SAMPLE = AgentSample(7.0, 1.0, **dict.fromkeys(METRIC_NAMES, 0.5))


def balancer(epoch="e1", **totals):
    return BalancerState(
        epoch,
        "roundrobin",
        MEANING,
        tuple(ServerState(name, 100, 100, True, 0, total, 0) for name, total in totals.items()),
    )


def requests(name, latency_ms):
    n = len(latency_ms)
    return RequestBatch(
        names=(name,),
        backend=np.zeros(n, dtype=np.int32),
        end_s=np.zeros(n),
        latency_ms=np.array(latency_ms, dtype=np.float64),
        connect_ms=np.full(n, np.nan),
        failed=np.zeros(n, dtype=np.bool_),
    )


@pytest.fixture
def windows():
    return RequestWindows(50.0, 2)


@pytest.fixture
def observer(windows):
    return Observer(windows, "sha256:abc")


def only(observation):
    (backend,) = observation.backends
    return backend


def test_an_observation_carries_all_that_can_change_a_plan(observer, windows):
    windows.add(requests("s1", [10.0, 20.0]))
    observer.begin(balancer(s1=0, s2=0))
    read = balancer(s1=2, s2=0)
    seen = observer.observe(read, {"s1": [SAMPLE]}, now_s=1234.0, interval_s=2.0)
    assert (seen.tick, seen.now_s, seen.interval_s) == (1, 1234.0, 2.0)
    assert (seen.epoch, seen.algorithm, seen.meaning) == ("e1", "roundrobin", MEANING)
    assert seen.model_checksum == "sha256:abc"
    assert [b.name for b in seen.backends] == ["s1", "s2"]  # the balancer's order
    assert tuple(b.server for b in seen.backends) == read.servers
    assert seen.backends[0].window.t_x_ms == 15.0
    assert seen.backends[0].sample == SAMPLE
    assert seen.backends[1].sample == NoData("no sample from an agent in this tick")
    assert seen.backends[1].window.t_x_ms == NoData("0 requests since the last T_x; 2 are needed")


def test_ticks_are_numbered_from_1(observer):
    seen = [observer.observe(balancer(s1=0), {}, 0.0, 1.0).tick for _ in range(3)]
    assert seen == [1, 2, 3]
    assert observer.tick == 3


def test_the_rate_is_what_arrived_by_the_balancers_counters(observer, windows):
    # Under overload 2 requests ended and 50 arrived in 2 s: 25/s, not 1/s.
    observer.begin(balancer(s1=1000))
    windows.add(requests("s1", [10.0, 20.0]))
    window = only(observer.observe(balancer(s1=1050), {}, 0.0, 2.0)).window
    assert (window.requests, window.rate_per_s) == (2, 25.0)


def test_each_tick_counts_from_the_reading_before(observer):
    observer.begin(balancer(s1=0))
    rates = [
        only(observer.observe(balancer(s1=total), {}, 0.0, 1.0)).window.rate_per_s
        for total in (10, 30, 30)
    ]
    assert rates == [10.0, 20.0, 0.0]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, balancer(s1=1_000_000)),  # first reading: the counter began long ago
        (balancer("e0", s1=10), balancer("e1", s1=500)),  # another process
        (balancer(s1=500), balancer(s1=3)),  # counters cleared
        (balancer(s2=0), balancer(s1=700)),  # a backend that was added
    ],
    ids=["first", "restart", "cleared", "new backend"],
)
def test_where_counters_cannot_be_compared_the_log_is_counted(observer, windows, before, now):
    if before is not None:
        observer.begin(before)
    windows.add(requests("s1", [10.0, 20.0, 30.0, 40.0]))
    assert only(observer.observe(now, {}, 0.0, 2.0)).window.rate_per_s == 2.0


def test_after_a_restart_the_next_tick_counts_again(observer):
    observer.begin(balancer("e0", s1=10_000))
    observer.observe(balancer("e1", s1=5), {}, 0.0, 1.0)
    assert only(observer.observe(balancer("e1", s1=12), {}, 0.0, 1.0)).window.rate_per_s == 7.0


def test_requests_that_were_sent_and_never_logged_are_told_from_no_traffic(observer):
    observer.begin(balancer(s1=0))
    window = only(observer.observe(balancer(s1=40), {}, 0.0, 1.0)).window
    assert window.t_x_ms == NoData("40 requests were sent there but no log line came")
    idle = only(observer.observe(balancer(s1=40), {}, 0.0, 1.0)).window
    assert idle.t_x_ms == NoData("0 requests since the last T_x; 2 are needed")


def test_a_backend_that_stalls_does_not_show_its_quiet_past(observer, windows):
    observer.begin(balancer(s1=0))
    windows.add(requests("s1", [5.0] * 50))
    quiet = only(observer.observe(balancer(s1=50), {}, 0.0, 1.0)).window
    stalled = only(observer.observe(balancer(s1=100), {}, 0.0, 1.0)).window
    assert quiet.t_x_ms == 5.0
    assert stalled.t_x_ms == NoData("50 requests were sent there but no log line came")


def test_samples_of_a_tick_are_merged(observer):
    later = replace(SAMPLE, at_s=8.0, cpu_usr_cores=1.0)
    seen = observer.observe(balancer(s1=0), {"s1": [SAMPLE, later], "gone": [SAMPLE]}, 0.0, 2.0)
    assert only(seen).sample.cpu_usr_cores == 0.75
    assert only(seen).sample.interval_s == 2.0


def test_after_time_that_was_not_seen_the_log_is_counted_and_not_the_counters(observer, windows):
    observer.begin(balancer(s1=100))
    observer.forget()
    windows.add(requests("s1", [1.0] * 10))
    window = only(observer.observe(balancer(s1=700), {}, 1.0, 1.0)).window
    assert window.rate_per_s == 10.0
    windows.add(requests("s1", [1.0] * 10))
    assert only(observer.observe(balancer(s1=720), {}, 2.0, 1.0)).window.rate_per_s == 20.0


def test_samples_and_the_rate_served_reach_back_two_seconds_where_ticks_are_shorter(
    observer, windows
):
    observer.begin(balancer(s1=0))
    served, seen = [], []
    for tick, n in enumerate((10, 20, 40), start=1):
        windows.add(requests("s1", [1.0] * n))
        sample = AgentSample(float(tick), 1.0, **dict.fromkeys(METRIC_NAMES, float(n)))
        samples = {"s1": (sample,)} if n != 40 else {}
        backend = only(observer.observe(balancer(s1=0), samples, float(tick), 1.0))
        served.append(backend.window.served_per_s)
        seen.append(backend.sample.cpu_usr_cores)
    assert served == [10.0, 15.0, 30.0]
    assert seen == [10.0, 15.0, 20.0]  # the last tick has none of its own


def test_the_columns_say_what_the_backends_say_one_by_one(observer, windows):
    observer.begin(balancer(s1=0, s2=0, s3=0))
    windows.add(requests("s1", [10.0, 20.0, 40.0]))
    observer.observe(balancer(s1=3, s2=0, s3=9), {"s1": [SAMPLE]}, now_s=1.0, interval_s=1.0)
    windows.add(requests("s2", [10.0]))
    samples = {"s1": [replace(SAMPLE, cpu_usr_cores=0.3)], "s2": [SAMPLE, SAMPLE]}
    # One has gone, and one is new.
    now = replace(balancer(s2=4, s4=1, s1=3), epoch="e1")
    observation = observer.observe(now, samples, now_s=2.0, interval_s=1.0)
    columns = Seen.of(observation)
    assert columns is observation.rows
    objects = Seen.of(replace(observation, backends=observation.backends))
    assert columns.names == objects.names == ("s2", "s4", "s1")
    for name in WINDOW_NAMES:
        np.testing.assert_array_equal(columns.windows[name], objects.windows[name], err_msg=name)
    for name in SAMPLE_NAMES:
        np.testing.assert_array_equal(columns.samples[name], objects.samples[name], err_msg=name)
    for name in ("weight", "configured_weight", "usable"):
        np.testing.assert_array_equal(getattr(columns, name), getattr(objects, name))
