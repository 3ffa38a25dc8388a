"""False alarms: what is drawn, from what, and how it is counted."""

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.false_alarms import Task, commonest, figures, share_out
from benchmarks.support import life
from benchmarks.support.bootstrap import Blocks, autocorrelation, autocorrelation_time
from benchmarks.support.poisson import MeanTime
from benchmarks.support.quiet import Stratum, stratum
from dial.types import (
    Action,
    BackendObservation,
    BackendPlan,
    Cause,
    NoData,
    Observation,
    Plan,
    RequestWindow,
    ServerState,
    Verdict,
    WeightKind,
    WeightMeaning,
)
from dial_training.dataset import EDGE, LEARN, REST, STAGE, LabelledTick, Session, Truth

NONE = NoData("of no interest here")

# ---------------------------------------------------------------- blocks

# Two stretches: low, the change to high, high, high; then low, high-and-low again.
LEVELS = ["low", "low", None, "high", "high", "high", "low", None, "high"]
GOES_ON = [True, True, True, True, True, False, True, True, False]


def drawn(mean_ticks, count, seed=1, levels=LEVELS, goes_on=GOES_ON):
    blocks = Blocks(levels, goes_on, mean_ticks)
    return list(islice(blocks.draw(np.random.default_rng(seed)), count))


def recorded_after(one, other):
    return other == one + 1 and GOES_ON[one]


@given(st.floats(1.0, 50.0), st.integers(0, 2**32 - 1))
def test_each_tick_follows_as_recorded_or_takes_the_place_of_one_of_its_level(mean_ticks, seed):
    for one, other in pairwise(drawn(mean_ticks, 60, seed)):
        if recorded_after(one, other):
            continue
        # One that went on would have been followed by one + 1.
        stood_for = LEVELS[one + 1] if GOES_ON[one] else LEVELS[one]
        assert LEVELS[other] is not None
        assert LEVELS[other] == stood_for


@given(st.integers(0, 2**32 - 1))
def test_the_tick_in_which_load_changed_always_follows_the_one_before_it(seed):
    places = drawn(1.0, 60, seed)
    assert LEVELS[places[0]] is not None
    assert all(one == other - 1 for one, other in pairwise(places) if LEVELS[other] is None)


def test_blocks_are_as_long_as_asked_for_on_average():
    # 500 ticks in one stretch, left with probability 1/5; one join in 500 is by chance the next.
    places = drawn(5.0, 50_000, levels=[0] * 500, goes_on=[True] * 499 + [False])
    joins = sum(other != one + 1 for one, other in pairwise(places))
    assert 50_000 / joins == pytest.approx(5.0, rel=0.03)


def test_the_same_seed_draws_the_same():
    assert drawn(5.0, 100, seed=3) == drawn(5.0, 100, seed=3) != drawn(5.0, 100, seed=4)


