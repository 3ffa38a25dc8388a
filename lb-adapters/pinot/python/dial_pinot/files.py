"""``dial check FILE``: a table's configuration (JSON), a broker's (properties); nothing runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dial.adapter import Finding, Severity
from dial.errors import SettingError
from dial_pinot.configuration import check_broker, check_table, replicas_per_table

_MAX_BYTES = 16 * 1024 * 1024


def check_files(paths: Sequence[Path], service: str = "") -> tuple[Finding, ...] | None:
    """Look at files of Pinot's operator (see :mod:`dial.adapter`).

    Parameters
    ----------
    paths
        Tables' configurations as Pinot's controller gives and takes them, and brokers'
        ``.conf`` files, in any order.
    service
        Table with its type; all, where empty.

    Returns
    -------
    ``None`` if one of them is neither.

    Raises
    ------
    SettingError
        If a file cannot be read.
    """
    findings: list[Finding] = []
    for path in paths:
        text = _read(path)
        tables = list(_tables(text))
        if tables:
            mine = [table for table in tables if service in ("", table.get("tableName"))]
            for table in mine:
                findings += check_table(table, str(path))
                findings += replicas_per_table(table, str(path))
            if not mine:
                names = ", ".join(repr(table.get("tableName")) for table in tables)
                findings.append(
                    Finding(
                        Severity.ERROR, f"no table {service!r}; there are: {names}", at=str(path)
                    )
                )
            continue
        broker = _properties(text)
        if not any(name.startswith("pinot.broker.") for name in broker):
            return None
        findings += check_broker(broker, str(path))
        if not any(finding.at == str(path) for finding in findings):
            findings.append(Finding(Severity.OK, "a broker's configuration", at=str(path)))
    return tuple(findings)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise SettingError(f"{path}: more than {_MAX_BYTES} bytes: no configuration")
    return data.decode("utf-8", errors="replace")


def _tables(text: str) -> Iterator[dict[str, Any]]:
    """Tables' configurations: one as it is put, or by type as Pinot's controller answers."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        parts = [value.get("OFFLINE"), value.get("REALTIME")]
        for part in parts if any(parts) else [value]:
            if isinstance(part, dict) and isinstance(part.get("tableName"), str):
                yield part


def _properties(text: str) -> dict[str, str]:
    """``name=value`` lines, as in a broker's ``.conf``."""
    found = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", "!")):
            found[name.strip()] = value.strip()
    return found
