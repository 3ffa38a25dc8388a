"""Who seems to be slowed by a neighbour is taken last of idle backends, for a while."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from dial.controller.comparison import Comparison
from dial.controller.doubts import in_doubt
from dial.controller.look import _stretch
from dial.controller.noise import Noise
from dial.controller.policy import Policy
from dial.estimator import RhoBg
from dial.types import Action, NoData, WeightKind, WeightMeaning

DELAY = WeightMeaning(WeightKind.SERVICE_RATE, minimum=1, maximum=256, zero_drains=True)

NOBODY = RhoBg(0.0, 0.0)
LIKELY = RhoBg(0.4, 0.25)
"""At 1.6 standard errors."""

NO_DISK = NoData("it reads from memory")


class Told:
    """Control groups that say of s1, over so many intervals, what they were told."""

    def __init__(self, t_x, at_cpu, at_disk, over, noise):
        self._t_x, self._at_cpu, self._at_disk = t_x, at_cpu, at_disk
        self._over, self.noise = over, noise

    def by_t_x(self, rows, intervals):
        return self._said(rows, intervals, self._t_x)

    def by_cpu_residence(self, rows, intervals):
        return self._said(rows, intervals, self._at_cpu)

    def by_disk_wait(self, rows, intervals):
        return self._said(rows, intervals, self._at_disk)

    def _said(self, rows, intervals, what):
        assert not rows.any()
        if isinstance(what, NoData):
            return [what] * rows.size
        return [Comparison(what if n == self._over else NOBODY, NOBODY) for n in intervals]


@pytest.fixture
def doubts(policy_source):
    policy = Policy.of(policy_source)

    def ask(
        t_x=LIKELY,
        at_cpu=LIKELY,
        at_disk=NO_DISK,
        *,
        over=4,
        residence=1.5,
        disk=np.nan,
        before=None,
        contended=(),
        tick=100,
        cost_noise=1.0,
        intervals=60.0,
    ):
        read = SimpleNamespace(
            residence=np.array([residence, 1.0, np.nan]), disk=np.array([disk, 0.0, np.nan])
        )
        looks = SimpleNamespace(seen=SimpleNamespace(names=("s1", "s2", "s3")), read=read)
        three = np.ones(3)
        noise = Noise(three, three, cost_noise * three, intervals * three)
        told = Told(t_x, at_cpu, at_disk, over, noise)
        return in_doubt(policy, before or {}, looks, told, contended, tick=tick)

    return ask


@pytest.mark.parametrize("over", [2, 4, 8])
def test_two_witnesses_that_likely_are_right_are_enough_over_a_few_intervals(doubts, over):
    assert doubts(over=over) == {"s1": 120}


@pytest.mark.parametrize("who", ["t_x", "at_cpu"])
@pytest.mark.parametrize(
    "says",
    [RhoBg(0.19, 0.01), RhoBg(0.4, 0.3), RhoBg(-0.4, 0.1), NoData("no interval")],
    ids=["too-little", "by-chance", "the-contrary", "nothing"],
)
def test_each_of_them_has_to_say_so(doubts, who, says):
    sure = {"t_x": RhoBg(0.4, 0.01), "at_cpu": RhoBg(0.4, 0.01)}
    assert doubts(**sure) == {"s1": 120}
    assert doubts(**sure | {who: says}) == {}


def test_what_the_newest_interval_does_not_say_is_in_no_doubt(doubts):
    assert doubts(residence=1.2) == {}


@pytest.mark.parametrize("over", [2, 4, 8])
def test_a_wait_for_the_disk_that_surely_is_longer_is_enough_alone(doubts, over):
    others = {"t_x": NOBODY, "at_cpu": NOBODY, "residence": 1.0, "over": over}
    sure, likely = RhoBg(0.21, 0.06), RhoBg(0.21, 0.08)
    assert doubts(**others, at_disk=sure, disk=0.25) == {"s1": 120}
    assert doubts(**others, at_disk=likely, disk=0.25) == {}
    assert doubts(**others, at_disk=RhoBg(0.19, 0.01), disk=0.25) == {}
    assert doubts(**others, at_disk=sure, disk=0.15) == {}


@pytest.mark.parametrize("unlike", [{"cost_noise": 1.6}, {"intervals": 14.0}])
def test_nobody_is_in_doubt_before_it_is_known_that_costs_are_alike(doubts, unlike):
    assert doubts(**unlike) == {}


def test_doubt_lasts_for_twenty_ticks_and_then_has_to_be_new(doubts):
    assert doubts(before={"s1": 101, "s3": 105}) == {"s1": 101, "s3": 105}
    assert doubts(before={"s1": 100}, residence=1.0) == {}
    assert doubts(before={"s1": 100}) == {"s1": 120}


def test_who_load_is_moved_away_from_is_in_no_doubt(doubts):
    assert doubts(before={"s1": 110}, contended={"s1"}) == {}


def test_the_papers_detector_doubts_nobody(policy_source):
    strategies = policy_source.strategies.model_copy(update={"detect": "band"})
    policy = Policy.of(policy_source.model_copy(update={"strategies": strategies}))
    assert in_doubt(policy, {"s1": 110}, None, None, (), tick=100) == {}


@pytest.fixture
def make_doubtful(make_service):
    """Learns of a service with little load, and then doubts ``s1`` for 20 ticks."""

    def make(**given: object):
        service = make_service(**{"arrival_per_s": 90.0, "meaning": DELAY} | given)
        service.run(30)
        doubt(service, "s1")
        return service

    return make


def doubt(service, *names: str) -> None:
    """Let these, and nobody else, be in doubt for 20 ticks."""
    doubts = dict.fromkeys(names, service.tick + 20)
    backends = replace(service.state.backends, doubts=doubts)
    service.state = replace(service.state, backends=backends)


def test_who_is_in_doubt_is_the_last_of_idle_backends_and_then_taken_as_it_comes(make_doubtful):
    service = make_doubtful()
    plan = service.run()
    assert (plan.action, service.weights) == (Action.PREFER, {"s1": 95, "s2": 100, "s3": 100})
    assert {b.verdict.cause for b in plan.backends} == {"none"}
    service.run(25)
    assert set(service.weights.values()) == {100}


@pytest.mark.parametrize(
    "given",
    [{"guards": {"slower_ratio": None}}, {"arrival_per_s": 300.0}],
    ids=["switched-off", "much-load"],
)
def test_doubt_does_nothing(make_doubtful, given):
    service = make_doubtful(**given)
    service.run(5)
    assert set(service.weights.values()) == {100}


def test_one_in_doubt_does_not_keep_another_from_being_taken_last(make_doubtful):
    # Two serve 300 requests/s, and one 150: at most 0.6 of 300 may arrive, for each of them.
    service = make_doubtful(arrival_per_s=120.0)
    service.run(3)
    assert service.weights == {"s1": 95, "s2": 100, "s3": 100}
    doubt(service, "s1", "s2")
    service.run(3)
    assert service.weights == {"s1": 95, "s2": 95, "s3": 100}
    doubt(service, "s2")
    service.run(3)
    assert service.weights == {"s1": 100, "s2": 95, "s3": 100}


@pytest.mark.parametrize(("even", "stretch"), [(True, 1.5), (False, 1.2)])
def test_a_wait_that_moved_load_explains_counts_only_where_load_is_even(even, stretch):
    """0.5 used is 0.4 at what requests usually cost, where 0.25 is usual: (1 - 0.25)/(1 - 0.4)."""
    features = Waiting(ratio=np.array([1.5]), dearer=np.array([1.25]))
    curve = SimpleNamespace(usual_rho_fg=lambda: np.array([0.25]))
    found = _stretch(features, np.array([0.5]), curve, even=even)
    assert found == pytest.approx([stretch])


@dataclass
class Waiting:
    """Features of a backend whose requests wait for the CPU, and are dear."""

    ratio: np.ndarray
    dearer: np.ndarray

    def cpu_wait_ratio(self):
        return self.ratio, np.zeros_like(self.ratio)

    def __getitem__(self, name):
        return {"cpu_time_ratio": self.dearer}[name]
