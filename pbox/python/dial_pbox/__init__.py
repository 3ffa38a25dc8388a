"""pBox for Python: which activities of a service wait for one another, and for what.

    import dial_pbox as pbox

    pbox.open_domain(mode=pbox.Mode.MEASURE)
    orders = pbox.Lock("orders")                 # a threading.Lock that tells its events

    def handle(request):
        with pbox.activity("request"):           # T_e: from here ...
            with orders:                         # T_d: waiting for it
                ...                              # ... to here

In coroutines it is ``async with pbox.aio.activity("request")`` and :class:`dial_pbox.aio.Lock`.

The library ``libpbox`` does the work (pbox/README.md); this is its binding, on the standard
library's ``ctypes``.  An event costs about a microsecond here, most of it the interpreter's.
Where the library is not installed, :func:`open_domain` says so; a service that wants to run
without it catches :class:`LibraryMissing`.
"""

from dial_pbox import aio
from dial_pbox.activities import activity
from dial_pbox.library import Event, LibraryMissing, Metric, Mode, PBoxError
from dial_pbox.locks import Lock, Resource
from dial_pbox.pboxes import PBox, Stats, close_domain, open_domain, page_path

__all__ = [
    "Event",
    "LibraryMissing",
    "Lock",
    "Metric",
    "Mode",
    "PBox",
    "PBoxError",
    "Resource",
    "Stats",
    "activity",
    "aio",
    "close_domain",
    "open_domain",
    "page_path",
]
