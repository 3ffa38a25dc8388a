"""``pbox-find``: the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dial_pbox.find.places import Place, places
from dial_pbox.find.score import score
from dial_pbox.find.source import Program, SourceError, commands
from dial_pbox.find.waiting import WAIT_FUNCTIONS

_BAD_USAGE = 2

_SHOWN = 6
"""Variables of a place that are printed; ``--json`` has all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``pbox-find``.

    Returns
    -------
    int
        0, or 2 when a file cannot be read.
    """
    given = _parser().parse_args(argv)
    try:
        program = _read(given.database, given.files, given.arguments)
    except SourceError as error:
        sys.stderr.write(f"pbox-find: {error}\n")
        return _BAD_USAGE
    found = places(program, WAIT_FUNCTIONS | set(given.wait))
    marks = score(program, found) if given.score else None
    if given.json:
        document: dict[str, object] = {"places": [asdict(place) for place in found]}
        document["complaints"] = program.complaints
        if marks is not None:
            document["score"] = asdict(marks)
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return 0
    sys.stdout.write("".join(f"{line}\n" for place in found for line in _lines(place)))
    if marks is not None:
        for title in ("hits", "misses", "unmarked"):
            for where in getattr(marks, title):
                sys.stdout.write(f"{title}: {where}\n")
    if program.complaints:
        sys.stderr.write(
            f"pbox-find: {len(program.complaints)} places could not be understood, the first: "
            f"{program.complaints[0]}\n"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pbox-find",
        description="Finds where a C program waits for shared state, and proposes pBox events.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.c")
    parser.add_argument(
        "--database", type=Path, metavar="FILE", help="compile_commands.json instead of files"
    )
    parser.add_argument(
        "--arg",
        dest="arguments",
        action="append",
        default=[],
        metavar="ARG",
        help="argument of the compiler for FILES, such as --arg=-Iinclude",
    )
    parser.add_argument(
        "--wait", action="append", default=[], metavar="NAME", help="a further function that waits"
    )
    parser.add_argument(
        "--score", action="store_true", help="compare with the PREPARE events that are there"
    )
    parser.add_argument("--json", action="store_true", help="all of it as one JSON document")
    return parser


def _read(database: Path | None, files: Sequence[Path], arguments: Sequence[str]) -> Program:
    program = Program()
    listed = [(file, list(arguments)) for file in files]
    if database is not None:
        listed += commands(database)
    if not listed:
        raise SourceError("no file: name some, or a --database")
    for file, words in listed:
        if not file.exists():
            raise SourceError(f"{file}: not there")
        program.parse(file, words)
    return program


def _lines(place: Place) -> list[str]:
    like = "" if place.waits_like == place.callee else f", which ends in {place.waits_like}"
    more = f" and {len(place.shared) - _SHOWN} more" if len(place.shared) > _SHOWN else ""
    lines = [
        f"{place.file}:{place.line}: {place.function}() waits in {place.callee}(){like}",
        f"  for {', '.join(place.shared[:_SHOWN])}{more}",
        f"  PREPARE before line {place.first_line}, ENTER and HOLD after line {place.last_line}",
    ]
    if place.releases:
        lines.append(f"  UNHOLD where it is given back, perhaps {', '.join(place.releases)}")
    return lines
