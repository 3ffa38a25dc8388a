"""Building the C library in pbox/ and running its programs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
OUT = _ROOT / "out" / "pbox"

SHIM = "libpbox_shim.so"

CASES = ("undo_purge", "buffer_pool", "tickets", "table_lock", "worker_queue")
"""Programs under ``pbox/cases``: one of the paper's cases each."""


def build(*, sanitize: str = "") -> Path:
    """Configure and compile into ``out/pbox``; the directory of the result.

    Parameters
    ----------
    sanitize
        ``""``, or what ``-fsanitize=`` takes; each has a tree of its own.

    Raises
    ------
    SystemExit
        When CMake or the compiler fails, with what they said.
    """
    tree = OUT / (sanitize.replace(",", "-") or "plain")
    configure = ["cmake", "-S", str(_ROOT / "pbox"), "-B", str(tree)]
    for command in (
        [*configure, f"-DPBOX_SANITIZE={sanitize}"],
        ["cmake", "--build", str(tree), "--parallel", str(os.cpu_count() or 1)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return tree


def clean_environment() -> dict[str, str]:
    """Our environment, without what would change a program with pBoxes or put one before it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PBOX_", "LD_PRELOAD"))
    }


def run_json(
    program: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a program that prints one JSON object: figures, and names of what they are of.

    Raises
    ------
    SystemExit
        When it fails, with what it said.
    """
    done = subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment() | dict(environment or {}),
    )
    if done.returncode:
        raise SystemExit(f"{program.name} failed ({done.returncode}): {done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def shim_environment(tree: Path, page: str) -> dict[str, str]:
    """What puts the shim before a program, its page at ``page``.

    The loader passes over what it cannot preload, with no more than a line to standard error:
    whoever measures has to see that the shim is there.
    """
    return {"LD_PRELOAD": str(tree / SHIM), "PBOX_PAGE": page}
