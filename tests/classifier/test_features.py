"""Metrics normalised by what the present load explains."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.classifier import (
    FEATURES,
    Features,
    FeaturesOfOne,
    Metrics,
    QuietBaseline,
    deferral,
    features_of,
    own,
)
from dial.classifier.baseline import Line
from dial.classifier.metrics import LINES, SAMPLE_FIELDS, WINDOW_FIELDS
from dial.columns import column, table
from dial.types import METRIC_NAMES, AgentSample, NoData, RequestWindow

FOREVER = 10**12
UNKNOWN = NoData("?")
NOTHING = AgentSample(0.0, 1.0, **{name: NoData("not sent") for name in METRIC_NAMES})
QUIET = replace(
    NOTHING,
    cpu_usr_cores=0.20,
    cpu_sys_cores=0.05,
    cpu_iowait_cores=0.01,
    cpu_steal_cores=0.00,
    run_queue_wait_cores=0.02,
    psi_io_some_fraction=0.08,
    disk_busy_fraction=0.18,
    memory_reload_ns=15.0,
    throttled_fraction=0.0,
    tcp_segments_out_per_s=1000.0,
    tcp_retransmits_per_s=1.0,
)
SEEN_BY_THE_BALANCER = {"requests_ratio", "errors_fraction", "t_c_ratio"}


def window(rate_per_s=100.0, *, errors=0, t_c_ms=0.5):
    requests = int(rate_per_s)
    return RequestWindow(requests, errors, rate_per_s, 10.0, requests, 5.0, t_c_ms)


def metrics(one_window, one_sample, rho_fg=UNKNOWN):
    return Metrics(
        table([one_window], WINDOW_FIELDS), table([one_sample], SAMPLE_FIELDS), column([rho_fg])
    )


def learn(baseline, *intervals, rho_fg=UNKNOWN, memory_intervals=FOREVER):
    for one_window, one_sample in intervals:
        now = metrics(one_window, one_sample, rho_fg)
        baseline = baseline.learn(now, np.array([True]), memory_intervals=memory_intervals)
    return baseline


def learnt(*intervals, memory_intervals=FOREVER):
    return learn(QuietBaseline.blank(1), *intervals, memory_intervals=memory_intervals)


def expected(baseline, metric, served_per_s=math.nan):
    return baseline.expected(metric, np.array([served_per_s])).item()


def features(baseline, one_window, one_sample, rho_fg=UNKNOWN):
    """Those of one backend."""
    return features_of(baseline, one_window, one_sample, rho_fg)


BASELINE = learnt((window(), QUIET), (window(), QUIET))


def test_a_quiet_interval_has_quiet_features():
    assert features(BASELINE, window(), QUIET) == pytest.approx(
        {
            "requests_ratio": 1.0,
            "errors_fraction": 0.0,
            "cpu_time_ratio": 1.0,
            "cpu_wait_excess": 0.0,
            "throttled_excess": 0.0,
            "iowait_ratio": 1.0,
            "io_pressure_odds_ratio": 1.0,
            "disk_busy_odds_ratio": 1.0,
            "retransmit_fraction": 1.0 / 1010.0,
            "t_c_ratio": 1.0,
            "memory_reload_ratio": 1.0,
        }
    )


def test_each_feature_by_hand():
    now = replace(
        QUIET,
        cpu_usr_cores=0.50,  # 150 req/s predict 0.375 of both: (0.77 + 0.02)/(0.375 + 0.02)
        cpu_sys_cores=0.27,
        cpu_iowait_cores=0.12,  # 0.015 predicted: 0.14/0.035
        cpu_steal_cores=0.10,  # with 0.12 below 0.22/(0.77 + 0.02), in quiet times 0.02/0.27
        run_queue_wait_cores=0.12,
        psi_io_some_fraction=0.40,  # odds 0.40/0.62; 0.12 predicted, so 0.12/0.90
        disk_busy_fraction=0.56,  # odds 0.56/0.46; 0.27 predicted, so 0.27/0.75
        memory_reload_ns=95.0,  # 100/20
        throttled_fraction=0.25,
        tcp_retransmits_per_s=101.0,
    )
    assert features(BASELINE, window(150.0, errors=30, t_c_ms=2.0), now) == pytest.approx(
        {
            "requests_ratio": 1.5,
            "errors_fraction": 0.2,
            "cpu_time_ratio": 2.0,
            "cpu_wait_excess": 0.22 / 0.79 - 0.02 / 0.27,
            "throttled_excess": 0.25,
            "iowait_ratio": 4.0,
            "io_pressure_odds_ratio": (0.40 / 0.62 + 0.02) / (0.12 / 0.90 + 0.02),
            "disk_busy_odds_ratio": (0.56 / 0.46 + 0.02) / (0.27 / 0.75 + 0.02),
            "retransmit_fraction": 0.1,
            "t_c_ratio": 4.0 / 2.75,  # 0.5 at 100/s predicts 0.75 at 150
            "memory_reload_ratio": 5.0,
        }
    )


def test_features_are_named_and_ordered_as_a_model_expects():
    assert list(features(BASELINE, window(), QUIET)) == list(FEATURES)
    assert list(features(QuietBaseline.blank(1), window(), NoData("x"))) == list(FEATURES)


@given(factor=st.floats(0.1, 10.0))
def test_load_that_explains_its_cpu_time_leaves_the_ratios_at_1(factor):
    # Learnt at one load only: all is slope, the utilisation law.
    now = replace(QUIET, cpu_usr_cores=0.20 * factor, cpu_sys_cores=0.05 * factor)
    found = features(BASELINE, window(100.0 * factor), now)
    assert found["cpu_time_ratio"] == pytest.approx(1.0)
    assert found["requests_ratio"] == pytest.approx(factor)


def test_an_idle_cost_is_told_from_the_slope_where_load_swings():
    # usr + sys = 0.10 + 0.001 n: 0.15 at 50/s, 0.30 at 200/s; so 0.50 at 400/s is as expected.
    swung = learnt(
        *((window(n), replace(QUIET, cpu_usr_cores=0.05 + 0.001 * n)) for n in (50.0, 200.0))
    )
    now = replace(QUIET, cpu_usr_cores=0.45)
    assert features(swung, window(400.0), now)["cpu_time_ratio"] == pytest.approx(1.0)


def test_work_is_compared_with_what_was_served_and_not_with_what_waits():
    # 100 requests arrive and 40 are served: the CPU time of 40 is 0.10.
    overloaded = replace(window(100.0), served_per_s=40.0)
    now = replace(QUIET, cpu_usr_cores=0.20, cpu_sys_cores=0.02)
    found = features(BASELINE, overloaded, now)
    assert found["cpu_time_ratio"] == pytest.approx(0.24 / 0.12)
    assert found["requests_ratio"] == pytest.approx(1.0)


# ---------------------------------------------------------------- what is missing


def test_where_next_to_nothing_is_expected_next_to_nothing_is_no_news():
    idle = replace(QUIET, cpu_usr_cores=0.001, cpu_sys_cores=0.0)
    baseline = learnt((window(), idle), (window(), idle))
    # Ten times as much, and still nothing: (0.01 + 0.02)/(0.001 + 0.02).
    now = replace(idle, cpu_usr_cores=0.01)
    assert features(baseline, window(), now)["cpu_time_ratio"] == pytest.approx(0.03 / 0.021)


@given(times=st.floats(1.0, 100.0))
def test_cpu_wait_does_not_depend_on_the_size_of_the_vm(times):
    # Wait and use both grow with the VM; 0.02 core is less and less beside them.
    def vm(size, wait):
        return replace(
            QUIET,
            cpu_usr_cores=20.0 * size,
            cpu_sys_cores=0.0,
            cpu_steal_cores=0.0,
            run_queue_wait_cores=wait * 20.0 * size,
        )

    baseline = learnt((window(), vm(times, 0.1)), (window(), vm(times, 0.1)))
    found = features(baseline, window(), vm(times, 1.1))
    assert found["cpu_wait_excess"] == pytest.approx(1.0, rel=2e-3)


def test_a_vm_that_does_not_run_is_no_reference_for_how_long_one_waits():
    idle = replace(QUIET, cpu_usr_cores=0.001, cpu_sys_cores=0.0, run_queue_wait_cores=0.0)
    alone = learnt((window(), QUIET), (window(), QUIET))
    beside = learnt((window(), idle), (window(), QUIET), (window(), idle), (window(), QUIET))
    now = replace(QUIET, run_queue_wait_cores=0.2)
    expected = features(alone, window(), now)["cpu_wait_excess"]
    assert features(beside, window(), now)["cpu_wait_excess"] == expected


def test_without_a_sample_its_features_carry_its_reason():
    found = features(BASELINE, window(), NoData("the agent is silent"))
    for name in set(FEATURES) - SEEN_BY_THE_BALANCER:
        assert found[name] == NoData("the agent is silent"), name
    assert {
        name for name, value in found.items() if not isinstance(value, NoData)
    } == SEEN_BY_THE_BALANCER


def test_a_missing_metric_hides_its_own_feature_only():
    found = features(BASELINE, window(), replace(QUIET, psi_io_some_fraction=NoData("no PSI")))
    assert found["io_pressure_odds_ratio"] == NoData("no PSI")
    assert [name for name, value in found.items() if isinstance(value, NoData)] == [
        "io_pressure_odds_ratio"
    ]


def test_before_anything_was_learnt_normalised_features_say_so():
    found = features(QuietBaseline.blank(1), window(), QUIET)
    unlearnt = NoData("no quiet interval learnt")
    assert {name for name, value in found.items() if value == unlearnt} == set(FEATURES) - {
        "errors_fraction",
        "retransmit_fraction",
    }


def test_cpu_wait_is_known_from_steal_or_run_queue_alone():
    only_steal = replace(QUIET, cpu_steal_cores=0.3, run_queue_wait_cores=NoData("no schedstat"))
    found = features(BASELINE, window(), only_steal)
    assert found["cpu_wait_excess"] == pytest.approx((0.30 - 0.02) / 0.27)
    only_gaps = replace(only_steal, cpu_steal_cores=0.0, cpu_unaccounted_cores=0.3)
    assert features(BASELINE, window(), only_gaps)["cpu_wait_excess"] == pytest.approx(0.28 / 0.27)
    neither = replace(only_steal, cpu_steal_cores=NoData("no steal"))
    assert features(BASELINE, window(), neither)["cpu_wait_excess"] == NoData("no schedstat")


def waiting(cores):
    return window(), replace(QUIET, run_queue_wait_cores=cores)


def test_a_wait_that_is_far_out_is_learnt_as_one_and_a_half_deviations():
    known = learnt(*map(waiting, [0.1, 0.3] * 5))
    mean, sd = (one.item() for one in known.wait())
    assert sd > 0.06 * (1.0 + mean)  # of 100 requests, by chance
    assert learn(known, waiting(5.0)).wait()[0].item() == pytest.approx(mean + 1.5 * sd / 11.0)


def test_where_waits_never_varied_one_is_far_out_by_what_chance_makes_of_its_requests():
    known = learnt(*[waiting(0.1)] * 10)
    mean = known.wait()[0].item()
    most = mean + 1.5 * 0.06 * (1.0 + mean)
    assert learn(known, waiting(5.0)).wait()[0].item() == pytest.approx((10.0 * mean + most) / 11.0)


def test_until_six_intervals_are_known_no_wait_is_far_out():
    known = learnt(*[waiting(0.1)] * 5)
    mean, there = known.wait()[0].item(), learnt(waiting(5.0)).wait()[0].item()
    found = learn(known, waiting(5.0)).wait()[0].item()
    assert found == pytest.approx((5.0 * mean + there) / 6.0)


def reading(waits, rate_per_s=1e6, **others):
    """Somebody waits for the disk for so much of the time, at so many bytes/s."""
    told = {"psi_io_some_fraction": waits, "disk_bytes_per_s": rate_per_s} | others
    return window(), replace(QUIET, **told)


def disk_wait(baseline, interval):
    """Over what is usual, and how much that varies."""
    ratio, sd = Features(baseline, metrics(*interval)).disk_wait_ratio()
    return ratio.item(), sd.item()


READS = learnt(*[reading(0.28)] * 10)


def test_a_wait_for_the_disk_is_beside_the_bytes_that_it_is_of():
    assert disk_wait(READS, reading(0.28)) == pytest.approx((1.0, 0.0), abs=1e-6)
    assert disk_wait(READS, reading(0.58))[0] == pytest.approx(0.60 / 0.30)
    assert disk_wait(READS, reading(0.28, 2e6))[0] == pytest.approx(0.30 / 0.58)


@pytest.mark.parametrize("times", [0.25, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("kind", ["one-after-another", "all-at-once"])
def test_neither_more_nor_less_load_than_usual_looks_like_a_neighbour(times, kind):
    waits = 0.28 * times if kind == "one-after-another" else 1.0 - 0.72**times
    ratio, _ = disk_wait(READS, reading(waits, 1e6 * times))
    assert ratio <= 1.0 + 1e-9
    assert ratio > 0.6


def test_where_pressure_is_not_told_the_disk_is_busy_instead():
    off = {"psi_io_some_fraction": NoData("no PSI")}
    known = learnt(*[reading(0.0, disk_busy_fraction=0.28, **off)] * 10)
    busy = reading(0.0, disk_busy_fraction=0.58, **off)
    assert disk_wait(known, busy)[0] == pytest.approx(2.0)


def test_who_never_waited_for_the_disk_has_no_usual_wait():
    known = learnt(*[reading(0.01)] * 10, *[reading(0.3, 0.0)] * 10)
    assert all(map(math.isnan, disk_wait(known, reading(0.5))))


def test_a_wait_for_the_disk_that_is_far_out_is_learnt_as_one_and_a_half_deviations():
    usual = READS.disk_wait()[0].item()
    most = usual * (1.0 + 1.5 * 0.06)  # of 100 requests, by chance
    found = learn(READS, reading(0.9)).disk_wait()[0].item()
    assert found == pytest.approx((10.0 * usual + most) / 11.0)


def test_a_quiet_past_of_before_a_metric_was_added_knows_nothing_of_it():
    narrow = replace(READS, means=READS.means.each(lambda sums: sums[:, :7]))
    assert all(map(math.isnan, disk_wait(narrow, reading(0.5))))
    assert not narrow.has_learnt("disk_rate", 0)
    assert expected(narrow, "memory_reload") == expected(READS, "memory_reload")
    again = learn(narrow, *[reading(0.28)] * 10)
    assert disk_wait(again, reading(0.58))[0] == pytest.approx(2.0)


def test_no_request_has_no_errors_fraction():
    assert features(BASELINE, window(0.0), QUIET)["errors_fraction"] == NoData("no request ended")


def test_an_idle_network_that_sends_one_segment_again_is_not_lossy():
    now = replace(QUIET, tcp_segments_out_per_s=2.0, tcp_retransmits_per_s=0.5)
    assert features(BASELINE, window(), now)["retransmit_fraction"] == pytest.approx(0.5 / 12.0)


def test_a_missing_metric_is_not_learnt_and_the_others_are():
    half = replace(QUIET, cpu_usr_cores=NoData("x"), memory_reload_ns=25.0)
    baseline = learnt((window(), QUIET), (window(), half))
    assert baseline.lines.weight[0, LINES.index("cpu_time")] == 1.0
    assert expected(baseline, "memory_reload") == pytest.approx(20.0)  # (15 + 25)/2


def test_an_interval_without_agent_still_teaches_what_the_balancer_saw():
    baseline = learnt((window(), QUIET), (window(300.0, t_c_ms=1.5), NoData("silent")))
    assert expected(baseline, "requests") == pytest.approx(200.0)
    assert expected(baseline, "t_c", 200.0) == pytest.approx(1.0)
    assert baseline.lines.weight[0, LINES.index("cpu_time")] == 1.0


def test_the_past_fades():
    # memory 10: (0.9*100 + 200)/1.9.
    baseline = learnt((window(100.0), QUIET), (window(200.0), QUIET), memory_intervals=10)
    assert expected(baseline, "requests") == pytest.approx(290.0 / 1.9)


def test_learning_returns_a_new_baseline_and_leaves_the_old():
    before = learnt((window(), QUIET))
    learn(before, (window(900.0), QUIET), memory_intervals=10)
    assert before == learnt((window(), QUIET))


# ---------------------------------------------------------------- the line


class line:  # noqa: N801 - it reads as the function that it stands for
    """A line of one metric of one backend."""

    def __init__(self, *points):
        none = np.zeros((1, 1))
        self.sums = Line(none, none, none, none, none)
        for n, y in points:
            known = np.array([[True]])
            self.sums = self.sums.learn(np.array([[n]]), np.array([[y]]), 1.0, known)

    def predict(self, n):
        return self.sums.predict(np.array([[n]])).item()

    def swings(self):
        return self.sums.swings().item()


def test_the_line_through_two_points():
    assert line((1.0, 3.0), (3.0, 7.0)).predict(2.0) == pytest.approx(5.0)  # 1 + 2 n


def test_a_constant_metric_is_an_intercept_whatever_the_load():
    # Slope exactly 0, and not 5/1.67 a request.
    assert line((1.0, 5.0), (2.0, 5.0)).predict(20.0) == pytest.approx(5.0)


def test_a_falling_metric_is_predicted_by_its_mean():
    # The best line with a slope >= 0 through (1, 6), (3, 4) is y = 5.
    assert line((1.0, 6.0), (3.0, 4.0)).predict(100.0) == pytest.approx(5.0)


def test_a_line_that_would_start_below_0_starts_at_0():
    # Free: -2 + 2 n.  Through the origin: sum n y / sum n^2 = (2*2 + 3*4)/(4 + 9) = 16/13.
    assert line((2.0, 2.0), (3.0, 4.0)).predict(13.0) == pytest.approx(16.0)


def test_a_load_that_hardly_swings_sets_no_slope():
    # 1 % apart: trusted, the slope would be -10 and the prediction the mean, 15.  Through the
    # origin it is 200 * (100*20 + 101*10)/(100^2 + 101^2) = 200 * 3010/20201.
    assert line((100.0, 20.0), (101.0, 10.0)).predict(200.0) == pytest.approx(
        200.0 * 3010.0 / 20201.0
    )


def test_an_intercept_is_known_once_the_load_has_differed_by_a_tenth_of_its_mean():
    # Coefficients of variation: 5 %, and 20 %.
    assert not line((95.0, 20.0), (105.0, 21.0)).swings()
    assert line((80.0, 20.0), (120.0, 21.0)).swings()
    assert not line().swings()
    steady, swung = (
        learnt(*((window(n), QUIET) for n in loads)) for loads in ((95.0, 105.0), (80.0, 120.0))
    )
    assert [one.tells_idle("cpu_time").item() for one in (steady, swung)] == [False, True]


def test_use_without_any_request_is_predicted_by_its_mean():
    assert line((0.0, 0.2), (0.0, 0.4)).predict(50.0) == pytest.approx(0.3)


def test_a_line_without_points_says_so():
    assert math.isnan(line().predict(1.0))


@given(
    points=st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 64.0)), min_size=1, max_size=30),
    n=st.floats(0.0, 1e4),
)
def test_a_prediction_is_never_negative_and_never_falls_with_load(points, n):
    found = line(*points)
    assert 0.0 <= found.predict(n) <= found.predict(n + 1.0) + 1e-9


def test_a_disk_that_is_busy_all_of_the_time_has_finite_odds():
    """From half busy to always busy: (1/0.02 + 0.02) / (0.5/0.52 + 0.02)."""
    busy = learnt(*((window(), replace(QUIET, disk_busy_fraction=0.5)) for _ in range(2)))
    now = replace(QUIET, disk_busy_fraction=1.0)
    found = features(busy, window(), now)["disk_busy_odds_ratio"]
    assert found == pytest.approx((1.0 / 0.02 + 0.02) / (0.5 / 0.52 + 0.02))


def test_a_connect_time_that_waits_behind_more_load_of_ones_own_is_as_expected():
    """M/M/1: waiting goes with rho / (1 - rho), so with n and with 1 / (1 - rho_fg)."""
    quiet = QuietBaseline.blank(1)
    for rho_fg in (0.30, 0.32):
        waiting = window(100.0 * rho_fg, t_c_ms=20.0 * rho_fg / (1.0 - rho_fg))
        quiet = learn(quiet, (waiting, QUIET), rho_fg=rho_fg)
    busy = window(60.0, t_c_ms=20.0 * 0.6 / 0.4)
    assert features(quiet, busy, QUIET, 0.6)["t_c_ratio"] == pytest.approx(1.0)
    assert features(quiet, busy, QUIET)["t_c_ratio"] > 1.8


@pytest.mark.parametrize("field", ["own_services_cores", "net_softirq_cores"])
@pytest.mark.parametrize(
    ("cores", "capacity", "expected"),
    [
        (0.1, 0.5, 0.2),
        (0.6, 0.5, 1.0),
        (0.1, 0.0, math.nan),
        (0.1, UNKNOWN, math.nan),
        (UNKNOWN, 0.5, math.nan),
    ],
)
def test_a_part_of_the_cpu_is_the_same_of_all_vms_and_of_one(field, cores, capacity, expected):
    one = replace(QUIET, cpu_capacity_cores=capacity, **{field: cores})
    metric = {"own_services_cores": "own_services", "net_softirq_cores": "softirq"}[field]
    assert metrics(window(), one)[metric] == pytest.approx([expected], nan_ok=True)
    part = own.part(getattr(one, field), one)
    assert isinstance(part, NoData) if math.isnan(expected) else part == pytest.approx(expected)


@pytest.mark.parametrize(
    ("usual", "now", "expected"),
    [
        ({"own_services_cores": 0.1}, {"own_services_cores": 0.55}, 0.5),  # (0.55 - 0.1)/0.9
        ({"own_services_cores": 0.1}, {"own_services_cores": UNKNOWN}, UNKNOWN),
        ({}, {"own_services_cores": 0.5}, NoData("no quiet interval learnt")),
        (
            {"own_services_cores": 1.0},
            {"own_services_cores": 1.0},
            NoData("nothing was left in quiet times either"),
        ),
        (
            {"own_services_cores": 0.1},
            {"own_services_cores": 0.5, "cpu_capacity_cores": 0.0},
            NoData("the VM may use no CPU"),
        ),
        # A minute of missed targets asks for a fifth, whatever is known of the CPU.
        ({}, {"own_services_cores": UNKNOWN, "targets_missed_s": 60.0}, 0.2),
        (
            {"own_services_cores": 0.1},
            {"own_services_cores": 0.55, "targets_missed_s": 60.0},
            0.5,
        ),
    ],
)
def test_what_a_vm_loses_to_its_own_services_or_why_that_is_not_known(usual, now, expected):
    vm = replace(QUIET, cpu_capacity_cores=1.0)
    quiet, one = replace(vm, **usual), replace(vm, **now)
    found = Features(learnt((window(), quiet)), metrics(window(), one))
    of_one = FeaturesOfOne(found, 0, lambda: (window(), one))
    lost = of_one[own.OWN_SERVICES]
    assert lost == (expected if isinstance(expected, NoData) else pytest.approx(expected))
    assert of_one.number(own.ASKED) == (0.2 if "targets_missed_s" in now else 0.0)
    assert of_one[deferral.FEATURE] == NoData("not sent")


def test_without_an_agent_nothing_is_known_of_ones_own_doing():
    silent = NoData("no agent")
    found = Features(BASELINE, metrics(window(), silent))
    of_one = FeaturesOfOne(found, 0, lambda: (window(), silent))
    assert [of_one[name] for name in own.FEATURES.values()] == [silent] * 3
    assert of_one[own.ASKED] == 0.0
