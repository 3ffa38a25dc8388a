"""DIAL's adapter for Envoy 1.30 and newer.

Serves endpoints with weights (gRPC or a file), reads access logs, and reads counters and the
weights in force from the admin interface.  From a plan to its report:
:mod:`~dial_envoy.endpoints`, :mod:`~dial_envoy.pool_source`, :mod:`~dial_envoy.snapshot`,
:mod:`~dial_envoy.subscription`, :mod:`~dial_envoy.server` (or :mod:`~dial_envoy.eds_file`),
:mod:`~dial_envoy.admin`, :mod:`~dial_envoy.fleet`,
:mod:`~dial_envoy.state`, :mod:`~dial_envoy.adapter`; from a log to a batch:
:mod:`~dial_envoy.requests`.  What the administrator's bootstrap says: :mod:`dial_envoy.bootstrap`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dial_envoy.adapter import EnvoyAdapter
from dial_envoy.bootstrap import check_files
from dial_envoy.options import Options, read_options

__all__ = ["EnvoyAdapter", "Options", "check_files", "create"]


def create(service: str, options: Mapping[str, object]) -> EnvoyAdapter:
    """Make the adapter of one Envoy cluster; opens nothing.

    Parameters
    ----------
    service
        Name of the cluster.
    options
        The ``[adapter.options]`` table; :class:`Options` describes each.

    Raises
    ------
    SettingError
        Naming each option that is wrong, its value, and what is allowed.
    """
    return EnvoyAdapter(service, read_options(service, options))
