from __future__ import annotations

import pytest

from dial.agent.files import Unavailable
from dial.agent.shared import HOLDS_S, Shared


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_was_found_holds_for_the_other_collectors_of_a_sample() -> None:
    clock, found = Clock(), iter([[7], [8]])
    shared = Shared(lambda: next(found), clock)
    assert shared() == [7]
    clock.now_s += HOLDS_S / 2
    assert shared() == [7]


def test_the_next_sample_looks_it_up_again() -> None:
    clock, found = Clock(), iter([[7], [8]])
    shared = Shared(lambda: next(found), clock)
    assert shared() == [7]
    clock.now_s += 0.1  # the shortest interval
    assert shared() == [8]


def test_a_failure_is_each_callers_own_and_what_was_found_before_is_no_answer() -> None:
    clock, gone, asked = Clock(), [False], []

    def members() -> list[int]:
        asked.append(clock.now_s)
        if gone[0]:
            raise Unavailable("no process in this group")
        return [7]

    shared = Shared(members, clock)
    assert shared() == [7]
    gone[0] = True
    clock.now_s += 1.0
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"^no process in this group$"):
            shared()
    assert len(asked) == 3
