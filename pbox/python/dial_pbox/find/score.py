"""What was found beside the events that somebody has put there by hand.

A call with PREPARE, of ``update_pbox`` or of a wrapper of it, is the truth: it should stand
before a loop that was found, in the same function and with no other PREPARE between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clang.cindex import Cursor, CursorKind

from dial_pbox.find.places import Place
from dial_pbox.find.source import Program, find, walk

_PREPARE = frozenset({"PREPARE", "PBOX_PREPARE"})


@dataclass(frozen=True, slots=True)
class Score:
    """How many of the events are found.

    Attributes
    ----------
    hits
        PREPARE events before a place that was found, as FILE:LINE (FUNCTION).
    misses
        Those that are not.
    unmarked
        Places that no event is at: further candidates, or false alarms.
    """

    hits: tuple[str, ...]
    misses: tuple[str, ...]
    unmarked: tuple[str, ...]


def score(program: Program, found: Sequence[Place]) -> Score:
    """Hold places against the calls that are in the program."""
    hits: list[str] = []
    misses: list[str] = []
    marked: set[tuple[str, int]] = set()
    for function in program.functions.values():
        lines = sorted(call.location.line for call in find(function.body, _is_prepare))
        here = [p for p in found if (p.file, p.function) == (function.file, function.name)]
        for number, line in enumerate(lines):
            end = lines[number + 1] if number + 1 < len(lines) else function.body.extent.end.line
            at = [p for p in here if line <= p.line <= end]
            (hits if at else misses).append(f"{function.file}:{line} ({function.name})")
            marked |= {(p.file, p.line) for p in at}
    unmarked = [
        f"{p.file}:{p.line} ({p.function})" for p in found if (p.file, p.line) not in marked
    ]
    return Score(tuple(sorted(hits)), tuple(sorted(misses)), tuple(unmarked))


def _is_prepare(node: Cursor) -> bool:
    if node.kind is not CursorKind.CALL_EXPR:
        return False
    arguments = [part for argument in node.get_arguments() for part in walk(argument)]
    named = (part for part in arguments if part.kind is CursorKind.DECL_REF_EXPR)
    return any(part.spelling in _PREPARE for part in named)
