"""What several collectors of one sample ask for, looked up once for all of them.

Each collector reads on its own, and three of them begin with who is in the group: a walk through
its directories.  A sample takes milliseconds, so what was found for the first of them holds for the
others; on a machine so starved that it takes longer, it is looked up again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")

HOLDS_S = 0.05
"""Half of the shortest interval between two samples: never from one to the next."""


class Shared(Generic[Found]):
    """A look-up whose result holds for :data:`HOLDS_S`; a failure holds for nobody.

    Parameters
    ----------
    look_up
        Finds it; may raise.
    monotonic_s
        A clock that never steps.
    """

    def __init__(self, look_up: Callable[[], Found], monotonic_s: Callable[[], float]) -> None:
        self._look_up = look_up
        self._monotonic_s = monotonic_s
        self._last: tuple[float, Found] | None = None

    def __call__(self) -> Found:
        """Return what was found, or look it up and raise what that raises."""
        now_s = self._monotonic_s()
        if self._last is None or now_s - self._last[0] > HOLDS_S:
            self._last = None
            self._last = now_s, self._look_up()
        return self._last[1]
