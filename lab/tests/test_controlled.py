"""Controllers and agents run in the lab as they do where they are shipped to."""

from __future__ import annotations

from pathlib import Path

import pytest

from dial_lab.controlled import _YIELDING

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


@pytest.mark.parametrize("unit", ["dial-controller@.service", "dial-agent.service"])
def test_they_yield_the_cpu_as_their_units_say(unit: str) -> None:
    lines = (UNITS / unit).read_text(encoding="utf-8").splitlines()
    program, option, niceness = _YIELDING
    assert (program, option) == ("nice", "-n")
    assert f"Nice={niceness}" in lines
