"""Asks a tenant's application for one report after the other: no neighbour, but its own job.

Each report holds the application's lock for a while; then nobody holds it for so long that the
lock is held for the wanted part of the time.
"""

from __future__ import annotations

import argparse
import http.client
import time

HOLD_MS = 100
"""Of one report: some fifty requests' work, so that who comes meanwhile waits for long."""


def pause_s(held: float, hold_ms: int = HOLD_MS) -> float:
    """Between two reports, so that the lock is held for a part ``held`` of the time.

    Examples
    --------
    >>> pause_s(0.5), round(pause_s(0.8), 3)
    (0.1, 0.025)
    """
    return hold_ms / 1000.0 * (1.0 - held) / held


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--held", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    while time.monotonic() < end_s:
        connection = http.client.HTTPConnection(options.host, options.port, timeout=30.0)
        connection.request("GET", f"/report?hold_ms={HOLD_MS}")
        connection.getresponse().read()
        connection.close()
        time.sleep(pause_s(options.held))


if __name__ == "__main__":
    main()
