"""What every target asks of its parser."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dial.errors import DialError

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
