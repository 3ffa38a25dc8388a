"""Figures in a page that is otherwise written by hand.

Each block stands between ``<!-- figures: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Result = TypeVar("Result")


def with_blocks(text: str, blocks: Mapping[str, Callable[[Result], str]], result: Result) -> str:
    """The page's text with ``result`` in its blocks.

    Parameters
    ----------
    text
        The page.
    blocks
        By name, what writes a block: whole lines.
    result
        What is written.

    Raises
    ------
    ValueError
        If the page lacks a block, or has one of an unknown name.
    """
    parts = re.split(r"(?<=<!-- figures: )(\w+)( -->\n).*?(?=<!-- end -->)", text, flags=re.DOTALL)
    if sorted(parts[1::3]) != sorted(blocks):
        raise ValueError(f"blocks of the page: {parts[1::3]}; there have to be {[*blocks]}")
    for at in range(1, len(parts), 3):
        parts[at + 1] += blocks[parts[at]](result)
    return "".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with the end of its last line."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
