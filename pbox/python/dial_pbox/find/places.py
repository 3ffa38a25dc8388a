"""Algorithm 2: places of waiting for shared state, and the events that belong there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dial_pbox.find.loops import Call, calls, conditions
from dial_pbox.find.shared import shared_variables, writes
from dial_pbox.find.source import Program
from dial_pbox.find.waiting import waits_for, wrappers

_MOST_RELEASES = 5


@dataclass(frozen=True, slots=True)
class Place:
    """A waiting call in a loop on shared state.

    Attributes
    ----------
    file, line, function
        Of the call.
    callee
        What is called there.
    waits_like
        The standard function behind it.
    first_line, last_line
        Of the loop: PREPARE belongs before the first, ENTER (and HOLD) after the last.
    shared
        Variables that decide whether it goes on.
    releases
        Where others change them: UNHOLD belongs there, if that is where it is given back.
    """

    file: str
    line: int
    function: str
    callee: str
    waits_like: str
    first_line: int
    last_line: int
    shared: tuple[str, ...]
    releases: tuple[str, ...]


def places(program: Program, waits: Collection[str]) -> list[Place]:
    """Every place, in the order of files and lines.

    Parameters
    ----------
    program
        What was parsed.
    waits
        Names of functions that wait (:data:`dial_pbox.find.waiting.WAIT_FUNCTIONS`).
    """
    found = wrappers(program, waits)
    changed = _changes(program)
    result = set()
    for function in program.functions.values():
        for call in calls(function):
            standard = waits_for(call.cursor, found, waits)
            if standard is not None:
                result |= set(_at(call, standard, program, changed))
    return sorted(result, key=lambda place: (place.file, place.line, place.callee))


def _at(
    call: Call, standard: str, program: Program, changed: dict[str, list[tuple[str, str, int]]]
) -> Iterator[Place]:
    for loop in call.loops:
        shared: dict[str, None] = {}
        for condition in conditions(loop):
            names = shared_variables(condition, loop, call.function.body, program)
            shared |= dict.fromkeys(names)
        if shared:
            yield Place(
                file=call.function.file,
                line=call.cursor.location.line,
                function=call.function.name,
                callee=call.cursor.spelling,
                waits_like=standard,
                first_line=loop.extent.start.line,
                last_line=loop.extent.end.line,
                shared=tuple(shared),
                releases=tuple(_releases(call, shared, changed)),
            )
            return  # the innermost loop that says what is waited for


def _changes(program: Program) -> dict[str, list[tuple[str, str, int]]]:
    """Function, file and line of every change, by the last part of the variable's name."""
    changed = defaultdict(list)
    for function in program.functions.values():
        for name, line in writes(function):
            changed[_member(name)].append((function.name, function.file, line))
    return changed


def _releases(
    call: Call, shared: Collection[str], changed: dict[str, list[tuple[str, str, int]]]
) -> Sequence[str]:
    wanted = dict.fromkeys(_member(name) for name in shared)
    others = [
        f"{file}:{line} ({name})"
        for member in wanted
        for name, file, line in changed.get(member, ())
        if name != call.function.name
    ]
    return list(dict.fromkeys(others))[:_MOST_RELEASES]


def _member(name: str) -> str:
    """The name that a variable has everywhere: of ``pool->free`` the last part."""
    return name.rpartition(": ")[2].replace("->", ".").rpartition(".")[2].strip("*()")
