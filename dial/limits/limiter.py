"""Sets limits, each after what was there is in the journal."""

from __future__ import annotations

import logging

from dial.agent.files import Unavailable
from dial.limits.journal import Journal, Limits
from dial.limits.knobs import Knob

_log = logging.getLogger(__name__)


class Limiter:
    """Sets limits, and puts them back.

    Parameters
    ----------
    limits
        Writes.
    journal
        Remembers what was there.
    """

    def __init__(self, limits: Limits, journal: Journal) -> None:
        self._limits = limits
        self._journal = journal
        self._recorded: set[Knob] = set()

    def set(self, knob: Knob, amount: float) -> bool:
        """Limit to an amount; false if the group is not there now, but may come back.

        Raises
        ------
        LimitError
            If the limit or the journal cannot be written.
        """
        try:
            if knob not in self._recorded:
                self._journal.record(knob.restoring())
                self._recorded.add(knob)
            for write in knob.writes(amount):
                self._limits.write(write)
        except (Unavailable, FileNotFoundError):
            return False
        return True

    def put_back(self) -> None:
        """Put every limit back, and let go of the journal; what could not be is logged."""
        for complaint in self._journal.undo():
            _log.error("not put back: %s", complaint)
        self._journal.close()
