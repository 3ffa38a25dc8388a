"""What every target asks of its parser."""

from __future__ import annotations

import math
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dial.adapter import Finding, apply_edits
from dial.errors import DialError, SettingError

CheckFiles = Callable[[Sequence[Path]], tuple[Finding, ...] | None]
"""An adapter's look at the configuration of its own balancer."""

SERVICE = "app"
"""The backend that the seeds were made with."""


def refused(error: DialError, *somewhere: str) -> bool:
    """``False``, if the message is one line and has one of these texts, which say where."""
    message = str(error)
    assert message.isprintable(), "not one line that a terminal can show"
    assert any(where in message for where in somewhere), "it does not say where"
    return False


def all_finite(value: object) -> None:
    """No infinite number and no NaN anywhere in the tables of ``value``."""
    if isinstance(value, dict):
        for inner in value.values():
            all_finite(inner)
    assert not isinstance(value, float) or math.isfinite(value)


@contextmanager
def file_of(data: bytes) -> Iterator[Path]:
    """A file that holds ``data``."""
    with tempfile.NamedTemporaryFile(prefix="dial-fuzz-", buffering=0) as file:
        file.write(data)
        yield Path(file.name)


def table_of(data: bytes) -> dict[str, object] | None:
    """The TOML table that ``data`` is; ``None`` where no adapter would see it (target settings)."""
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return None


def checked(data: bytes, check_files: CheckFiles) -> bool:
    """What is found in a program's own configuration is said, and can be changed there."""
    with file_of(data) as path:
        try:
            findings = check_files([path])
        except SettingError as error:
            return refused(error, str(path))
    if findings is None:
        return False  # another program's
    assert all(finding.what for finding in findings)
    text = data.decode("utf-8", errors="surrogateescape")
    apply_edits(text, [edit for finding in findings for edit in finding.edits])
    return True
