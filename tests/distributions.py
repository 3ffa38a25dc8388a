"""Environments for our own distributions: what they declare to need is there, and nothing else.

The needs come from the environment that runs the tests, as links, so that nothing is
downloaded; our own packages, which are editable there, are left out.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDERS = {
    tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]: folder
    for folder in (
        ROOT,
        *(ROOT / path for path in ("lb-adapters/haproxy", "lb-adapters/envoy")),
        *(ROOT / path for path in ("lb-adapters/pinot/python", "pbox/python", "lab", "training")),
    )
}
"""Folder by name, of each distribution that is ours."""

BUILD = ("hatchling", "pip")
"""What builds them and what installs them."""


def declared(name: str) -> list[str]:
    """What one of ours says it needs."""
    manifest = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text())
    return list(manifest["project"]["dependencies"])


def ours(name: str) -> set[str]:
    """It and those of ours that it needs."""
    found = {name}
    for text in declared(name):
        needed = Requirement(text).name
        if needed in FOLDERS:
            found |= ours(needed)
    return found


def needs(names: Iterable[str], extras: Iterable[str] = ()) -> set[str]:
    """Other people's distributions that these of ours need, directly or not."""
    waiting = [Requirement(text) for name in names for text in declared(name)]
    waiting += map(Requirement, extras)
    found: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        for extra in ("", *requirement.extras):
            if name in FOLDERS or (name, extra) in found:
                continue
            found.add((name, extra))
            for text in distribution(name).requires or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return {name for name, _ in found}


def link(names: Iterable[str], directory: Path) -> Path:
    """Links to the installed files of these distributions, for ``PYTHONPATH``."""
    directory.mkdir()
    for name in names:
        found = distribution(name)
        tops = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            target = Path(str(found.locate_file(top)))
            if not (directory / top).exists() and target.exists():
                (directory / top).symlink_to(target)
    return directory


def python3(directory: Path) -> Path:
    """A folder for ``PATH`` whose ``python3`` is that of the tests, without its environment."""
    directory.mkdir(exist_ok=True)
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (directory / "python3").symlink_to(base)
    return directory
