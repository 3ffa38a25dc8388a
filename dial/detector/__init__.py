"""Whether a backend is slower than it was when nobody disturbed it.

One strategy a file; each is a pure step ``(state, measurement) -> (state, signal)``.

:mod:`dial.detector.cusum`
    Evidence summed up over intervals, the backend's own load taken out.
:mod:`dial.detector.band`
    The paper's: T_x above its confidence band for successive intervals.
"""

from dial.detector.band import Band, BandState
from dial.detector.cusum import Cusum, CusumState
from dial.detector.signal import Signal

__all__ = ["Band", "BandState", "Cusum", "CusumState", "Signal"]
