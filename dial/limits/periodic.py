"""Acting on limits at a steady pace, beside an agent that goes on whatever happens there.

Whatever goes wrong (a limit that the kernel refuses, a defect) ends the acting, not the agent,
and puts every limit back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from dial.agent.loop import next_deadline_s
from dial.errors import DialError

_log = logging.getLogger(__name__)


class Acting(Protocol):
    """What reads, decides and writes; an error of ours ends it."""

    def begin(self) -> None:
        """Do what comes before the first decision."""

    def once(self) -> None:
        """Read, decide and write once."""

    def put_back(self) -> None:
        """Put every limit back; nothing is done after that."""


@contextmanager
def acting(
    name: str, part: Acting, interval_s: float, monotonic_s: Callable[[], float]
) -> Iterator[None]:
    """Act while the context lasts, in a thread of its own.

    Parameters
    ----------
    name
        Of the thread, and in the log.
    part
        Acts.
    interval_s
        Between two decisions.
    monotonic_s
        A clock that never steps.
    """
    ended = Event()

    def run() -> None:
        start_s = monotonic_s()
        try:
            part.begin()
            while True:
                now_s = monotonic_s()
                if ended.wait(next_deadline_s(start_s, interval_s, now_s) - now_s):
                    break
                part.once()
        except DialError as error:
            _log.error("%s: %s; it ends", name, error)
        # A defect must not leave limits behind; it is logged, and the agent goes on sampling.
        except Exception:  # noqa: BLE001 - see above
            _log.exception("%s: defect; it ends", name)
        finally:
            part.put_back()

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
