"""The broker plugin's own tests (JUnit on Pinot's real routing classes), run by Maven, offline."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parent.parent / "plugin"
SUMMARY = re.compile(r"(?m)Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)$")


def test_the_plugin_passes_its_own_tests():
    if shutil.which("mvn") is None:
        pytest.skip("no mvn program here: install a JDK (11 or newer) and Maven")
    command = ["mvn", "--batch-mode", "--offline", "-Dstyle.color=never", "package"]
    run = subprocess.run(
        command, cwd=PLUGIN, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stdout[-8_000:] + run.stderr[-2_000:]
    ran, *wrong = map(int, SUMMARY.findall(run.stdout)[-1])
    assert ran > 50
    assert wrong == [0, 0, 0]
    assert (PLUGIN / "target" / "dial-pinot.jar").stat().st_size < 200_000, "our classes alone"
