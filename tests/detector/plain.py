"""One backend out of columns."""

from types import SimpleNamespace

from dial.columns import Columns


def only(columns: Columns) -> SimpleNamespace:
    """The one row, as plain numbers and, where a field has several, lists."""
    return SimpleNamespace(**{n: getattr(columns, n)[0].tolist() for n in columns.__slots__})