@pytest.mark.parametrize(
    ("levels", "goes_on", "mean_ticks", "why"),
    [
        ([], [], 5.0, "no tick"),
        ([0], [False], 0.5, "0.5: allowed is 1"),
        ([0, 0], [True, True], 5.0, "tick 1: goes on"),
        ([None, 0], [True, False], 5.0, "tick 0: a stretch begins"),
        ([0, None], [True, False], 5.0, "tick 1: a stretch begins or ends"),
        ([0, None, 0], [False, True, False], 5.0, "tick 1: a stretch begins"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(levels, goes_on, mean_ticks, why):
    with pytest.raises(ValueError, match=why):
        Blocks(levels, goes_on, mean_ticks)


def test_autocorrelation_of_what_turns_each_time():
    series, goes_on = np.array([1.0, -1.0, 1.0, -1.0]), np.array([True, True, True, False])
    assert autocorrelation([series], [goes_on], 2) == pytest.approx([-1.0, 1.0])


def test_autocorrelation_does_not_reach_across_a_gap_or_a_missing_value():
    # Pairs at lag 1: (1, 1), (-1, -1); the two across the gap, and NaN, do not count.
    series = np.array([1.0, 1.0, -1.0, -1.0, np.nan])
    goes_on = np.array([True, False, True, True, False])
    assert autocorrelation([series], [goes_on], 2) == pytest.approx([1.0, 0.0])


def test_each_series_has_a_mean_of_its_own():
    turns = np.array([1.0, -1.0, 1.0, -1.0])
    goes_on = np.array([True, True, True, False])
    assert autocorrelation([turns, turns + 100.0], [goes_on] * 2, 1) == pytest.approx([-1.0])


def test_autocorrelation_time_ends_at_the_first_that_is_not_positive():
    assert autocorrelation_time(np.array([0.5, 0.25, -0.1, 0.3])) == 2.5
    assert autocorrelation_time(np.array([-0.1, 0.5])) == 1.0


# ---------------------------------------------------------------- counting


def test_ten_events_are_known_within_the_tabulated_limits():
    # Poisson, 10 observed: 4.795 to 18.39 (Garwood's table).
    found = MeanTime.of(100.0, 10)
    assert found.hours == 10.0
    assert found.low == pytest.approx(100.0 / 18.39, rel=1e-3)
    assert found.high == pytest.approx(100.0 / 4.795, rel=1e-3)


def test_no_event_says_only_at_least():
    # The chance of none is exp(-T/m); exp(-3.689) = 0.025.
    found = MeanTime.of(368.9, 0)
    assert found.low == pytest.approx(100.0, rel=1e-3)
    assert (found.hours, found.high) == (368.9, None)


def of_length(ticks, name="one", kind="quiet"):
    observations = tuple(observation(tick) for tick in range(ticks))
    goes_on = (True,) * (ticks - 1) + (False,)
    return Stratum(kind, name, "quiet", "cpu", observations, ((1.0, 1.0),) * ticks, goes_on)


def test_each_kind_has_its_hours_and_each_recorded_second_is_drawn_equally_often():
    found = [of_length(30), of_length(10, "two"), of_length(5, kind="load")]
    tasks = list(share_out(found, 8.0, seed=1))
    # Of 8 h, 6 h and 2 h of ticks of 2 s, in lives of 2 h; the load has 8 h of its own.
    assert [task.stratum for task in tasks] == [0, 0, 0, 1, 2, 2, 2, 2]
    assert {task.ticks_at_risk for task in tasks} == {3600}
    assert tasks[1] == Task(0, 3600, (1, 0, 1))
    assert len({task.seed for task in tasks}) == len(tasks)


def test_a_session_of_both_kinds_was_recorded_once():
    found = [of_length(30), of_length(45, kind="load")]
    blamed = life.FalseMitigation("load", "one", 0.5, 3, None, (("s1", "cpu", ("slow",)),), (2, 3))
    lives = [
        life.Life(0, at_risk_s=7200.0),
        life.Life(1, at_risk_s=10_800.0, shifted_s=60.0, mitigations=(blamed, blamed)),
    ]
    both = figures(found, lives)
    assert (both["hours"], both["false_mitigations"], both["mtbf_hours"]) == (5.0, 2, 2.5)
    assert both["distinct_hours"] == pytest.approx(90.0 / 3600.0)
    assert both["shifted_hours"] == pytest.approx(1.0 / 60.0)


def test_false_mitigations_at_the_same_recorded_tick_are_alike():
    def at(tick, cause):
        return life.FalseMitigation("quiet", "one", 1.0, tick, None, (("s1", cause, ()),), (tick,))

    found = commonest([at(3, "cpu"), at(4, "cpu"), at(4, "cpu"), at(4, "net")])
    assert [(one["count"], one["tick"]) for one in found] == [(2, 4), (1, 3), (1, 4)]


# ---------------------------------------------------------------- what is quiet


def observation(tick, weights=(100, 100)):
    window = RequestWindow(100, 0, 50.0, 10.0, 100, 5.0, NONE)
    return Observation(
        tick=tick,
        now_s=1000.0 + 2.0 * tick,
        interval_s=2.0,
        epoch="e",
        algorithm="roundrobin",
        meaning=WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True),
        backends=tuple(
            BackendObservation(name, window, NONE, ServerState(name, weight, 100, True, 0, 0, 0))
            for name, weight in zip(("s1", "s2"), weights, strict=True)
        ),
        model_checksum="",
    )


def labelled(tick, letter):
    """L learning, . quiet, ^ more load, X a neighbour on s2, e edge, r rest."""
    phase = {"L": LEARN, "e": EDGE, "r": REST}.get(letter, STAGE)
    label = {"^": Cause.LOAD, "X": Cause.CPU}.get(letter, Cause.NONE)
    rate = 1.5 if letter == "^" else 1.0
    stage = tick if phase == STAGE else None

    def truth(of):
        return Truth(phase, stage, None, of, None, 0.0, None, rate, 1.0)

    first = Cause.NONE if label.costs_capacity else label
    return LabelledTick(observation(tick), {"s1": truth(first), "s2": truth(label)})


def session(letters):
    ticks = tuple(labelled(tick, letter) for tick, letter in enumerate(letters))
    return Session("one", "quiet", "cpu", 0.4, 1, "shared", {"s1": 1.0, "s2": 1.0}, ticks)


def kept(letters, kind, known_until=None):
    found = stratum(session(letters), kind, known_until)
    return [seen.tick for seen in found.observations], found


def test_a_stage_with_a_neighbour_is_not_quiet_nor_what_lies_beside_it():
    #                  0123456789
    ticks, found = kept("eLLe.erXer.", "quiet")
    assert ticks == [1, 2, 3, 4, 10]
    assert found.goes_on == (True, True, True, False, False)
    assert found.levels == ((1.0, 1.0), (1.0, 1.0), None, (1.0, 1.0), (1.0, 1.0))
    assert found.seconds == 10.0


def test_changes_of_the_own_load_count_as_load_only():
    assert kept("LLe^^e.", "quiet")[0] == [0, 1, 6]
    ticks, found = kept("LLe^^e.", "load")
    assert ticks == list(range(7))
    assert found.levels[3] == (1.5, 1.0)
    assert found.levels[2] is found.levels[5] is None


def test_nothing_is_known_to_be_quiet_once_somebody_else_was_there():
    assert kept("LLe..e..", "quiet", known_until=6)[0] == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------- a life


def plan(seen, weights, cause=Cause.NONE):
    quiet = Verdict(Cause.NONE, 0.5, NONE, NONE, 20.0)
    accused = Verdict(cause, 0.5, 0.4, NONE, 20.0, ("slow",))
    in_force = {backend.name: backend.server.weight for backend in seen.backends}
    return Plan(
        seen.tick,
        seen.now_s,
        Action.HOLD,
        "",
        tuple(
            BackendPlan(name, accused if weight < 100 else quiet, 0.5, weight)
            for name, weight in weights.items()
        ),
        tuple((name, weight) for name, weight in weights.items() if weight != in_force[name]),
    )


def test_moving_load_is_counted_once_and_its_time_is_not_at_risk(monkeypatch):
    seen_weights = []

    def step(policy, state, seen):
        # Moves load in ticks 3 and 4 and hands it back in tick 5.
        weights = {"s1": 10 if seen.tick in (3, 4) else 100, "s2": 100}
        seen_weights.append(seen.backends[0].server.weight)
        return state, plan(seen, weights, Cause.CPU)

    monkeypatch.setattr(life, "step", step)
    lived = life.live(None, of_length(4), 7, ticks_at_risk=6, block_ticks=2.0, seed=(1,))
    # What a plan wants is in force from the next tick on.
    assert seen_weights == [100, 100, 100, 10, 10, 100, 100, 100]
    assert (lived.stratum, lived.ticks, lived.at_risk_s, lived.shifted_s) == (7, 8, 12.0, 4.0)
    (mitigation,) = lived.mitigations
    assert mitigation.backends == (("s1", "cpu", ("slow",)),)
    assert mitigation.at_h == pytest.approx(3 * 2.0 / 3600.0)
    assert len(mitigation.run) == 3
    # Five ticks of two backends at risk without a mitigation, as fast as expected.
    assert lived.verdicts == {"none": 10}
    assert (lived.above, lived.suspected) == (0, 0)


def test_a_controller_that_never_hands_load_back_is_started_anew(monkeypatch):
    started = []

    def step(policy, state, seen):
        if state == life.State():
            started.append(seen.tick)
        return "old", plan(seen, {"s1": 10, "s2": 100})

    monkeypatch.setattr(life, "step", step)
    lived = life.live(None, of_length(1), 0, ticks_at_risk=2, block_ticks=2.0, seed=(1,))
    # At once it moves load; 600 s are 300 ticks of 2 s.
    assert started == [1, 302]
    assert (len(lived.mitigations), lived.at_risk_s, lived.shifted_s) == (2, 4.0, 600.0)
