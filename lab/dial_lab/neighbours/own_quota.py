"""Gives a control group a CPU quota until it is told to end, or its time is over.

A program and not a function, because a quota is to be stopped as neighbours are.  Killed, it
leaves the quota behind, with a group that whoever killed it has to remove anyway.
"""

from __future__ import annotations

import argparse
import signal

from dial_lab.topology import host_cgroups


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", required=True)
    parser.add_argument("--quota-us", type=int, required=True)
    parser.add_argument("--period-us", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    cgroups = host_cgroups()
    # Blocked, a signal stays pending until it is waited for: no moment between set and lifted.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    cgroups.set_quota(options.group, options.quota_us, options.period_us)
    signal.sigtimedwait({signal.SIGTERM}, options.seconds)
    cgroups.lift_quota(options.group)


if __name__ == "__main__":
    main()
