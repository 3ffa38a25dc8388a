"""A dataclass as columns of a table, and back.

A field is a column of its name (with a prefix where two dataclasses meet in one table), its
type follows from the annotation.  ``NoData`` and ``None`` are empty cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, get_type_hints

import polars as pl

from dial.types import Cause, Measured, Named, NoData
from dial_training.errors import DatasetError

NOT_RECORDED = NoData("not recorded")
"""What an empty cell of a measurement reads as: a table has no place for the reason."""

_OPTIONAL: dict[object, pl.DataType] = {
    int | None: pl.Int64(),
    float | None: pl.Float64(),
    str | None: pl.String(),
}
_TYPES: dict[object, pl.DataType] = {
    **_OPTIONAL,
    Measured: pl.Float64(),
    Named: pl.String(),
    float: pl.Float64(),
    int: pl.Int64(),
    bool: pl.Boolean(),
    str: pl.String(),
    Cause: pl.String(),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that hold one dataclass.

    Attributes
    ----------
    kind
        The dataclass.
    prefix
        Of each column's name.
    leave_out
        Fields that are no columns.
    """

    kind: type[Any]
    prefix: str = ""
    leave_out: tuple[str, ...] = ()

    def schema(self) -> dict[str, pl.DataType]:
        """Type by column.

        Raises
        ------
        TypeError
            If a field is of a type that has no column type here.
        """
        schema = {}
        for _, hint, column in _fields(self):
            if hint not in _TYPES:
                raise TypeError(f"{self.kind.__name__}, {column}: no column type for {hint}")
            schema[column] = _TYPES[hint]
        return schema

    def to_row(self, value: object) -> dict[str, object]:
        """Cell by column."""
        row: dict[str, object] = {}
        for field, _, column in _fields(self):
            cell = getattr(value, field.name)
            row[column] = None if isinstance(cell, NoData) else cell
        return row

    def arguments(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Of the dataclass's constructor, read back from a row.

        Raises
        ------
        DatasetError
            If a cell is missing or empty whose field must have a value and has no default.
        """
        found: dict[str, Any] = {}
        for field, hint, column in _fields(self):
            cell = row.get(column)
            if cell is not None:
                found[field.name] = Cause(cell) if hint is Cause else cell
            elif hint in (Measured, Named):
                found[field.name] = NOT_RECORDED
            elif hint in _OPTIONAL:
                found[field.name] = None
            elif field.default is MISSING:
                raise DatasetError(f"column {column}: missing or empty, and it has no default")
        return found


@cache
def _fields(columns: Columns) -> tuple[tuple[Field[Any], object, str], ...]:
    """Each field with its type and its column."""
    hints = get_type_hints(columns.kind)
    return tuple(
        (field, hints[field.name], f"{columns.prefix}{field.name}")
        for field in fields(columns.kind)
        if field.name not in columns.leave_out
    )
