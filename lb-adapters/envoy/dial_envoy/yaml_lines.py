"""A YAML or JSON document whose tables know the line they begin on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dial.errors import SettingError

MAX_BYTES = 16 * 1024 * 1024


class Table(dict[str, Any]):
    """A mapping of the document."""

    line: int = 0
    """Counted from 1."""


class _Loader(yaml.SafeLoader):
    """SafeLoader, with lines."""


def _table(loader: _Loader, node: yaml.MappingNode) -> Iterator[Table]:
    # In two steps, as SafeLoader itself does, so that an anchor may be used inside its own table.
    made = Table()
    made.line = node.start_mark.line + 1
    yield made
    loader.flatten_mapping(node)
    made.update({str(k): v for k, v in loader.construct_mapping(node, deep=True).items()})


_Loader.add_constructor("tag:yaml.org,2002:map", _table)


def read_document(path: Path) -> Table | None:
    """The table that the file is; ``None`` if it is none.

    Raises
    ------
    SettingError
        If the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror or error}") from error
    return parse_document(text) if len(text) <= MAX_BYTES else None


def parse_document(text: bytes) -> Table | None:
    """The table that the text is; ``None`` if it is none.  JSON is YAML."""
    try:
        # A loader of our own, derived from the safe one.
        found = yaml.load(text, Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError):
        return None
    return found if isinstance(found, Table) else None


def tables(found: object) -> list[Table]:
    """The tables of a list; none where it is no list."""
    return [one for one in found if isinstance(one, Table)] if isinstance(found, list) else []


def table(found: object) -> Table:
    """The table itself, or an empty one where it is none."""
    return found if isinstance(found, Table) else Table()
