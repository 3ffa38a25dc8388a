"""Strangers on the lab's computer are waited for, but not without end."""

from __future__ import annotations

import pytest

from dial.errors import LabError, LabUnquiet
from dial_lab.patience import when_quiet


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
