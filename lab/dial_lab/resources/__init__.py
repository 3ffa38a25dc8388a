"""The resources a neighbour can take, one file each, behind one contract (``base.py``)."""

from dial_lab.resources.base import Cost, Resource
from dial_lab.resources.cpu import CPU
from dial_lab.resources.disk import DISK
from dial_lab.resources.llc import LLC
from dial_lab.resources.net import NET

__all__ = ["CPU", "DISK", "LLC", "NET", "Cost", "Resource"]
