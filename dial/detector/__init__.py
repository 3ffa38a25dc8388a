"""Whether a backend is slower than it was when nobody disturbed it.

One strategy a file; each is a pure step ``(state, measurement) -> (state, signal)``.

:mod:`dial.detector.band`
    The paper's: T_x above its confidence band for successive intervals.
"""

from dial.detector.band import Band, BandSignal, BandState

__all__ = ["Band", "BandSignal", "BandState"]
