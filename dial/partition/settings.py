"""The file of ``dial agent --partition FILE``: what is divided, among whom, by which targets.

::

    subtree = "services"                 # no cgroup outside of it is ever written
    journal = "/var/lib/dial/partition.journal"

    [services.web]                       # its cgroup is services/web
    target_ms = 20.0
    log = { path = "/var/log/web/access.log", field = 3 }

    [services.db]
    target_ms = 5.0
    percentile = 99
    metrics = { url = "http://127.0.0.1:9187/metrics", histogram = "query_duration_seconds" }

    [services.batch]                     # no target: a best-effort job

    [disk]                               # divided too, where these two are given
    device = "259:0"
    bytes_per_s = 200e6

    [network]
    device = "eth0"
    bits_per_s = 1e9
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dial.errors import SettingError

_TOP = {"subtree", "journal", "cpu_cores", "memory_slack_mib", "disk", "network", "services"}
_SERVICE = {
    *("target_ms", "percentile", "log", "metrics", "stateless", "balanced"),
    *("cpu_floor_cores", "memory_floor_mib"),
}

DEFAULT_JOURNAL = "/var/lib/dial/partition.journal"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """See :class:`dial.partition.latency.Log`."""

    path: str
    field: int
    separator: str | None
    unit_ms: float


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """See :class:`dial.partition.latency.Histogram`."""

    url: str
    histogram: str
    labels: Mapping[str, str]
    unit_ms: float


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """One service."""

    name: str
    target_ms: float | None
    percentile: float
    source: LogSettings | MetricsSettings | None
    stateless: bool
    balanced: bool
    cpu_floor_cores: float
    memory_floor_mib: float


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The whole file.

    Attributes
    ----------
    subtree
        The cgroup whose children are the services', a path below the hierarchies' roots.
    journal
        See :mod:`dial.limits.journal`.
    cpu_cores
        What is divided; ``None`` for what the subtree may use.
    memory_slack_mib
        What an in-memory service keeps beyond its use.
    disk
        ``MAJOR:MINOR`` and bytes a second of the disk to divide, if one is.
    network
        Name and bits a second of the device whose egress to divide, if it is.
    services
        At least one, in the file's order.
    """

    subtree: str
    journal: str
    cpu_cores: float | None
    memory_slack_mib: float
    disk: tuple[str, float] | None
    network: tuple[str, float] | None
    services: tuple[ServiceSettings, ...]


