"""``dial agent`` pays for the standard library only."""

from __future__ import annotations

import subprocess
import sys

HEAVY = "typer rich numpy scipy pydantic fastapi httpx structlog uvicorn prometheus_client click"

PROGRAM = f"""
import sys, types
sys.argv = ["dial", "agent", "--help-me", "x"]
import dial.agent
dial.agent.main = lambda argv: print(argv) or 7
from dial.cli import main
code = main()
print(code, sorted(set({HEAVY!r}.split()) & set(sys.modules)))
"""


def test_agent_is_handed_over_before_anything_heavy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["['--help-me', 'x']", "7 []"]


def test_agent_after_an_option_is_told_its_place() -> None:
    program = "import sys; from dial.cli.app import run; sys.exit(run(['agent']))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "agent must be the first word" in done.stderr
