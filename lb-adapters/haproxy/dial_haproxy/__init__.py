"""DIAL's adapter for HAProxy 2.4 and newer.

Reads the log as a stream, counters and weights over the runtime socket, and writes weights
there.  From log line to report: :mod:`~dial_haproxy.sources`, :mod:`~dial_haproxy.parser`,
:mod:`~dial_haproxy.stream`; :mod:`~dial_haproxy.runtime`, :mod:`~dial_haproxy.state`,
:mod:`~dial_haproxy.adapter`.  What the administrator's haproxy.cfg says: :mod:`dial_haproxy.cfg`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dial_haproxy.adapter import HAProxyAdapter
from dial_haproxy.cfg.check import check_files
from dial_haproxy.config import LOG_FORMAT, Snippet, snippet
from dial_haproxy.options import Options, read_options

__all__ = ["LOG_FORMAT", "HAProxyAdapter", "Options", "Snippet", "check_files", "create", "snippet"]


def create(service: str, options: Mapping[str, object]) -> HAProxyAdapter:
    """Make the adapter of one HAProxy backend; opens nothing.

    Parameters
    ----------
    service
        Name of the ``backend`` section.
    options
        The ``[adapter.options]`` table; :class:`Options` describes each.

    Raises
    ------
    SettingError
        Naming each option that is wrong, its value, and what is allowed.
    """
    return HAProxyAdapter(service, read_options(service, options))
