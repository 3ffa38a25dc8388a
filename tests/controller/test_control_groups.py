"""A backend beside its siblings."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.controller.comparison import Comparison
from dial.controller.control_groups import ControlGroups
from dial.controller.history import WINDOW_INTERVALS, Apparent
from dial.controller.noise import Noise
from dial.estimator import RhoBg
from dial.types import NoData


def groups(t_x, cpu_time=None, *, names=None, sd=0.1, relaxations=math.inf, alike=True):
    """Of backends with these histories, the newest last; ``None`` is not known."""
    cpu_time = [[None] * len(t_x[0])] * len(t_x) if cpu_time is None else cpu_time
    told = Told(rows(t_x), rows(cpu_time), sd, relaxations, alike)
    return ControlGroups(names or tuple(f"s{i:03d}" for i in range(len(t_x))), told)


class Told:
    """Witnesses that say what they were told, (n, w)."""

    def __init__(self, t_x, cpu_time, sd, relaxations, alike=True):
        nobody = np.ones(len(t_x))
        self.noise = Noise(nobody, nobody, nobody, (60.0 if alike else 0.0) * nobody)
        self._t_x, self._cpu_time, self._sd, self._relaxations = t_x, cpu_time, sd, relaxations

    def by_t_x(self, of):
        mean = self._t_x[of]
        return Apparent(mean, np.full_like(mean, self._sd), np.full_like(mean, self._relaxations))

    def t_x_speaks(self, of):
        return ~np.isnan(self._t_x[of])

    def by_cpu_time(self, of):
        mean = self._cpu_time[of]
        return Apparent(mean, np.full_like(mean, self._sd), np.full_like(mean, math.inf))

    by_disk_wait = by_cpu_wait = by_cpu_residence = by_cpu_time


def rows(histories):
    longest = max(map(len, histories))
    padded = ([None] * (longest - len(each)) + list(each) for each in histories)
    return np.array(list(padded), float).reshape(len(histories), longest)


def beside(own, *siblings, intervals=WINDOW_INTERVALS, sd=0.1, relaxations=math.inf):
    """The comparison of a backend with siblings of these histories."""
    of = groups([own, *siblings], sd=sd, relaxations=relaxations)
    (compared,) = of.by_t_x(np.array([0]), np.array([intervals]))
    return compared


def test_the_newest_interval_counts_most_and_the_error_falls_with_the_intervals():
    """(0.85 x 0.5 + 0.4)/1.85 less 0.1; each sd is 0.1 sqrt(1 + 0.85^2)/1.85 = 0.0709."""
    compared = beside([0.5, 0.4], [0.1, 0.1], [0.1, 0.1])
    assert compared.excess.mean == pytest.approx((0.85 * 0.5 + 0.4) / 1.85 - 0.1)
    assert compared.excess.sd == pytest.approx(0.0709 * 2**0.5, abs=1e-4)


def test_the_error_of_intervals_whose_queue_is_one_queue_is_that_of_one():
    compared = beside([0.5, 0.4], [0.1, 0.1], relaxations=0.0)
    assert compared.excess.sd == pytest.approx(0.1 * 2**0.5)


def test_the_error_of_intervals_that_go_together_is_their_covariance():
    """e^-1 = 0.368: neighbours go together by 0.6321^2 / (2 x 0.3679) = 0.543, the next but one
    by 0.543 x 0.368 = 0.200; with weights 0.7225, 0.85 and 1 (their sum is 2.5725)

        0.7225^2 + 0.85^2 + 1 + 2 (0.7225 x 0.85 + 0.85) 0.543 + 2 x 0.7225 x 0.200 = 4.124.
    """
    compared = beside([0.5] * 3, [], relaxations=1.0)
    assert compared.own.sd == pytest.approx(0.1 * 4.124**0.5 / 2.5725, abs=1e-4)


def test_a_backend_is_slower_by_as_much_as_is_worth_it_and_by_two_and_a_half_deviations():
    compared = Comparison(RhoBg(0.4, 0.06), RhoBg(0.1, 0.08))
    assert compared.excess.mean == pytest.approx(0.3)
    assert compared.excess.sd == pytest.approx(0.1)
    assert compared.exceeds(0.3)
    assert not compared.exceeds(0.31)
    assert not Comparison(RhoBg(0.4, 0.1), RhoBg(0.1, 0.08)).exceeds(0.2)


def test_the_typical_sibling_is_the_lower_median_of_the_siblings_means():
    # By turns slow: each interval's lower median is 0, the siblings' means are 0.2.
    compared = beside([0.5] * 8, [0.4, 0.0] * 4, [0.0, 0.4] * 4)
    assert compared.siblings.mean == pytest.approx(0.2, abs=0.02)


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=8))
def test_of_one_interval_it_is_the_lower_median(values):
    compared = beside([0.5], *([v] for v in values))
    assert compared.siblings.mean == pytest.approx(statistics.median_low(values))


def test_siblings_that_are_faster_than_usual_accuse_nobody():
    assert beside([0.1], [-0.4]).excess.mean == pytest.approx(0.1)


def test_of_backends_slow_alike_the_slowest_by_chance_does_not_exceed():
    assert not beside([0.5, 0.45], [0.3, 0.25], [0.35, 0.3]).exceeds(0.2)


def test_two_victims_of_three_do_not_excuse_each_other_and_three_do():
    assert beside([0.6] * 3, [0.6] * 3, [0.0] * 3).exceeds(0.2)
    assert beside([0.6] * 3, [0.6] * 3, [0.5] * 3).shared


def test_a_long_time_of_being_slow_alike_is_outweighed_in_a_few_intervals():
    slow = [0.4] * 8
    assert beside([*slow, *[0.9] * 4], slow + slow, slow + slow, sd=0.05).exceeds(0.2)


def test_only_the_intervals_asked_for_are_compared():
    assert beside([0.0, 0.0, 0.6], [0.0, 0.0, 0.1], intervals=1).excess.mean == pytest.approx(0.5)
    assert isinstance(beside([0.6], [0.1], intervals=0), NoData)


def test_the_interval_in_which_a_neighbour_comes_does_not_hide_it():
    """Over both intervals 0.23 +- 0.10, over the second alone 0.5 +- 0.14."""
    excess = beside([-0.1, 0.5], [0.0, 0.0], [0.0, 0.0]).excess
    assert excess.mean == pytest.approx(0.5)
    assert excess.sd == pytest.approx(math.hypot(0.1, 0.1))


def test_intervals_are_those_in_which_t_x_spoke_since_the_backend_was_calm():
    assert beside([0.9, None, 0.5], [0.0] * 3, intervals=2).intervals == 1
    assert beside([0.2, None, 0.5], [0.0] * 3).intervals == 2
    assert beside([-0.1, 0.5], [0.0] * 2).intervals == 2, "though the second alone is surer"


def test_more_intervals_count_where_they_are_surer():
    """Siblings that are slow in the second alone: 0.25 +- 0.10 over both, 0.2 +- 0.14 over it."""
    assert beside([0.0, 0.5], [-0.3, 0.3], [-0.3, 0.3]).excess.mean == pytest.approx(
        (0.5 - (0.3 - 0.85 * 0.3)) / 1.85
    )


@given(st.lists(st.floats(-0.5, 0.9), min_size=1, max_size=WINDOW_INTERVALS))
def test_no_comparison_is_less_sure_for_looking_from_the_first_slower_interval(own):
    found = beside(own, [0.0] * len(own), [0.0] * len(own)).excess
    counts = np.array([0.85**age for age in range(len(own))][::-1])
    mean = float(np.dot(counts, own) / counts.sum())
    sd = 0.1 * math.hypot(*counts) / counts.sum()
    assert found.mean / found.sd >= mean / math.hypot(sd, sd) - 1e-9


def test_an_interval_without_t_x_adds_nothing():
    with_gap = beside([0.5, None], [0.1, 0.1]).own
    assert with_gap.mean == pytest.approx(0.5)
    assert isinstance(beside([None, None], [0.1, 0.1]), NoData)


def test_an_interval_is_compared_when_a_siblings_has_come_that_is_no_older():
    """All become slow: the first of them to have a T_x of it is not accused by the others' old."""
    assert isinstance(beside([0.6], [0.0, None], [0.0, None], intervals=1), NoData)
    assert beside([0.0, 0.6], [0.0, None], [0.0, None], intervals=2).own.mean == 0.0
    assert beside([0.6, 0.6], [0.0, None], [None, 0.6]).siblings.mean == pytest.approx(0.6)


