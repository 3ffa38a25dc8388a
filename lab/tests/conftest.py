"""What the tests on real machines share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from dial.errors import LabError
from dial_lab.cgroups import Cgroups
from dial_lab.topology import exclusive, host_cgroups


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    try:
        found = host_cgroups()
        with exclusive():
            yield found
    except LabError as error:
        pytest.skip(str(error))


Found = TypeVar("Found")


@pytest.fixture
def in_a_calm_moment() -> Callable[[Callable[[], Found], object], Found]:
    """Measures until it finds what is expected, and gives what it found last.

    Who else uses this computer takes from it for seconds at a time.  A lab that is wrong is wrong
    each time.
    """

    def until_calm(measure: Callable[[], Found], expected: object) -> Found:
        found = measure()
        for _ in range(4):
            if found == expected:
                break
            time.sleep(3.0)
            found = measure()
        return found

    return until_calm
