"""The file of ``dial agent --net-charge-quotas FILE``: whose quota pays for whose packets.

::

    subtree = "services"                 # no cgroup outside of it is ever written
    device = "eth0"                      # drops for who is in debt; without it, none

    [services.web]                       # the cgroup services/web, which has a CPU quota
    [services.sink]
    ports = [5001]                       # whose packets are dropped
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial.errors import SettingError

DEFAULT_JOURNAL = "/var/lib/dial/net-charge.journal"


@dataclass(frozen=True, slots=True)
class ChargeSettings:
    """The whole file.

    Attributes
    ----------
    subtree
        The cgroup whose children are charged.
    journal
        See :mod:`dial.limits.journal`.
    device
        Where packets are dropped, if they are.
    ports
        By service; none for one whose packets are never dropped.
    """

    subtree: str
    journal: str
    device: str | None
    ports: Mapping[str, tuple[int, ...]]


def read_settings(path: str) -> ChargeSettings:
    """Read the file.

    Raises
    ------
    SettingError
        If it cannot be read, or a value is not allowed; the message names the setting.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"--net-charge-quotas {path}: {error}") from error
    return parse_settings(table)


def parse_settings(table: Mapping[str, Any]) -> ChargeSettings:
    """Check the tables; raises as :func:`read_settings`."""
    allowed = {"subtree", "journal", "device", "services"}
    if unknown := sorted(table.keys() - allowed):
        raise SettingError(f"{unknown[0]!r}: no such setting; allowed: {sorted(allowed)}")
    subtree, journal = table.get("subtree"), table.get("journal", DEFAULT_JOURNAL)
    if not isinstance(subtree, str) or any(p in ("", ".", "..") for p in subtree.split("/")):
        raise SettingError(f"subtree {subtree!r}: allowed: a path such as services or vm/services")
    if not isinstance(journal, str) or not journal.startswith("/"):
        raise SettingError(f"journal {journal!r}: allowed: an absolute path")
    device = table.get("device")
    if device is not None and (not isinstance(device, str) or not device):
        raise SettingError(f"device {device!r}: allowed: a name such as eth0")
    services = table.get("services")
    if not isinstance(services, Mapping) or not services:
        raise SettingError("services: allowed: a table for each service, at least one")
    ports = {name: _ports(name, service) for name, service in services.items()}
    return ChargeSettings(subtree, journal, device, ports)


def _ports(name: str, table: object) -> tuple[int, ...]:
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise SettingError(f"services.{name!r}: allowed: the name of a cgroup in the subtree")
    if not isinstance(table, Mapping) or table.keys() - {"ports"}:
        raise SettingError(f"services.{name}: allowed: a table with ports, or an empty one")
    ports = table.get("ports", [])
    if not isinstance(ports, list) or not all(type(p) is int and 1 <= p <= 65535 for p in ports):
        raise SettingError(f"services.{name}.ports {ports!r}: allowed: numbers from 1 to 65535")
    return tuple(ports)
