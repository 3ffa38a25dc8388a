"""Strangers on the lab's computer are waited for, but not without end."""

from __future__ import annotations

import pytest

from dial.errors import LabError, LabUnquiet
from dial_lab.patience import when_quiet
from dial_lab.run import ENOUGH_ROUNDS, calibrated_again


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("dial_lab.patience.time.sleep", slept.append)
    return slept


def test_what_is_disturbed_is_tried_again_until_the_others_have_gone(pauses: list[float]) -> None:
    notes, tries = list[str](), iter([True, True, False])

    def measure() -> str:
        if next(tries):
            raise LabUnquiet("cache: somebody is there")
        return "quiet"

    assert when_quiet(measure, notes.append) == "quiet"
    assert notes == ["cache: somebody is there; trying again in 20 s"] * 2
    assert pauses == [20.0, 20.0]


def test_who_stays_is_not_waited_for_without_end(pauses: list[float]) -> None:
    def measure() -> str:
        raise LabUnquiet("cache: somebody is there")

    with pytest.raises(LabUnquiet, match="somebody is there"):
        when_quiet(measure)
    assert sum(pauses) == 180.0


def test_what_is_wrong_for_another_reason_is_not_tried_again(pauses: list[float]) -> None:
    def measure() -> str:
        raise LabError("the app gave no answer")

    with pytest.raises(LabError, match="no answer"):
        when_quiet(measure)
    assert not pauses


class Said:
    """A view that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_rounds_that_are_enough_are_kept_when_strangers_stay(pauses: list[float]) -> None:
    def calibrated() -> list[object]:
        raise LabUnquiet("cache: somebody is there")

    view = Said()
    assert calibrated_again(calibrated, view, done=ENOUGH_ROUNDS, kept=False) is None
    assert view.notes[-1] == "cache: somebody is there; the 5 rounds that are done are kept"
    with pytest.raises(LabUnquiet, match="somebody is there"):
        calibrated_again(calibrated, view, done=ENOUGH_ROUNDS - 1, kept=False)


def test_a_run_that_can_be_gone_on_with_does_not_end_with_fewer_rounds(pauses: list[float]) -> None:
    def calibrated() -> list[object]:
        raise LabUnquiet("cache: somebody is there")

    with pytest.raises(LabUnquiet, match="somebody is there"):
        calibrated_again(calibrated, Said(), done=ENOUGH_ROUNDS, kept=True)


def test_another_round_is_begun_where_nobody_is_there(pauses: list[float]) -> None:
    assert calibrated_again(list, Said(), done=ENOUGH_ROUNDS, kept=False) == []
    assert not pauses
