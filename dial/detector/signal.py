"""What a detector says of one interval, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass

from dial.types import Measured


@dataclass(frozen=True, slots=True)
class Signal:
    """One backend, one interval.

    Attributes
    ----------
    upper_ms
        What T_x was expected to be at most, or why nothing was.
    above
        T_x is above it, or was lately so much that it is not trusted yet: worth asking why.
    likely
        The backend may well be slower than in its quiet past: enough where something else says so
        too, as siblings that are far quicker.
    detected
        It surely is.
    calm
        Little points that way: the interval may be learnt from.
    """

    upper_ms: Measured
    above: bool
    likely: bool
    detected: bool
    calm: bool

    def beside(self, witness: Signal) -> Signal:
        """The same where another witness was heard, which alone is never sure."""
        return Signal(
            self.upper_ms,
            above=self.above or witness.likely,
            likely=self.likely or witness.likely,
            detected=self.detected or (self.likely and witness.likely),
            calm=self.calm and witness.calm,
        )
