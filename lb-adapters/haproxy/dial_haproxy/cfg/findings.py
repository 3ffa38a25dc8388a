"""Findings about a line, in one call each."""

from __future__ import annotations

from dial.adapter import Edit, Finding, Severity
from dial_haproxy.cfg.lines import Line


def ok(line: Line, what: str) -> Finding:
    """All is well there."""
    return Finding(Severity.OK, what, at=line.at)


def note(line: Line, what: str, *edits: Edit, fix: str = "") -> Finding:
    """Worth knowing."""
    return Finding(Severity.NOTE, what, fix, line.at, edits)


def warning(line: Line, what: str, *edits: Edit, fix: str = "") -> Finding:
    """DIAL works, but not as well as it could."""
    return Finding(Severity.WARNING, what, fix, line.at, edits)


def error(line: Line, what: str, *edits: Edit, fix: str = "") -> Finding:
    """DIAL does not work."""
    return Finding(Severity.ERROR, what, fix, line.at, edits)


def in_doubt(line: Line, what: str, doubt: str) -> Finding:
    """Only HAProxy itself can tell, for it depends on what is not in the file."""
    return Finding(Severity.WARNING, f"{what}: cannot be judged, for {doubt}", at=line.at)