def test_where_the_siblings_suffer_as_well_it_takes_more_to_be_sure():
    assert Comparison(RhoBg(0.6, 0.05), RhoBg(0.25, 0.1)).exceeds(0.2)
    assert not Comparison(RhoBg(0.6, 0.05), RhoBg(0.31, 0.07)).exceeds(0.2)


def test_siblings_that_surely_suffer_as_much_refute_a_neighbour():
    assert Comparison(RhoBg(0.7, 0.03), RhoBg(0.6, 0.04)).refutes(0.2)
    assert not Comparison(RhoBg(0.7, 0.1), RhoBg(0.6, 0.04)).refutes(0.2), "not sure"
    assert not Comparison(RhoBg(0.3, 0.01), RhoBg(0.14, 0.01)).refutes(0.2), "less than half"


def test_what_siblings_suffer_is_asked_of_the_witness_of_the_cause():
    two = groups([[0.6], [0.6]], [[0.1], [0.1]])
    (by_t_x, again) = two.typical(np.array([0, 1]), by_cpu_time=False)
    (by_cpu_time,) = two.typical(np.array([0]), by_cpu_time=True)
    assert by_t_x.mean == again.mean == pytest.approx(0.6)
    assert by_cpu_time.mean == pytest.approx(0.1)
    (alone,) = groups([[0.6]]).typical(np.array([0]), by_cpu_time=False)
    assert isinstance(alone, NoData)


