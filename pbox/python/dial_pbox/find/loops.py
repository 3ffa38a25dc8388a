"""The loops around a call, and what decides whether each goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clang.cindex import Cursor, CursorKind

from dial_pbox.find.source import LOOPS, Function
from dial_pbox.find.waiting import loop_condition

_LEAVES = frozenset({CursorKind.RETURN_STMT, CursorKind.GOTO_STMT})


@dataclass(frozen=True, slots=True)
class Call:
    """A call and the loops that it is in, the innermost first."""

    function: Function
    cursor: Cursor
    loops: tuple[Cursor, ...]


def calls(function: Function) -> Iterator[Call]:
    """Every call in a function."""

    def below(cursor: Cursor, loops: tuple[Cursor, ...]) -> Iterator[Call]:
        if cursor.kind is CursorKind.CALL_EXPR:
            yield Call(function, cursor, loops)
        inside = (cursor, *loops) if cursor.kind in LOOPS else loops
        for child in cursor.get_children():
            yield from below(child, inside)

    yield from below(function.body, ())


def conditions(loop: Cursor) -> list[Cursor]:
    """What decides whether the loop goes on: its condition, and each ``if`` that leaves it."""
    own = loop_condition(loop)
    found = [] if own is None else [own]
    body = next(iter(loop.get_children())) if loop.kind is CursorKind.DO_STMT else _last(loop)
    found += [next(iter(each.get_children())) for each in _ifs(body) if _leaves(each)]
    return found


def _last(cursor: Cursor) -> Cursor:
    return list(cursor.get_children())[-1]


def _ifs(cursor: Cursor) -> Iterator[Cursor]:
    if cursor.kind is CursorKind.IF_STMT:
        yield cursor
    for child in cursor.get_children():
        yield from _ifs(child)


def _leaves(branch: Cursor) -> bool:
    """Whether one side of an ``if`` leaves the loop around it."""

    def out(cursor: Cursor, *, breaks: bool) -> bool:
        if cursor.kind in _LEAVES or (breaks and cursor.kind is CursorKind.BREAK_STMT):
            return True
        if cursor.kind is CursorKind.IF_STMT:
            return False  # its own condition decides
        inner = cursor.kind in LOOPS or cursor.kind is CursorKind.SWITCH_STMT
        return any(out(c, breaks=breaks and not inner) for c in cursor.get_children())

    return any(out(side, breaks=True) for side in list(branch.get_children())[1:])
