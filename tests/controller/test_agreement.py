"""When one interval is enough: what each of the witnesses has to say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from dial.controller.agreement import Agreement, agreement
from dial.controller.comparison import Comparison
from dial.controller.finding import Finding
from dial.controller.noise import Noise
from dial.controller.passed_over import SHIFTED
from dial.controller.policy import Policy
from dial.estimator import RhoBg
from dial.queueing import MM1
from dial.types import Cause, NoData

NOBODY = RhoBg(0.0, 0.0)
HALF = RhoBg(0.5, 0.16)
"""Three of these are enough: 3.1 standard errors each."""


@dataclass
class Said:
    """What the witnesses of one backend say, in this interval unless they are ``silent``."""

    t_x: RhoBg = HALF
    rate: RhoBg | NoData = HALF
    cpu: RhoBg | None = HALF
    at_cpu: RhoBg | NoData = HALF
    wait: RhoBg | NoData = NOBODY
    siblings: RhoBg = NOBODY
    cost_noise: float = 1.0
    intervals: float = 60.0
    shifted: bool = False
    rho_bg: RhoBg | NoData = HALF
    now: dict[str, float] = field(default_factory=dict)

    def by_resource(self, row, cause):
        return None if self.cpu is None else Comparison(self.cpu, NOBODY)

    def by_cpu_residence(self, row):
        return self.at_cpu if isinstance(self.at_cpu, NoData) else Comparison(self.at_cpu, NOBODY)

    def by_rate(self, row):
        return self.rate

    def by_cpu_wait(self, row):
        return self.wait if isinstance(self.wait, NoData) else Comparison(self.wait, NOBODY)

    @property
    def noise(self):
        one = np.ones(1)
        return Noise(one, one, self.cost_noise * one, self.intervals * one)

    def look(self):
        said = {"rate": 0.5, "wait": 0.5, "disk": 0.5, "residence": 2.0, "t_x_ms": 20.0} | self.now
        t_x_ms = said.pop("t_x_ms")
        read = SimpleNamespace(**{name: np.array([value]) for name, value in said.items()})
        return SimpleNamespace(
            row=0,
            looks=SimpleNamespace(read=read, passed_over=SHIFTED if self.shifted else None),
            # Alone it answers in 4 ms, at half its capacity in 8.
            curve=lambda _: MM1.scaled(4.0),
            t_x_ms=NoData("20 are needed") if math.isnan(t_x_ms) else t_x_ms,
            rho_fg=0.5,
            window=lambda _: 100.0,
        )


@pytest.fixture
def found(policy_source):
    policy = Policy.of(policy_source)

    def ask(cause: Cause = Cause.CPU, **said: object) -> Agreement | None:
        what = Said(**said)
        beside = Comparison(what.t_x, what.siblings)
        return agreement(policy, what.look(), Finding(cause, what.rho_bg), beside, what)

    return ask


@pytest.mark.parametrize(
    ("cause", "of"), [(Cause.CPU, "CPU"), (Cause.LLC, "CPU"), (Cause.DISK, "disk")]
)
def test_three_witnesses_that_are_sure_together_are_enough(found, cause, of):
    assert found(cause) == Agreement(HALF, HALF, HALF, of=of)


def test_what_it_takes_is_the_middle_of_the_three_and_as_unsure_as_they_differ():
    found = Agreement(RhoBg(0.7, 0.2), RhoBg(0.3, 0.1), by_rate=RhoBg(0.5, 0.1)).rho_bg
    assert found.mean == 0.5
    assert found.sd == pytest.approx(math.sqrt((0.04 + 0.0 + 0.04) / 3.0))


@pytest.mark.parametrize("who", ["t_x", "rate", "cpu"])
@pytest.mark.parametrize(
    "says",
    [RhoBg(0.19, 0.05), RhoBg(0.5, 0.34), RhoBg(-0.5, 0.1)],
    ids=["too-little", "by-chance", "the-contrary"],
)
def test_each_of_them_has_to_say_so(found, who, says):
    assert found(**{who: says}) is None


@pytest.mark.parametrize("who", ["t_x", "rate", "cpu"])
def test_one_that_is_very_sure_does_not_speak_for_all(found, who):
    doubting = {one: RhoBg(0.5, 0.28) for one in ("t_x", "rate", "cpu")}  # 1.8 each
    assert found(Cause.LLC, **doubting | {who: RhoBg(0.5, 0.01)}) is None
    believing = {one: RhoBg(0.5, 0.24) for one in ("t_x", "rate", "cpu")}  # 2.1 each
    assert found(**believing) is None
    assert found(**believing | {who: RhoBg(0.5, 0.01)}) is not None


@pytest.mark.parametrize(
    ("uses", "at_cpu", "enough"),
    [(0.15, HALF, True), (0.09, HALF, False), (0.15, RhoBg(0.19, 0.05), False)],
    ids=["waits-as-well", "uses-too-little", "both-are-too-little"],
)
def test_a_victim_in_the_cache_that_waits_for_the_cpu_it_uses_is_at_it_for_longer(
    found, uses, at_cpu, enough
):
    agreed = found(Cause.LLC, cpu=RhoBg(uses, 0.02), at_cpu=at_cpu)
    assert agreed == (Agreement(HALF, at_cpu, HALF) if enough else None)
    assert found(Cause.CPU, cpu=RhoBg(uses, 0.02), at_cpu=at_cpu, rho_bg=NOBODY) is None


def test_where_no_wait_is_known_the_cpu_time_itself_has_to_be_enough(found):
    nothing = NoData("no interval")
    assert found(Cause.LLC, cpu=RhoBg(0.15, 0.02), at_cpu=nothing) is None


@pytest.mark.parametrize(
    "unheard",
    [{"rate": NoData("by weight alone")}, {"cpu": None}],
    ids=["round-robin", "no-agent"],
)
def test_two_witnesses_are_not_enough(found, unheard):
    assert found(**unheard) is None


def while_shifted(found, **said: object) -> Agreement | None:
    """Then there is no rate to compare."""
    silent = {"rate": NoData("load is shifted"), "now": {"rate": math.nan}, "shifted": True}
    return found(**silent | said)


def test_a_second_victim_is_found_by_two_where_the_balancers_choice_says_nothing(found):
    agreed = while_shifted(found, cpu=RhoBg(0.3, 0.09))
    assert agreed == Agreement(HALF, RhoBg(0.3, 0.09))
    assert agreed.rho_bg.mean == pytest.approx(0.4)
    assert str(agreed) == "all say so: 0.50 by T_x, 0.30 by its CPU"


@pytest.mark.parametrize("before", [RhoBg(0.5, 0.01), RhoBg(0.0, 0.1)], ids=["sure", "denies"])
def test_what_the_balancers_choice_said_before_load_was_shifted_is_not_heard(found, before):
    sure, unsure = RhoBg(0.3, 0.09), RhoBg(0.5, 0.19)
    assert while_shifted(found, rate=before, cpu=sure) == Agreement(HALF, sure)
    assert while_shifted(found, rate=before, cpu=sure, t_x=unsure) is None


@pytest.mark.parametrize("who", ["t_x", "cpu"])
def test_the_two_have_to_be_as_sure_as_three(found, who):
    assert while_shifted(found, **{who: RhoBg(0.5, 0.19)}) is None  # 2.6
    doubting = {one: RhoBg(0.5, 0.01) for one in ("t_x", "cpu")} | {who: RhoBg(0.5, 0.18)}
    assert while_shifted(found, cause=Cause.LLC, **doubting) is None  # 2.78 and 3.5: 4.47


@pytest.mark.parametrize("who", ["t_x_ms", "wait"])
def test_each_of_the_two_has_to_say_so_of_the_newest_interval_alone(found, who):
    assert while_shifted(found, now={"rate": math.nan, who: math.nan}) is None


@pytest.mark.parametrize(
    ("cause", "who", "value"),
    [
        (Cause.CPU, "t_x_ms", math.nan),
        (Cause.CPU, "t_x_ms", 10.0),
        (Cause.CPU, "rate", math.nan),
        (Cause.CPU, "rate", 0.1),
        (Cause.CPU, "wait", math.nan),
        (Cause.CPU, "wait", 0.1),
        (Cause.DISK, "disk", math.nan),
        (Cause.DISK, "disk", 0.1),
        (Cause.LLC, "residence", math.nan),
        (Cause.LLC, "residence", 1.1),
    ],
)
def test_each_has_to_say_so_of_the_newest_interval_alone(found, cause, who, value):
    assert found(cause, now={who: value}) is None


def test_siblings_that_are_half_as_slow_speak_against_it(found):
    own = RhoBg(0.8, 0.1)
    assert found(t_x=own, siblings=RhoBg(0.39, 0.01)) is not None
    assert found(t_x=own, siblings=RhoBg(0.41, 0.01)) is None


def test_the_cache_is_not_accused_where_the_cpu_is_waited_for(found):
    assert found(Cause.LLC, wait=RhoBg(0.2, 0.3)) is None
    assert found(Cause.LLC, wait=NoData("not measured")) is not None


def test_where_costs_vary_much_one_heavy_request_would_show_by_all_three(found):
    assert found(cost_noise=1.4) is not None
    assert found(cost_noise=1.6) is None


def test_how_much_costs_vary_has_to_be_known(found):
    assert found(intervals=16.0) is not None
    assert found(intervals=14.0) is None


NO_DOUBT = {"cpu": RhoBg(0.4, 0.1), "t_x": RhoBg(0.1, 0.15), "rate": NoData("by weight alone")}
"""The CPU, or the disk, is waited for by four standard errors; T_x says little."""

WAITED_FOR = pytest.mark.parametrize(
    ("cause", "of"), [(Cause.CPU, "CPU"), (Cause.DISK, "disk")], ids=["cpu", "disk"]
)


@WAITED_FOR
def test_what_is_waited_for_without_a_doubt_is_enough(found, cause, of):
    agreed = found(cause, **NO_DOUBT)
    assert agreed == Agreement(HALF, RhoBg(0.4, 0.1), of=of)
    assert agreed.rho_bg.mean == pytest.approx(0.45)
    assert str(agreed) == f"all say so: 0.50 by T_x, 0.40 by its {of}"


@pytest.mark.parametrize(
    "said",
    [
        {"cpu": RhoBg(0.39, 0.1)},
        {"cpu": RhoBg(0.19, 0.01)},
        {"t_x": RhoBg(0.0, 0.3)},
        {"t_x": RhoBg(0.1, 0.09)},
        {"rho_bg": RhoBg(0.81, 0.2)},
        {"rho_bg": NoData("20 are needed")},
        {"now": {"wait": 0.19, "disk": 0.19}},
        {"now": {"wait": math.nan, "disk": math.nan}},
        {"cost_noise": 1.6},
        {"intervals": 14.0},
    ],
    ids=[
        "not-sure",
        "too-little",
        "no-slower",
        "surely-hardly-slower",
        "by-less-than-half-of-it",
        "no-t-x",
        "not-now",
        "not-heard-now",
        "costs-vary",
        "costs-are-not-known",
    ],
)
@WAITED_FOR
def test_a_wait_is_not_enough(found, said, cause, of):
    assert found(cause, **NO_DOUBT | said) is None


@WAITED_FOR
def test_what_was_waited_for_is_not_heard_where_it_is_another_resource(found, cause, of):
    silent = {Cause.CPU: "wait", Cause.DISK: "disk"}[cause]
    assert found(cause, **NO_DOUBT, now={silent: 0.0}) is None


def test_dearer_requests_without_a_doubt_are_not_enough(found):
    assert found(Cause.LLC, **NO_DOUBT) is None
