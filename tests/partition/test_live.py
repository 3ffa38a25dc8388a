"""The whole agent on real cgroups, killed in mid-action."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dial.agent.cgroups import MOUNTINFO, Hierarchies, parse_mountinfo

WITHIN_S = 30.0
UNIT = Path(__file__).parents[2] / "deploy/systemd/dial-agent.service.d/partition.conf"


def as_its_unit_allows() -> list[str]:
    """What leaves a program the capabilities of the unit, and no others."""
    found = re.search(r"^CapabilityBoundingSet=(.+)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    kept = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in found[1].split())
    return ["setpriv", f"--bounding-set=-all{kept}", "--inh-caps=-all", "--no-new-privs"]


@pytest.fixture
def groups() -> Iterator[tuple[str, dict[str, Path]]]:
    """A subtree, and the file of each service's CPU quota."""
    mounts = parse_mountinfo(Path(MOUNTINFO).read_text())
    if os.geteuid() != 0:
        pytest.skip("needs root")
    subtree = f"dial-test-{os.getpid()}"
    made, files = [], {}
    try:
        for root in _roots(mounts):
            for name in ("web", "batch"):
                directory = root / subtree / name
                directory.mkdir(parents=True)
                made.append(directory)
                if (quota := directory / "cpu.cfs_quota_us").exists():
                    files[name] = quota
                elif (quota := directory / "cpu.max").exists():
                    files.setdefault(name, quota)
        if len(files) < 2:
            pytest.skip("no cgroup hierarchy with the cpu controller")
        yield subtree, files
    finally:
        for directory in reversed(made):
            directory.rmdir()
        for root in {directory.parent for directory in made}:
            root.rmdir()


def _roots(mounts: Hierarchies) -> set[Path]:
    roots = {Path(mounts.v1[name]) for name in ("cpu", "cpuacct") if name in mounts.v1}
    return roots | ({Path(mounts.v2)} if mounts.v2 else set())


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    give_up_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


@pytest.mark.root
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_limits_are_back_however_the_agent_ends(
    groups: tuple[str, dict[str, Path]], tmp_path: Path, how: str
) -> None:
    subtree, files = groups
    configured = {name: file.read_text() for name, file in files.items()}
    (tmp_path / "web.log").write_text("")
    (tmp_path / "token").write_text("x\n")
    (tmp_path / "partition.toml").write_text(
        f'subtree = "{subtree}"\njournal = "{tmp_path}/journal"\n'
        f'[services.web]\ntarget_ms = 5.0\nlog = {{ path = "{tmp_path}/web.log" }}\n'
        "[services.batch]\n"
    )
    agent = subprocess.Popen(
        [
            *as_its_unit_allows(),
            *(sys.executable, "-m", "dial.agent"),
            *("--controller", "http://127.0.0.1:1", "--backend", "vm"),
            *("--token-file", str(tmp_path / "token")),
            *("--partition", str(tmp_path / "partition.toml")),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        for name, file in files.items():
            until(lambda name=name, file=file: file.read_text() != configured[name])
        at_first = files["web"].read_text()

        def moved() -> bool:
            """The target is missed all the time, so limits move while the agent ends."""
            with (tmp_path / "web.log").open("a") as log:
                log.write("50.0\n" * 20)
            return files["web"].read_text() != at_first

        until(moved)
    finally:
        getattr(agent, how)()
        ended_s = time.monotonic()
        agent.wait(WITHIN_S)
    until(lambda: {name: file.read_text() for name, file in files.items()} == configured)
    # Shown with -rP; 5 s are allowed.
    print(f"{how}: limits are back after {time.monotonic() - ended_s:.2f} s")  # noqa: T201
