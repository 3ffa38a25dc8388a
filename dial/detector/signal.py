"""What a detector says of one interval, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass

from dial.columns import Bools, Columns, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Signal(Columns):
    """All backends, one interval; each field is (n,).

    Attributes
    ----------
    upper_ms
        What T_x was expected to be at most; NaN where too little was learnt to expect anything.
    above
        T_x is above it, or was lately so much that it is not trusted yet: worth asking why.
    likely
        The backend may well be slower than in its quiet past: enough where something else says so
        too, as siblings that are far quicker.
    detected
        It surely is.
    calm
        Little points that way: the interval may be learnt from.
    learnt
        Quiet intervals that ``upper_ms`` rests on.
    """

    upper_ms: Floats
    above: Bools
    likely: Bools
    detected: Bools
    calm: Bools
    learnt: Ints

    def beside(self, witness: Signal) -> Signal:
        """The same where another witness was heard, which alone is never sure."""
        return Signal(
            self.upper_ms,
            above=self.above | witness.likely,
            likely=self.likely | witness.likely,
            detected=self.detected | (self.likely & witness.likely),
            calm=self.calm & witness.calm,
            learnt=self.learnt,
        )
