"""Thousands of objects that lie in columns, each made when somebody asks for it (ADR 39)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

T = TypeVar("T")


class Rows(Sequence[T]):
    """n objects that lie in columns, each made when it is asked for."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def row(self, row: int) -> T:
        """Make one, 0 <= ``row`` < n."""

    @overload
    def __getitem__(self, row: int) -> T: ...
    @overload
    def __getitem__(self, row: slice) -> list[T]: ...
    def __getitem__(self, row: int | slice) -> T | list[T]:
        found = range(len(self))[row]
        return self.row(found) if isinstance(found, int) else [*map(self.row, found)]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


class InRows(Generic[_T]):
    """Base of a dataclass with slots and a tuple ``backends``, made when it is first asked for.

    Thousands of backends lie in columns (:mod:`dial.columns`), and in most ticks few of them are
    looked at one by one.  Whoever asks for few takes them from :attr:`rows`; to everybody else
    it is a dataclass like any other.  Rows may also have ``names``, and
    ``causes``: of those that are not well, by row.
    """

    __slots__ = ("_rows",)

    if TYPE_CHECKING:
        backends: tuple[_T, ...]
        _rows: Sequence[_T]

    @classmethod
    def of_rows(cls, rows: Sequence[_T], **values: Any) -> Self:
        """As the class is called, with any sequence for ``backends``, which is asked for later."""
        made = object.__new__(cls)
        for name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            if name != "backends":
                object.__setattr__(made, name, values.pop(name))
        if values:
            raise TypeError(f"{cls.__name__} has no {', '.join(values)}")
        object.__setattr__(made, "_rows", rows)
        return made

    @property
    def rows(self) -> Sequence[_T]:
        """The backends, of which each one may be made when it is asked for."""
        rows: Sequence[_T] | None = getattr(self, "_rows", None)
        return self.backends if rows is None else rows

    @property
    def names(self) -> tuple[str, ...]:
        """Of the backends."""
        names: tuple[str, ...] | None = getattr(self.rows, "names", None)
        return tuple(backend.name for backend in self.backends) if names is None else names

    if not TYPE_CHECKING:  # or every misspelt attribute would be one

        def __getattr__(self, name: str) -> Any:
            """Make the backends, now that they are asked for; nothing else is missing."""
            if name != "backends":
                raise AttributeError(f"{type(self).__name__} has no {name}", name=name, obj=self)
            backends = tuple(self._rows)
            object.__setattr__(self, "backends", backends)
            return backends
