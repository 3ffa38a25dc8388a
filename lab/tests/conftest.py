"""What the tests on real machines share."""

from __future__ import annotations

from collections.abc import Iterator

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
