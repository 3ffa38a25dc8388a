"""From log lines and agents' samples to one immutable Observation a tick.

:mod:`dial.telemetry.requests`
    Finished requests, gathered into one window per backend and tick.
:mod:`dial.telemetry.samples`
    The samples of one tick, averaged into one.
:mod:`dial.telemetry.observe`
    Both joined with what the balancer says of itself.
"""

from dial.telemetry.observe import Observer
from dial.telemetry.requests import RequestWindows
from dial.telemetry.samples import merge_samples

__all__ = ["Observer", "RequestWindows", "merge_samples"]
