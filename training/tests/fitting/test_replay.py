"""Cases are judged by the product itself, from what was learnt and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial.controller.state import State
from dial.controller.step import step
from dial.model import STARTER, load_model
from dial.types import Cause, NoData
from dial_training.replay import judge_cases, policy, study
from dial_training.tiers import PROC, PSI, TIERS, tiers_of

PRODUCT = policy(load_model(STARTER), 90.0)


@pytest.fixture
def session(lab, stage_of):
    return lab.session(
        "a",
        stage_of({"s1": (Cause.CPU, 0.5)}),
        stage_of({"s1": (Cause.CPU, 0.5), "s2": (Cause.CPU, 0.4), "s3": (Cause.CPU, 0.5)}),
        stage_of(),
    )


def by_case(judged):
    return {each.case.case: each for each in judged}


def test_the_first_stage_is_what_the_controller_itself_makes_of_the_recording(session):
    """With the other machines quiet and nothing in between, replay is the plain fold."""
    learnt = [o for o, t in zip(session.observations, session.ticks, strict=True)
              if t.truths["s1"].phase == "learn"]  # fmt: skip
    case = next(session.cases())
    state, verdicts = State(), []
    for observation in [*learnt, *(session.ticks[at].observation for at in case.at)]:
        state, plan = step(replace(PRODUCT, peak_rps=session.quiet_rps), state, observation)
        verdicts.append(plan.backends[0].verdict)
    judged = by_case(judge_cases(PRODUCT, study(session, 90.0)))[case.case]
    assert [t.verdict for t in judged.ticks] == verdicts[len(learnt) :]
    assert judged.ticks[-1].verdict.cause is Cause.CPU


def test_a_case_does_not_depend_on_the_stages_before_it(session):
    alone = replace(
        session,
        ticks=tuple(t for t in session.ticks if t.truths["s1"].stage in (None, 2)),
    )
    last = {"a/2/s1", "a/2/s2", "a/2/s3"}
    of_all = by_case(judge_cases(PRODUCT, study(session, 90.0)))
    of_one = by_case(judge_cases(PRODUCT, study(alone, 90.0)))
    assert {c: of_all[c].ticks for c in last} == {c: of_one[c].ticks for c in last}


def test_neighbours_on_all_machines_at_once_are_three_cases(session):
    """A controller that saw all of them slow would hold; each case has its machine alone."""
    judged = by_case(judge_cases(PRODUCT, study(session, 90.0)))
    assert [judged[f"a/1/{m}"].ticks[-1].verdict.cause for m in ("s1", "s2", "s3")] == ["cpu"] * 3


def test_every_interval_goes_on_being_compared_after_a_neighbour_was_named(session):
    studied = by_case(study(session, 90.0).cases)["a/0/s1"]
    assert {tick.verdict.cause for tick in studied.ticks} == {Cause.NONE}
    assert all(tick.above for tick in studied.ticks)
    # 0.4 core of waiting and 0.15 of steal for 0.12 core used.
    assert min(tick.features["cpu_wait_excess"] for tick in studied.ticks) > 2.0


def test_what_a_tier_hides_is_missing_in_learning_too(session):
    """Run-queue wait is gone, and so is steal: 0 in the lab whatever a neighbour takes."""
    masked = study(session, 90.0, PROC)
    for tick in (*masked.quiet["s1"], *masked.cases[0].ticks):
        assert isinstance(tick.seen.sample.run_queue_wait_cores, NoData)
        assert isinstance(tick.seen.sample.memory_reload_ns, NoData)
        assert isinstance(tick.features["cpu_wait_excess"], NoData)
    backends = masked.state.backends
    learnt, row = backends.known.baseline, backends.names.index("s1")
    assert not learnt.has_learnt("cpu_wait", row)
    assert learnt.has_learnt("cpu_time", row)


def test_tiers_hide_less_and_less_and_the_last_one_nothing():
    hidden = [set(tier.hidden) for tier in TIERS]
    assert hidden[0] > hidden[1] > hidden[2] == set()
    assert {"psi_io_some_fraction", "run_queue_wait_cores"} <= set(PROC.hidden)
    assert set(PSI.hidden) == {"memory_reload_ns"}


def test_a_tenant_in_a_kernel_of_its_own_stands_for_the_first_tier_alone(session):
    assert tiers_of(session) == TIERS
    assert tiers_of(replace(session, guest="uml")) == (PROC,)


def test_a_quiet_interval_above_the_band_is_asked_about_and_one_below_is_not(session):
    for case in study(session, 90.0).cases:
        for tick in case.ticks:
            expected = tick.verdict.expected_t_x_ms
            assert tick.above == (tick.seen.window.t_x_ms > expected)
