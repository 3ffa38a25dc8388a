"""C files as libclang sees them, and the few questions that the tree does not answer itself."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from clang.cindex import (
    Cursor,
    CursorKind,
    Diagnostic,
    Index,
    TranslationUnit,
    TranslationUnitLoadError,
    TypeKind,
)

LOOPS = frozenset({CursorKind.WHILE_STMT, CursorKind.DO_STMT, CursorKind.FOR_STMT})


class SourceError(Exception):
    """A file or a list of commands that cannot be read: names it and says why."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function with a body."""

    name: str
    usr: str
    """Unified symbol: tells functions of one name in two files apart."""
    file: str
    cursor: Cursor
    body: Cursor


@dataclass
class Program:
    """All functions of some files.

    Attributes
    ----------
    functions
        By unified symbol.
    complaints
        What the compiler could not make sense of; what is in such a place may be missed.
    """

    functions: dict[str, Function] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    # A cursor is valid only as long as its unit is.
    _units: list[TranslationUnit] = field(default_factory=list)

    def parse(self, file: Path, arguments: Sequence[str]) -> None:
        """Add the functions of a file and of the headers beside it.

        Raises
        ------
        SourceError
            If libclang can make nothing of it.
        """
        try:
            unit = Index.create().parse(str(file), args=[*arguments, *_builtin_headers()])
        except TranslationUnitLoadError as error:
            raise SourceError(f"{file}: libclang cannot parse it") from error
        self._units.append(unit)
        self.complaints += [
            f"{d.location.file}:{d.location.line}: {d.spelling}"
            for d in unit.diagnostics
            if d.severity >= Diagnostic.Error
        ]
        system = ("/usr/", *(a.removeprefix("-isystem") for a in arguments if "-isystem" in a))
        for cursor in unit.cursor.get_children():
            if cursor.kind is not CursorKind.FUNCTION_DECL or not cursor.is_definition():
                continue
            where = str(cursor.location.file)
            if where.startswith(system):
                continue
            body = next((c for c in cursor.get_children() if c.kind is _BODY), None)
            if body is not None:
                found = Function(cursor.spelling, cursor.get_usr(), where, cursor, body)
                self.functions.setdefault(found.usr, found)

    def called(self, call: Cursor) -> Function | None:
        """The function that a call leads to, if its body is among the files."""
        target = call.referenced
        return self.functions.get(target.get_usr()) if target is not None else None


_BODY = CursorKind.COMPOUND_STMT


def _builtin_headers() -> list[str]:
    """Where ``stddef.h`` is: the library as PyPI has it comes without the compiler's headers."""
    if not _BUILTIN:
        try:
            said = subprocess.run(
                ["cc", "-print-file-name=include"], capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError) as error:
            raise SourceError("cc: not found; its headers are needed (package gcc)") from error
        _BUILTIN.append(f"-isystem{said}")
    return _BUILTIN


_BUILTIN: list[str] = []


def commands(database: Path) -> list[tuple[Path, list[str]]]:
    """Files and their arguments from a ``compile_commands.json``.

    Raises
    ------
    SourceError
        If it is none.
    """
    try:
        entries = json.loads(database.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"{database}: {error.strerror}") from error
    except ValueError as error:
        raise SourceError(f"{database}: not a compilation database: {error}") from error
    if not isinstance(entries, list):
        raise SourceError(f"{database}: not a compilation database: no list")
    try:
        return [_command(entry) for entry in entries]
    except (TypeError, KeyError, AttributeError) as error:
        raise SourceError(f"{database}: not a compilation database: {error!r}") from error


def _command(entry: dict[str, object]) -> tuple[Path, list[str]]:
    directory, file = Path(str(entry["directory"])), str(entry["file"])
    given = entry.get("arguments")
    words = (
        [str(w) for w in given] if isinstance(given, list) else shlex.split(str(entry["command"]))
    )
    kept = []
    for word in words[1:]:
        # Only what changes the meaning of the text: a flag of another compiler may stop this one.
        if word.startswith(("-I", "-D", "-U", "-std=", "-isystem", "-include")):
            kept.append(word)
        elif kept and kept[-1] in ("-I", "-D", "-U", "-isystem", "-include"):
            kept[-1] += word if len(kept[-1]) == 2 else f" {word}"
    at = [f"-I{(directory / w[2:]).resolve()}" if w.startswith("-I") else w for w in kept]
    return directory / file, at


def walk(cursor: Cursor) -> Iterator[Cursor]:
    """A node and all below it, in the order of the text."""
    yield cursor
    for child in cursor.get_children():
        yield from walk(child)


def find(cursor: Cursor, wanted: Callable[[Cursor], bool]) -> Iterator[Cursor]:
    """All nodes below one, itself included, that are wanted."""
    return (each for each in walk(cursor) if wanted(each))


def text(cursor: Cursor, most_tokens: int = 8) -> str:
    """The beginning of a node as it is written, without blanks.

    Of what a macro makes libclang gives whatever lies between the macro and its use, which may
    be half of a file.
    """
    return "".join(token.spelling for token in islice(cursor.get_tokens(), most_tokens))


def named(cursor: Cursor) -> str:
    """The variable that an expression is, as C would write it; empty if it is none."""
    kind, children = cursor.kind, list(cursor.get_children())
    if kind is CursorKind.DECL_REF_EXPR:
        return str(cursor.spelling)
    if kind is CursorKind.CALL_EXPR:
        return f"{cursor.spelling}()" if cursor.spelling else ""
    inner = next((name for child in children if (name := named(child))), "")
    if kind is CursorKind.MEMBER_REF_EXPR:
        pointer = bool(children) and is_pointer(children[0])
        return f"{inner}{'->' if pointer else '.'}{cursor.spelling}" if inner else cursor.spelling
    if kind is CursorKind.ARRAY_SUBSCRIPT_EXPR:
        return f"{inner}[]"
    if kind is CursorKind.UNARY_OPERATOR and text(cursor, 1) == "*":
        return f"*{inner}"
    return inner


def is_pointer(cursor: Cursor) -> bool:
    """Whether an expression is of a pointer's type, whatever its name."""
    return bool(cursor.type.get_canonical().kind is TypeKind.POINTER)


def operator(cursor: Cursor) -> str:
    """The sign between the two sides of a binary operator; empty if it is a macro's."""
    sides = list(cursor.get_children())
    if len(sides) != 2:
        return ""
    left, right = sides
    for token in cursor.get_tokens():
        at = token.location.offset
        if left.extent.end.offset <= at < right.extent.start.offset:
            return str(token.spelling)
    return ""
