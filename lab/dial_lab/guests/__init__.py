"""Tenants in a kernel of their own, started by the lab and entered from outside.

``uml.py`` boots and removes the guests, ``cpu.py`` runs the CPU resource in them, and the two
ends of the line into a guest are files without imports of ours: ``init.py`` inside, as the
first process, and ``enter.py`` outside.
"""

from dial_lab.guests.cpu import GuestCpu, under
from dial_lab.guests.uml import Guest, guests

__all__ = ["Guest", "GuestCpu", "guests", "under"]
