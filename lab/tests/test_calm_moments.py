"""Measuring once more: what this computer did to one measurement is no fault of the lab."""

from __future__ import annotations

from collections.abc import Callable

from dial.errors import LabError


def test_an_application_that_stood_still_once_is_measured_again(
    in_a_calm_moment: Callable[[Callable[[], int], object], int],
) -> None:
    findings: list[int | LabError] = [LabError("one answer in 1.5 s"), 7]

    def measure() -> int:
        found = findings.pop(0)
        if isinstance(found, LabError):
            raise found
        return found

    assert in_a_calm_moment(measure, 7) == 7
    assert findings == []