def test_a_moment_in_which_all_are_slow_is_not_what_siblings_suffer():
    stalled = groups([[0.6] * 8, [0.0] * 6 + [0.95] * 2])
    (found,) = stalled.typical(np.array([0]), by_cpu_time=False)
    assert found.mean == 0.0
    (over,) = groups([[0.6] * 8, [0.6] * 5 + [0.0] * 3]).typical(np.array([0]), by_cpu_time=False)
    assert over.mean < 0.3, "what was goes by as in any mean"


def test_a_backend_without_siblings_is_compared_with_an_undisturbed_one():
    assert beside([0.5]).excess == RhoBg(0.5, 0.1)
    assert beside([0.5], [None]).excess == RhoBg(0.5, 0.1)


def test_an_excess_counts_by_the_curve_of_the_resource():
    compared = beside([0.3, 0.3], [0.1, 0.1], sd=0.01)
    assert not compared.exceeds(0.3)
    assert compared.exceeds(0.3, scale=1.6)


def test_each_witness_is_asked_on_its_own():
    two = groups([[0.6, 0.6], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]])
    (by_t_x,) = two.by_t_x(np.array([0]), np.array([2]))
    (by_cpu_time,) = two.by_cpu_time(np.array([0]), np.array([2]))
    assert by_t_x.exceeds(0.2)
    assert not by_cpu_time.exceeds(0.2)


_HISTORIES = st.lists(st.one_of(st.none(), st.just(0.3)), min_size=4, max_size=4)


def by_cpu_time(own, sd=0.1):
    """The comparison of a backend with two undisturbed siblings by CPU times."""
    nobody = [0.0] * len(own)
    of = groups([own] * 3, [own, nobody, nobody], sd=sd)
    (compared,) = of.by_cpu_time(np.array([0]), np.array([WINDOW_INTERVALS]))
    return compared


def test_cpu_times_that_differ_by_more_than_their_errors_are_as_unsure_as_they_differ():
    """0.8 and 0.4 with errors of 0.1: mean 1.08/1.85, chi squared 16 x 2 x 0.85/1.85^2 = 7.95."""
    mean = (0.85 * 0.8 + 0.4) / 1.85
    deviations = ((0.8 - mean) / 0.1) ** 2, ((0.4 - mean) / 0.1) ** 2
    birge = math.sqrt(2.0 * (0.85 * deviations[0] + deviations[1]) / 1.85)
    assert birge == pytest.approx(math.sqrt(2.0 * 16.0 * 0.85 / 1.85**2))
    found = by_cpu_time([0.8, 0.4])
    assert found.own.sd == pytest.approx(birge * 0.1 * math.hypot(0.85, 1.0) / 1.85)
    assert found.own.mean == pytest.approx(mean)


