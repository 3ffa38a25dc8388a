"""The units in ``deploy/systemd``, judged by systemd's own tools with nothing running."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
NAMES = sorted(path.name for path in UNITS.glob("*.service"))
LEAST_EXPOSED = 20
"""In tenths, of at most 100: what needs a network is not below 10."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze program here")
    return subprocess.run(
        ["systemd-analyze", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(params=NAMES)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy whose program is there."""
    path = tmp_path / request.param
    dial = Path(sys.executable).with_name("dial")
    path.write_text((UNITS / request.param).read_text().replace("/opt/dial/bin/dial", str(dial)))
    return path


def test_there_are_the_controllers_the_watchdogs_and_the_agents() -> None:
    assert NAMES == ["dial-agent.service", "dial-controller@.service", "dial-watchdog@.service"]


def test_systemd_has_nothing_to_say_against_it(unit: Path) -> None:
    said = analyze("verify", "--man=no", str(unit))
    assert (said.returncode, said.stdout) == (0, "")


def test_it_is_exposed_no_more_than_its_page_says(unit: Path) -> None:
    said = analyze("security", "--offline=true", f"--threshold={LEAST_EXPOSED}", str(unit))
    assert said.returncode == 0, said.stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
    assert found is not None, said.stdout
    row = next(
        line
        for line in (UNITS / "README.md").read_text().splitlines()
        if line.startswith("| `systemd-analyze security`")
    )
    figures = dict(zip(("controller", "watchdog", "agent"), row.split("|")[2:], strict=False))
    name = re.split(r"[-@.]", unit.name)[1]
    assert found[1] == figures[name].strip()


def test_an_agent_that_divides_its_vm_gets_what_that_takes_and_no_more(tmp_path: Path) -> None:
    unit = tmp_path / "dial-agent.service"
    unit.write_text((UNITS / unit.name).read_text().replace("/opt/dial/bin/dial", sys.executable))
    shutil.copytree(UNITS / "dial-agent.service.d", tmp_path / "dial-agent.service.d")
    said = analyze("verify", "--man=no", str(unit))
    assert (said.returncode, said.stdout) == (0, "")
    said = analyze("security", "--offline=true", str(unit))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
    assert found is not None, said.stdout
    assert f"then says {found[1]})" in (UNITS / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_it_holds_no_privilege(name: str) -> None:
    lines = (UNITS / name).read_text().splitlines()
    for line in (
        "DynamicUser=yes",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
        "MemoryDenyWriteExecute=yes",
    ):
        assert line in lines


def test_the_watchdog_lives_when_the_controller_dies() -> None:
    text = (UNITS / "dial-watchdog@.service").read_text()
    settings = [line for line in text.splitlines() if not line.startswith("#")]
    for word in ("Requires=", "BindsTo=", "PartOf=", "RuntimeDirectory="):
        assert not any(line.startswith(word) for line in settings)


_WITHOUT_WRITABLE_CODE = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, since Linux 6.3
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    "program",
    [
        ("dial", "agent", "--once"),
        ("python", "-c", "import dial.controller.runtime, scipy.optimize, scipy.linalg"),
    ],
    ids=["agent", "controller"],
)
def test_memory_that_is_written_need_not_be_executed(program: tuple[str, ...]) -> None:
    """What MemoryDenyWriteExecute= refuses is used by none of the libraries."""
    python = Path(sys.executable)
    words = [python, "-c", _WITHOUT_WRITABLE_CODE, python.with_name(program[0]), *program[1:]]
    done = subprocess.run(words, capture_output=True, check=False, timeout=60)
    if done.returncode == 77:
        pytest.skip("this kernel cannot refuse it")
    assert done.returncode == 0, done.stderr.decode()
