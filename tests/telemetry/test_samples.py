"""The samples of one tick, averaged into one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.columns import table
from dial.seen import SAMPLE_NAMES
from dial.telemetry import merge_samples
from dial.telemetry.samples import merged_columns
from dial.types import METRIC_NAMES, AgentSample, NoData

NOTHING = AgentSample(0.0, 1.0, **{name: NoData("not sent") for name in METRIC_NAMES})


def sample(at_s, interval_s, **metrics):
    return replace(NOTHING, at_s=at_s, interval_s=interval_s, **metrics)


def test_each_sample_weighs_as_much_as_the_time_it_covers():
    # (0.2 * 1 + 0.5 * 3)/4 = 0.425.
    merged = merge_samples(
        [sample(1.0, 1.0, cpu_usr_cores=0.2), sample(4.0, 3.0, cpu_usr_cores=0.5)]
    )
    assert merged.cpu_usr_cores == pytest.approx(0.425)
    assert (merged.at_s, merged.interval_s) == (4.0, 4.0)


def test_a_metric_that_some_lack_is_averaged_over_those_that_have_it():
    merged = merge_samples(
        [
            sample(1.0, 1.0, cpu_usr_cores=0.2),
            sample(2.0, 1.0, cpu_usr_cores=NoData("a restart")),
            sample(3.0, 1.0, cpu_usr_cores=0.4),
        ]
    )
    assert merged.cpu_usr_cores == pytest.approx(0.3)
    assert merged.interval_s == 3.0


def test_where_all_lack_it_the_newest_reason_stands():
    merged = merge_samples(
        [
            sample(1.0, 1.0, cpu_steal_cores=NoData("first sample")),
            sample(2.0, 1.0, cpu_steal_cores=NoData("no such counter")),
        ]
    )
    assert merged.cpu_steal_cores == NoData("no such counter")
    assert merged.disk_busy_fraction == NoData("not sent")


def test_no_sample_is_no_data():
    assert merge_samples([]) == NoData("no sample from an agent in this tick")


def test_one_sample_is_itself():
    only = sample(5.0, 0.7, **dict.fromkeys(METRIC_NAMES, 0.25))
    merged = merge_samples([only])
    assert merged == replace(only, **dict.fromkeys(METRIC_NAMES, pytest.approx(0.25)))


@given(st.lists(st.tuples(st.floats(0.01, 60.0), st.floats(0.0, 64.0)), min_size=1, max_size=20))
def test_an_average_lies_between_the_least_and_the_greatest(pairs):
    merged = merge_samples(
        [sample(float(i), dt, cpu_usr_cores=v) for i, (dt, v) in enumerate(pairs)]
    )
    values = [value for _, value in pairs]
    assert min(values) - 1e-9 <= merged.cpu_usr_cores <= max(values) + 1e-9


_VALUES = st.one_of(st.just(NoData("not sent")), st.floats(0.0, 8.0))
_SAMPLES = st.builds(
    sample,
    st.just(7.0),
    st.floats(0.1, 60.0),
    **dict.fromkeys(
        (
            "cpu_usr_cores",
            "cpu_sys_cores",
            "net_softirq_cores",
            "net_softirq_shown_cores",
            "disk_busy_fraction",
        ),
        _VALUES,
    ),
)


@given(st.lists(st.lists(_SAMPLES, max_size=3), max_size=4))
def test_many_agents_samples_are_averaged_as_each_ones_are(samples):
    found = merged_columns(samples)
    one_by_one = table([merge_samples(of_one) for of_one in samples], SAMPLE_NAMES)
    for name in SAMPLE_NAMES:
        np.testing.assert_array_equal(found[name], one_by_one[name], err_msg=name)


@given(st.lists(st.lists(_SAMPLES, max_size=3), min_size=1, max_size=4), st.data())
def test_few_of_many_agents_are_the_same_as_among_all(samples, data):
    rows = data.draw(st.lists(st.integers(0, len(samples) - 1), min_size=1, max_size=4))
    found = merged_columns(samples)
    few = found.take(np.array(rows))
    for name in data.draw(st.permutations(SAMPLE_NAMES)):
        np.testing.assert_array_equal(few[name], found[name][rows], err_msg=name)