def test_cpu_times_that_are_alike_are_as_sure_as_their_errors():
    assert by_cpu_time([0.5, 0.5]).own.sd == pytest.approx(0.1 * math.hypot(0.85, 1.0) / 1.85)
    assert by_cpu_time([0.5]).own.sd == pytest.approx(0.1)
    assert by_cpu_time([None, 0.5, None]).own.sd == pytest.approx(0.1)


def test_one_dear_interval_among_many_is_no_neighbour_and_many_dear_ones_are():
    assert not by_cpu_time([0.0, 0.9, 0.0, 0.9, 0.0, 0.9]).exceeds(0.2)
    assert by_cpu_time([0.4, 0.5, 0.4, 0.5, 0.4, 0.5]).exceeds(0.2)


@given(st.lists(_HISTORIES, min_size=1, max_size=4), st.integers(0, 4))
def test_whether_a_backend_can_be_compared_is_told_without_comparing_it(histories, intervals):
    of, everybody = groups(histories), np.arange(len(histories))
    asked = np.full(len(histories), intervals)
    compared = of.by_t_x(everybody, asked)
    why_not = [each if isinstance(each, NoData) else None for each in compared]
    assert of.why_not(everybody, asked) == why_not


def test_of_many_backends_eight_are_the_control_group_and_nobody_is_in_its_own():
    names = tuple(f"s{i:03d}" for i in reversed(range(100)))
    of = groups([[i / 100] for i in reversed(range(100))], names=names)
    rows = np.array([names.index("s010"), names.index("s098")])
    ten, ninety_eight = of.by_t_x(rows, np.array([1, 1]))
    assert ten.siblings.mean == pytest.approx(0.14)  # of 11 ... 18
    assert ninety_eight.siblings.mean == pytest.approx(0.03)  # of 99, 0 ... 6


BY_THE_VM = pytest.mark.parametrize(
    "witness", ["by_cpu_time", "by_cpu_residence", "by_cpu_wait", "by_disk_wait"]
)


def newest_beside(witness, own, *siblings):
    """The comparison of the newest interval of a backend, by what the VM tells."""
    nothing = [[None] * len(own)] * (1 + len(siblings))
    of = groups(nothing, [own, *siblings])
    (compared,) = getattr(of, witness)(np.array([0]), np.array([1]))
    return compared


@BY_THE_VM
def test_what_siblings_show_anyway_is_known_better_than_by_one_interval(witness):
    """The mean of three fades as 0.7225, 0.85 and 1; its sd is 0.1 sqrt(2.2445)/2.5725."""
    compared = newest_beside(witness, [0.0, 0.0, 0.5], [0.1, 0.1, 0.0], [0.2, 0.2, 0.2])
    assert compared.siblings.mean == pytest.approx((0.7225 + 0.85) * 0.1 / 2.5725)
    assert compared.siblings.sd == pytest.approx(0.1 * math.sqrt(2.24450625) / 2.5725)
    assert compared.own == RhoBg(0.5, pytest.approx(0.1))


def test_where_costs_are_not_known_to_be_alike_siblings_cost_what_they_cost_now():
    nothing = [[None] * 3] * 3
    own, *siblings = [0.0, 0.0, 0.5], [0.1, 0.1, 0.0], [0.2, 0.2, 0.2]
    of = groups(nothing, [own, *siblings], alike=False)
    (compared,) = of.by_cpu_time(np.array([0]), np.array([1]))
    assert compared.siblings == RhoBg(pytest.approx(0.0), pytest.approx(0.1))


@BY_THE_VM
def test_what_all_show_at_the_moment_excuses(witness):
    compared = newest_beside(witness, [0.0, 0.0, 0.5], [0.0, 0.0, 0.5], [0.0, 0.0, 0.6])
    assert compared.excess.mean == pytest.approx(0.0)


@BY_THE_VM
def test_siblings_that_nothing_else_is_known_of_say_what_they_say_now(witness):
    compared = newest_beside(witness, [None, None, 0.5], [None, None, 0.1], [None, None, 0.2])
    assert compared.siblings == RhoBg(pytest.approx(0.1), pytest.approx(0.1))


@BY_THE_VM
def test_of_no_backends_there_is_no_comparison_by_the_cpu(witness):
    of = groups([[0.1], [0.1]], [[0.1], [0.1]])
    assert getattr(of, witness)(np.array([], int), np.array([], int)) == []
