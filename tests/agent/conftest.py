from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dial.agent.files import Tree

Plant = Callable[[Mapping[str, str]], Tree]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write files (or, as "-> target", links) below a root, over those already there."""

    def write(files: Mapping[str, str]) -> Tree:
        for path, text in files.items():
            place = tmp_path / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                place.unlink(missing_ok=True)
                place.symlink_to(text.removeprefix("-> "))
            else:
                place.write_text(text)
        return Tree(str(tmp_path))

    return write
