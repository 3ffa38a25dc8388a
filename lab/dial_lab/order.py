"""Who comes when: each policy at each place, and after each other policy, equally often.

A block may leave something to the next: a warm computer, a backlog, what a page cache holds.  If
policies only take turns at being first, each always comes after the same one, and what that one
leaves is in every ratio.  Rows of a Williams design follow one another differently: 0, 1, n - 1, 2,
n - 2 and so on, shifted by one from row to row.  Each row is followed by itself backwards, which is
a row of the same design where n is even, and the other half that the design needs where n is odd.

Source: E. J. Williams, Experimental designs balanced for the estimation of residual effects of
treatments, Australian Journal of Scientific Research A 2 (1949).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


def in_round(number: int, policies: Sequence[_T]) -> tuple[_T, ...]:
    """``policies`` in the order of round ``number``, counted from zero.

    Over n rounds of n policies, 2 n where n is odd, each is at each place, and directly after each
    other, equally often.

    Examples
    --------
    >>> [in_round(number, "abcd") for number in range(2)]
    [('a', 'b', 'd', 'c'), ('c', 'd', 'b', 'a')]
    """
    count = len(policies)
    shift, backwards = divmod(number, 2)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    row = tuple(policies[(step + shift) % count] for step in zigzag)
    return row[::-1] if backwards else row