def read_settings(path: str) -> PartitionSettings:
    """Read the file.

    Raises
    ------
    SettingError
        If it cannot be read, or a value is not allowed; the message names the setting.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"--partition {path}: {error}") from error
    return parse_settings(table)


def parse_settings(table: Mapping[str, Any]) -> PartitionSettings:
    """Check the tables; raises as :func:`read_settings`."""
    _known(table, _TOP, "")
    subtree = _text(table, "subtree", "")
    if not subtree.strip("/") or any(part in ("", ".", "..") for part in subtree.split("/")):
        raise SettingError(f"subtree {subtree!r}: allowed: a path such as services or vm/services")
    journal = _text(table, "journal", "", DEFAULT_JOURNAL)
    if not journal.startswith("/"):
        raise SettingError(f"journal {journal!r}: allowed: an absolute path")
    services = table.get("services")
    if not isinstance(services, Mapping) or not services:
        raise SettingError("services: allowed: a table for each service, at least one")
    settings = PartitionSettings(
        subtree,
        journal,
        _number(table, "cpu_cores", "") if "cpu_cores" in table else None,
        _number(table, "memory_slack_mib", "", 1024.0),
        _disk(table),
        _network(table),
        tuple(_service(name, service) for name, service in services.items()),
    )
    if all(service.target_ms is None for service in settings.services):
        raise SettingError("services: none has a target_ms; allowed: at least one that has")
    if not any(service.balanced for service in settings.services):
        raise SettingError("services: none is balanced; allowed: at least one that is")
    return settings


def _service(name: str, table: Any) -> ServiceSettings:
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise SettingError(f"services.{name!r}: allowed: the name of a cgroup in the subtree")
    where = f"services.{name}."
    if not isinstance(table, Mapping):
        raise SettingError(f"services.{name}: allowed: a table")
    _known(table, _SERVICE, where)
    target_ms = _number(table, "target_ms", where) if "target_ms" in table else None
    percentile = _number(table, "percentile", where, 95.0)
    if not 50.0 <= percentile <= 99.9:
        raise SettingError(f"{where}percentile {percentile:g}: allowed: 50 to 99.9")
    given = [kind for kind in ("log", "metrics") if kind in table]
    if len(given) != (target_ms is not None):
        raise SettingError(
            f"{where[:-1]}: has {' and '.join(given) or 'neither log nor metrics'}; allowed: one "
            "of log and metrics with a target_ms, none without"
        )
    return ServiceSettings(
        name,
        target_ms,
        percentile,
        _log(table["log"], where) if "log" in given else _metrics(table.get("metrics"), where),
        _flag(table, "stateless", where, default=False),
        _flag(table, "balanced", where, default=target_ms is not None),
        _number(table, "cpu_floor_cores", where, 0.05),
        _number(table, "memory_floor_mib", where, 64.0),
    )


def _log(table: Any, where: str) -> LogSettings:
    where += "log."
    if not isinstance(table, Mapping):
        raise SettingError(f"{where[:-1]}: allowed: a table with path and field")
    _known(table, {"path", "field", "separator", "unit_ms"}, where)
    path, field = _text(table, "path", where), table.get("field", 1)
    if not path.startswith("/"):
        raise SettingError(f"{where}path {path!r}: allowed: an absolute path")
    if type(field) is not int or field < 1:
        raise SettingError(f"{where}field {field!r}: allowed: a whole number from 1")
    separator = _text(table, "separator", where) if "separator" in table else None
    return LogSettings(path, field, separator, _number(table, "unit_ms", where, 1.0))


def _metrics(table: Any, where: str) -> MetricsSettings | None:
    if table is None:
        return None
    where += "metrics."
    if not isinstance(table, Mapping):
        raise SettingError(f"{where[:-1]}: allowed: a table with url and histogram")
    _known(table, {"url", "histogram", "labels", "unit_ms"}, where)
    url = _text(table, "url", where)
    try:
        usable = urlsplit(url).scheme == "http" and bool(urlsplit(url).hostname)
    except ValueError:
        usable = False
    if not usable:
        raise SettingError(f"{where}url {url!r}: allowed: http://HOST[:PORT]/PATH")
    labels = table.get("labels", {})
    if not isinstance(labels, Mapping) or not all(isinstance(v, str) for v in labels.values()):
        raise SettingError(f"{where}labels: allowed: a table of texts")
    histogram = _text(table, "histogram", where)
    return MetricsSettings(url, histogram, labels, _number(table, "unit_ms", where, 1000.0))


def _disk(table: Mapping[str, Any]) -> tuple[str, float] | None:
    disk = table.get("disk")
    if disk is None:
        return None
    if not isinstance(disk, Mapping):
        raise SettingError("disk: allowed: a table with device and bytes_per_s")
    _known(disk, {"device", "bytes_per_s"}, "disk.")
    device = _text(disk, "device", "disk.")
    major, _, minor = device.partition(":")
    if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        raise SettingError(f"disk.device {device!r}: allowed: MAJOR:MINOR, such as 259:0")
    return device, _number(disk, "bytes_per_s", "disk.")


def _network(table: Mapping[str, Any]) -> tuple[str, float] | None:
    network = table.get("network")
    if network is None:
        return None
    if not isinstance(network, Mapping):
        raise SettingError("network: allowed: a table with device and bits_per_s")
    _known(network, {"device", "bits_per_s"}, "network.")
    device = _text(network, "device", "network.")
    # What tc would take for an option, or for a path below /sys, is no device.
    if device.startswith("-") or "/" in device or not device.isprintable() or " " in device:
        raise SettingError(f"network.device {device!r}: allowed: a name such as eth0")
    return device, _number(network, "bits_per_s", "network.")


def _known(table: Mapping[str, Any], allowed: set[str], where: str) -> None:
    if unknown := sorted(table.keys() - allowed):
        raise SettingError(f"{where}{unknown[0]!r}: no such setting; allowed: {sorted(allowed)}")


def _flag(table: Mapping[str, Any], name: str, where: str, *, default: bool) -> bool:
    value = table.get(name, default)
    if not isinstance(value, bool):
        raise SettingError(f"{where}{name} {value!r}: allowed: true or false")
    return value


def _text(table: Mapping[str, Any], name: str, where: str, default: str | None = None) -> str:
    value = table.get(name, default)
    if not isinstance(value, str) or not value:
        raise SettingError(f"{where}{name}: allowed: text")
    return value


def _number(table: Mapping[str, Any], name: str, where: str, default: float | None = None) -> float:
    value = table.get(name, default)
    if type(value) in (int, float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and number > 0.0:
            return number
    raise SettingError(f"{where}{name} {str(value)[:40]!r}: allowed: a number above 0")
