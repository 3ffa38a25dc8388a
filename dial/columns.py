"""A dataclass of arrays, one row per backend, in place of one object per backend.

With thousands of backends what costs a tick its time is not arithmetic but objects: twenty
microseconds are all that there is for each.  So the arithmetic of a tick is done on columns, in the
order of the balancer's backends, and objects are made for the few that are asked about more.

A measurement that is not there is NaN in a column.  Why it is not is asked of whoever knows
(:class:`~dial.types.NoData`), once somebody wants to be told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dial.types import Measured, NoData

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Columns:
    """Base of frozen dataclasses with slots whose fields are arrays with n rows, or such again."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether the arrays are the same; NaN is NaN."""
        if type(other) is not type(self):
            return NotImplemented
        pairs = ((getattr(self, name), getattr(other, name)) for name in _names(type(self)))
        return all(
            mine == others
            if isinstance(mine, Columns)
            else np.array_equal(mine, others, equal_nan=True)
            for mine, others in pairs
        )

    __hash__ = None  # type: ignore[assignment]

    def take(self, rows: Ints) -> Self:
        """These rows, in this order."""
        return self.each(lambda column: column[rows])

    def changed(self, where: Bools, **values: Floats | Ints | Bools) -> Self:
        """Fields (n,) with new values in the rows ``where`` is true."""
        return self.but(
            **{name: np.where(where, new, getattr(self, name)) for name, new in values.items()}
        )

    def but(self, **values: Floats | Ints | Bools | Columns) -> Self:
        """With other arrays for these fields."""
        # As dataclasses.replace does, which with three backends would be a tenth of a tick.
        changed = object.__new__(type(self))
        for name in _names(type(self)):
            value = values[name] if name in values else getattr(self, name)
            object.__setattr__(changed, name, value)
        return changed

    def where(self, mask: Bools, other: Self) -> Self:
        """The rows of ``self`` where ``mask`` (n,) is true, those of ``other`` elsewhere."""
        return self._with(
            other,
            lambda mine, others: np.where(mask if mine.ndim == 1 else mask[:, None], mine, others),
        )

    def followed_by(self, other: Self) -> Self:
        """The rows of both; where one has fewer values a row, the older ones are NaN."""
        return self._with(other, lambda *both: np.concatenate(_of_one_width(*both)))

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Self:
        """With every array changed."""
        values: dict[str, Any] = {}
        for name in _names(type(self)):
            value = getattr(self, name)
            values[name] = value.each(change) if isinstance(value, Columns) else change(value)
        return type(self)(**values)

    def _with(
        self, other: Self, combine: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
    ) -> Self:
        """With every array combined with the other's."""
        values: dict[str, Any] = {}
        for name in _names(type(self)):
            mine, others = getattr(self, name), getattr(other, name)
            nested = isinstance(mine, Columns)
            values[name] = mine._with(others, combine) if nested else combine(mine, others)
        return type(self)(**values)


C = TypeVar("C", bound=Columns)


def column(values: Iterable[Measured]) -> Floats:
    """(n,) of what was measured; NaN where nothing was."""
    return np.array([math.nan if isinstance(value, NoData) else value for value in values], float)


class ByName(Mapping[str, Floats]):
    """Columns (n,) by name, each made when it is first asked for.

    Parameters
    ----------
    names : that there are.
    make : makes a column.
    few : makes the same of these rows, where that is less work than to make all of a column.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str], Floats],
        few: Callable[[list[int]], ByName] | None = None,
    ) -> None:
        self._names, self._make, self._few = names, make, few
        self._made: dict[str, Floats] = {}

    def __getitem__(self, name: str) -> Floats:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def take(self, rows: Ints) -> ByName:
        """These rows, in this order."""
        few = None if self._few is None else self._few(rows.tolist())

        def make(name: str) -> Floats:
            return self[name][rows] if few is None or name in self._made else few[name]

        return ByName(self._names, make)


def attribute(of: Sequence[object], name: str) -> Floats:
    """(n,) of an attribute of n objects; NaN where it, or all of an object, is absent."""
    read = attrgetter(name)
    try:
        values = [*map(read, of)]
    except AttributeError:  # some are NoData themselves
        values = [each if isinstance(each, NoData) else read(each) for each in of]
    try:
        return np.fromiter(values, float, len(values))
    except TypeError:  # something is absent
        if {*map(type, values)} == {NoData}:
            return np.full(len(values), math.nan)
        # Twice as fast as isinstance, of which there would be dozens a backend.
        present = (math.nan if v.__class__ is NoData else v for v in values)
        return np.fromiter(present, float, len(values))


def integers(of: Sequence[object], name: str) -> Ints:
    """(n,) of a whole number, or of true and false, which every one of n objects has."""
    return np.fromiter(map(attrgetter(name), of), np.int64, len(of))


def table(of: Sequence[object], names: Sequence[str]) -> ByName:
    """(n,) of each of these attributes of n objects; NaN where one is absent, or an object is."""
    return ByName(
        names,
        lambda name: attribute(of, name),
        lambda rows: table([of[row] for row in rows], names),
    )


def plain(columns: Columns) -> dict[str, Any]:
    """As JSON has it: lists, and ``None`` for NaN."""
    found: dict[str, Any] = {}
    for name in _names(type(columns)):
        value = getattr(columns, name)
        if isinstance(value, Columns):
            found[name] = plain(value)
        else:
            if np.isnan(value).any():
                missing, value = np.isnan(value), value.astype(object)
                value[missing] = None
            found[name] = value.tolist()
    return found


def from_plain(like: C, found: object) -> C:
    """The way back.

    Parameters
    ----------
    like : of no backends: which columns there are, of what kind.
    found : what :func:`plain` gave.

    Raises
    ------
    ValueError
        If columns are missing, of different lengths, or hold anything but numbers.
    """
    return found if isinstance(found, type(like)) else _from_plain(like, found, [])


def _from_plain(like: C, found: object, lengths: list[int]) -> C:
    if not isinstance(found, dict):
        message = f"{type(like).__name__}: want its columns by name"
        raise ValueError(message)  # noqa: TRY004 - what pydantic takes for a bad document
    values: dict[str, Any] = {}
    for name in _names(type(like)):
        if name not in found:
            raise ValueError(f"{name}: this column is missing")
        column = getattr(like, name)
        if isinstance(column, Columns):
            values[name] = _from_plain(column, found[name], lengths)
            continue
        values[name] = array = _array(name, column, found[name])
        lengths.append(len(array))
        if len(array) != lengths[0]:
            raise ValueError(f"{name}: {len(array)} rows, where others have {lengths[0]}")
    return type(like)(**values)


def _array(name: str, like: NDArray[Any], found: object) -> NDArray[Any]:
    if not isinstance(found, list):
        message = f"{name}: want a list"
        raise ValueError(message)  # noqa: TRY004 - see above
    try:
        # None becomes NaN.
        floats = np.array(found, float) if found else np.zeros(like.shape)
        array = floats.astype(like.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    if array.ndim != like.ndim or not np.array_equal(array, floats, equal_nan=True):
        raise ValueError(f"{name}: not a column of its kind")
    return array


def _of_one_width(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    if one.ndim != 2:
        return one, other
    width = max(one.shape[1], other.shape[1])
    return _widened(one, width), _widened(other, width)


def _widened(values: Floats, width: int) -> Floats:
    missing = np.full((len(values), width - values.shape[1]), math.nan)
    return np.concatenate((missing, values), axis=1)


def _names(of: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass with slots."""
    names: tuple[str, ...] = of.__slots__
    return names
