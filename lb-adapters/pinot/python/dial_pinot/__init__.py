"""DIAL's adapter for Apache Pinot 1.5 and newer.

The broker's plugin chooses replicas by weight and posts its query log; this is the other end.
From log line to report: :mod:`~dial_pinot.parser`, :mod:`~dial_pinot.sources`,
:mod:`~dial_pinot.cluster`, :mod:`~dial_pinot.weights`, :mod:`~dial_pinot.adapter`.  What the
operator's own configuration says: :mod:`~dial_pinot.checks`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dial_pinot.adapter import PinotAdapter
from dial_pinot.files import check_files
from dial_pinot.options import Options, read_options

__all__ = ["Options", "PinotAdapter", "check_files", "create"]


def create(service: str, options: Mapping[str, object]) -> PinotAdapter:
    """Make the adapter of one Pinot table; opens nothing.

    Parameters
    ----------
    service
        Name of the table with its type, such as ``events_OFFLINE``.
    options
        The ``[adapter.options]`` table; :class:`Options` describes each.

    Raises
    ------
    SettingError
        Naming each option that is wrong, its value, and what is allowed.
    """
    return PinotAdapter(service, read_options(service, options))
