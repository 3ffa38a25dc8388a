"""The resources a neighbour can take, one file each, behind one contract (``base.py``)."""

from dial_lab.resources.base import Cost, Resource
from dial_lab.resources.cpu import CPU

__all__ = ["CPU", "Cost", "Resource"]
