"""Pages of all lengths, of words, so that they compress as text does."""

from __future__ import annotations

import random
from collections.abc import Iterator

STEP_KIB = 8
MEAN_KIB = 48
MOST_KIB = 480


def pages() -> Iterator[tuple[int, str]]:
    """A page of each length in KiB, from the shortest to the longest; always the same ones."""
    words = random.Random(7)  # noqa: S311 - what stands on a page is no secret
    letters = "etaoinshrdlu"
    vocabulary = ["".join(words.choices(letters, k=words.randint(2, 9))) for _ in range(2000)]
    for kib in range(STEP_KIB, MOST_KIB + 1, STEP_KIB):
        text = " ".join(words.choices(vocabulary, k=kib * 1024 // 4))
        yield kib, text[: kib * 1024]
