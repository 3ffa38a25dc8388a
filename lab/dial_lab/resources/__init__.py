"""The resources a neighbour can take, one file each, behind one contract (``base.py``)."""

from collections.abc import Mapping

from dial_lab.resources.base import Cost, Program, Purpose, Resource, programs_for
from dial_lab.resources.cpu import CPU
from dial_lab.resources.disk import DISK
from dial_lab.resources.intra_app import INTRA_APP
from dial_lab.resources.lines import LINES
from dial_lab.resources.llc import LLC
from dial_lab.resources.net import NET
from dial_lab.resources.self_limited import SELF_LIMITED

RESOURCES: Mapping[str, Resource] = {
    resource.name: resource for resource in (CPU, NET, DISK, LLC, SELF_LIMITED)
}
"""All of them, by the name they have in a verdict.  What is recorded beside a neighbour in the
cache is recorded beside real programs, so that :data:`LINES` is not among them."""

__all__ = [
    "CPU",
    "DISK",
    "INTRA_APP",
    "LINES",
    "LLC",
    "NET",
    "RESOURCES",
    "SELF_LIMITED",
    "Cost",
    "Program",
    "Purpose",
    "Resource",
    "programs_for",
]
