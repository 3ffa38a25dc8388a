"""Inputs that are nearly right: real outputs with a few of their words changed.

Random bytes fail at the first field of any format.  What finds defects is a valid input that
is wrong in one place, so an input is cut into words and separators and some of these are
replaced, left out, repeated or moved.  JSON is changed as a tree as well, and so stays JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

_SEPARATORS = re.compile(rb"""([\s,;:/=@\[\]{}"']+)""")

WORDS = (
    b"",
    b"-",
    b"0",
    b"-1",
    b"257",
    b"1.5",
    b"NaN",
    b"inf",
    b"1e999",
    b"9" * 20,  # more than 64 bits
    b"9" * 400,  # more than a float holds
    b"9" * 5000,  # more digits than Python reads into an integer
    b"\xd9\xa3",  # a decimal digit, but none of ASCII's
    b"true",
    b"null",
    b"1979-05-27",
    b"<NOSRV>",
    b"_env_file",
    b"__class__",
    b"\r",
    b"\n",
    b"\x00",
    b"\xff",  # no UTF-8
    b"\x1b[2J",  # clears a terminal
    b"\\u2028",  # a line break to str.splitlines, escaped as JSON and TOML do
    b"\xe2\x80\xa8",  # the same as it is
    b'"',
    b"[",
    b"]",
    b"{",
    b"}",
    b"[" * 5000,  # deeper than Python's recursion goes
    b'{"a":' * 5000,
    b"x" * 20_000,  # longer than a line of a log may be
)
"""What breaks parsers, with the reason where it is not plain."""

json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def inputs(seeds: Iterable[bytes]) -> st.SearchStrategy[bytes]:
    """Seeds with changed words, JSON seeds with changed values, and any bytes."""
    seeds = tuple(seeds)
    ways = [_changed_words(tuple(_SEPARATORS.split(seed) for seed in seeds))]
    documents = tuple(found for seed in seeds if (found := _documents(seed)))
    if documents:
        ways.append(_changed_json(documents))
    return st.one_of(*ways, st.binary(max_size=200))


@st.composite
def _changed_words(draw: st.DrawFn, seeds: tuple[list[bytes], ...]) -> bytes:
    words = list(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(words) - 1))
        match draw(st.sampled_from(["replace", "corrupt", "repeat", "swap", "cut off"])):
            case "replace":
                words[at] = draw(st.sampled_from(WORDS))
            case "corrupt":
                words[at] = draw(st.binary(max_size=4))
            case "repeat":
                words.insert(at, words[at])
            case "swap":
                other = draw(st.integers(0, len(words) - 1))
                words[at], words[other] = words[other], words[at]
            case "cut off":
                words = words[: at + 1]
    return b"".join(words)


@st.composite
def _changed_json(draw: st.DrawFn, seeds: tuple[list[bytes], ...]) -> bytes:
    lines = list(draw(st.sampled_from(seeds)))
    number = draw(st.integers(0, len(lines) - 1))
    document = json.loads(lines[number])
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        if not places:
            break
        inside, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "leave out", "rename"])):
            case "replace":
                inside[key] = draw(json_values)
            case "leave out":
                del inside[key]
            case "rename" if isinstance(inside, dict):
                inside[draw(st.text(max_size=10))] = inside.pop(key)
    lines[number] = json.dumps(document).encode()
    return b"".join(line + b"\n" for line in lines)


def _documents(seed: bytes) -> list[bytes]:
    """The JSON documents of a seed: all of it, or one on each line."""
    for lines in ([seed], seed.splitlines()):
        try:
            if all(isinstance(json.loads(line), dict | list) for line in lines):
                return lines
        except (ValueError, RecursionError):
            continue
    return []


def _places(value: Any) -> Iterable[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
