r"""One line of haproxy.cfg taken apart as HAProxy does it (its ``parse_line``).

A word ends at a blank.  ``#`` begins a comment anywhere but in quotes.  Single quotes keep
all that is between them; double quotes keep blanks, and there alone ``$NAME`` and
``${NAME}`` are replaced from HAProxy's environment, which is not ours: such a name is kept
as it is written and the word says that its value is not known.  A backslash outside single
quotes takes the meaning off ``\ \# \\ \' \"`` (and ``\$`` in double quotes), writes
``\t \n \r \xHH``, and stands for itself before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_VARIABLE = re.compile(r"\$(?:([A-Za-z_.]\w*)|\{([A-Za-z_.]\w*)(?:\[\*\])?(?:-[^}]*)?\})", re.ASCII)
_HEX = re.compile(r"[0-9A-Fa-f]{2}")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}
BLANKS = " \t\v\f\r"
_ENDS = BLANKS + "#"


class UnreadableLineError(ValueError):
    """A line that HAProxy refuses; the message says why."""


@dataclass(frozen=True, slots=True)
class Word:
    """One argument of a statement.

    Attributes
    ----------
    text
        Its value, quotes and escapes resolved.
    start, end
        Where it is written in the line, quotes included.
    variables
        Environment variables in it whose value is not known.
    """

    text: str
    start: int
    end: int
    variables: tuple[str, ...] = ()


def split(line: str, environment: Mapping[str, str]) -> tuple[Word, ...]:
    r"""Words of a line without its comment.

    Parameters
    ----------
    line
        Without its line break.
    environment
        Variables whose value is known, such as those of ``setenv``.

    Raises
    ------
    UnreadableLineError
        At a quote that is not closed, a ``\x`` without two digits, or a ``$`` in double
        quotes without a name.

    Examples
    --------
    >>> [w.text for w in split(r'log-format "%b,%s"  a\ b#c', {})]
    ['log-format', '%b,%s', 'a b']
    """
    words: list[Word] = []
    at = 0
    while at < len(line) and line[at] != "#":
        if line[at] in BLANKS:
            at += 1
        else:
            words.append(_word(line, at, environment))
            at = words[-1].end
    return tuple(words)


def _word(line: str, start: int, environment: Mapping[str, str]) -> Word:
    """The word that begins at ``start``."""
    text: list[str] = []
    unknown: list[str] = []
    quote = ""
    at = start
    while at < len(line) and (quote or line[at] not in _ENDS):
        char = line[at]
        if char in "\"'" and quote in ("", char):
            quote = "" if quote else char
            at += 1
        elif char == "\\" and quote != "'":
            escaped, at = _escape(line, at, quote)
            text.append(escaped)
        elif char == "$" and quote == '"':
            found = _VARIABLE.match(line, at)
            if found is None:
                raise UnreadableLineError("a '$' in double quotes is not followed by a name")
            name = found[1] or found[2]
            if name not in environment:
                unknown.append(name)
            text.append(environment.get(name, found[0]))
            at = found.end()
        else:
            text.append(char)
            at += 1
    if quote:
        raise UnreadableLineError(f"a quote {quote} is not closed")
    return Word("".join(text), start, at, tuple(unknown))


def _escape(line: str, at: int, quote: str) -> tuple[str, int]:
    """The character that a backslash at ``at`` writes, and where reading goes on."""
    following = line[at + 1 : at + 2]
    if following and following in " \\#'\"":
        return following, at + 2
    if following == "$" and quote:
        return "$", at + 2
    if following in _CONTROLS:
        return _CONTROLS[following], at + 2
    if following == "x":
        digits = _HEX.match(line, at + 2)
        if digits is None:
            raise UnreadableLineError(r"'\x' is not followed by two hexadecimal digits")
        return chr(int(digits[0], 16)), at + 4
    return "\\", at + 1
