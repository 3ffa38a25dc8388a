"""Objects that lie in columns: made when they are asked for, and then like any other."""

import pickle
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from dial.rows import Rows
from dial.types import Action, BackendPlan, Cause, Plan, Verdict

WELL = Verdict(Cause.NONE, 0.5, 0.0, 100.0, 20.0)
BACKENDS = tuple(BackendPlan(name, WELL, 0.5, 100) for name in ("s1", "s2"))
REST = {"tick": 7, "now_s": 1234.5, "action": Action.HOLD, "reason": "quiet", "changes": ()}


class Made(Rows[BackendPlan]):
    """Counts which were made."""

    causes: dict[int, Cause] | None = None

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(BACKENDS)

    def row(self, row: int) -> BackendPlan:
        self.asked.append(row)
        return BACKENDS[row]


def test_rows_are_a_sequence():
    rows = Made()
    assert (rows[-1], rows[:1], [*rows]) == (BACKENDS[1], [BACKENDS[0]], [*BACKENDS])
    assert rows.asked == [1, 0, 0, 1]
    with pytest.raises(IndexError):
        rows[2]


def test_backends_are_made_once_and_only_when_they_are_asked_for():
    rows = Made()
    plan = Plan.of_rows(rows, **REST)
    assert (plan.tick, plan.rows[1].name, rows.asked) == (7, "s2", [1])
    assert plan.backends == BACKENDS
    assert plan.backends is plan.backends
    assert rows.asked == [1, 0, 1]


def test_what_is_held_of_backends_is_told_without_making_them():
    rows = Made()
    rows.causes = {1: Cause.DISK}
    plan = Plan.of_rows(rows, **REST)
    assert (plan.causes, plan.rows.asked) == ({1: Cause.DISK}, [])
    assert (plan.suspected, plan.rows.asked) == (BACKENDS[1:], [1])


def test_backends_that_are_well_are_not_suspected():
    slow = replace(BACKENDS[1], verdict=replace(WELL, cause=Cause.UNKNOWN))
    plan = Plan(backends=(BACKENDS[0], slow), **REST)
    assert plan.causes == {1: Cause.UNKNOWN}
    assert plan.suspected == (slow,)


@pytest.mark.parametrize(
    "same",
    [
        lambda plan: plan,
        lambda plan: replace(plan, tick=7),
        lambda plan: pickle.loads(pickle.dumps(plan)),
        lambda plan: TypeAdapter(Plan).validate_json(TypeAdapter(Plan).dump_json(plan)),
    ],
    ids=["itself", "replaced", "pickled", "JSON"],
)
def test_to_everybody_else_it_is_a_plan_like_any_other(same):
    plan = Plan(backends=BACKENDS, **REST)
    assert same(Plan.of_rows(Made(), **REST)) == plan
    assert repr(same(Plan.of_rows(Made(), **REST))) == repr(plan)
    assert plan.rows == BACKENDS


def test_whatever_else_is_missing_is_an_error():
    plan = Plan.of_rows(Made(), **REST)
    with pytest.raises(AttributeError, match="Plan has no backend"):
        _ = plan.backend
    with pytest.raises(TypeError, match="Plan has no colour"):
        Plan.of_rows(Made(), colour="red", **REST)
