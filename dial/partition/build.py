"""From the settings to a manager: probe what this guest offers, and say what is missing."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from dial.agent.cgroups import MOUNTINFO, Group, Hierarchies, parse_mountinfo
from dial.agent.files import Tree, Unavailable
from dial.errors import LimitError, SettingError
from dial.limits.journal import Journal, Limits
from dial.limits.knobs import Knob, Resource, probe
from dial.limits.limiter import Limiter
from dial.limits.qdisc import remove_qdisc
from dial.partition.egress import Egress
from dial.partition.groups import GroupUse, available_bytes, subtree_cores
from dial.partition.latency import Histogram, Log, Source, Window
from dial.partition.manager import Managed, Manager
from dial.partition.parties import start
from dial.partition.resources import Machine, Service, Units, fair
from dial.partition.settings import (
    LogSettings,
    MetricsSettings,
    PartitionSettings,
    ServiceSettings,
)
from dial.types import NoData

_log = logging.getLogger(__name__)

UNITS = {Resource.CPU: 20, Resource.MEMORY: 32, Resource.DISK: 20}
"""Parts of each resource.  The paper moves one of 14 cores at a time, and one of 128 GB."""

_FETCH_TIMEOUT_S = 0.4
"""For a metrics endpoint: less than the interval between two decisions."""
_MOST_METRICS_BYTES = 4 << 20


def manager(settings: PartitionSettings, tree: Tree, *, dry_run: bool, root: str = "/") -> Manager:
    """Put a manager together; whatever an earlier agent left behind is put back first.

    Parameters
    ----------
    settings
        Of the file.
    tree
        Where to read.
    dry_run
        Say what would be done, and write nothing.
    root
        Takes the place of ``/`` for what is written, for tests.

    Raises
    ------
    SettingError
        If a service's group is not there, or floors are more than there is.
    LimitError
        If the journal cannot be used.
    """
    hierarchies = _hierarchies(tree)
    journal = None
    limits = Limits.below(hierarchies, settings.subtree, root)
    if not dry_run:
        journal = Journal.emptied(Path(root) / settings.journal.lstrip("/"), limits, remove_qdisc)
    try:
        groups = {
            service.name: Group(hierarchies, f"{settings.subtree}/{service.name}")
            for service in settings.services
        }
        knobs = _knobs(tree, groups, settings.disk)
        uses = {name: GroupUse(tree, group) for name, group in groups.items()}
        machine, sizes, in_use = _machine(settings, tree, hierarchies, uses, _shared(knobs))
        services = [
            Managed(
                service.name,
                None if service.target_ms is None else Window(service.percentile),
                _source(service),
                uses[service.name],
                {resource: knobs[service.name][resource] for resource in machine.totals},
                service.balanced,
            )
            for service in settings.services
        ]
        state = start(machine, in_use)
        egress = _egress(settings, groups, journal)
    except (SettingError, Unavailable) as error:
        if journal is not None:
            journal.undo()
            journal.close()
        raise SettingError(f"--partition: {error}") from error
    return Manager(
        machine,
        sizes,
        state,
        services,
        limits,
        limiter=None if journal is None else Limiter(limits, journal),
        egress=egress,
        monotonic_s=time.monotonic,
        draw=Random().random,  # noqa: S311 - which resource to try first
    )


def _hierarchies(tree: Tree) -> Hierarchies:
    try:
        return parse_mountinfo(tree.read(MOUNTINFO))
    except Unavailable as error:
        raise SettingError(f"--partition: {error}") from error


def _knobs(
    tree: Tree, groups: Mapping[str, Group], disk: tuple[str, float] | None
) -> dict[str, dict[Resource, Knob]]:
    """The knobs of each service; says once of each resource why some service has none."""
    found: dict[str, dict[Resource, Knob]] = {}
    missing: dict[Resource, str] = {}
    for name, group in groups.items():
        found[name] = {}
        for resource, knob in probe(tree, group, disk and disk[0]).items():
            if isinstance(knob, NoData):
                missing.setdefault(resource, f"{name}: {knob.reason}")
            else:
                found[name][resource] = knob
    for resource, reason in missing.items():
        _log.info("partition: %s is not divided: %s", resource, reason)
    return found


def _shared(knobs: Mapping[str, Mapping[Resource, Knob]]) -> AbstractSet[Resource]:
    """What every service has a knob of: what one lacks cannot be divided."""
    return set.intersection(*(set(own) for own in knobs.values()))


def _machine(
    settings: PartitionSettings,
    tree: Tree,
    hierarchies: Hierarchies,
    uses: Mapping[str, GroupUse],
    able: AbstractSet[Resource],
) -> tuple[Machine, dict[Resource, float], dict[str, Units]]:
    """What is divided, the size of a unit, and the units in use already.

    Raises
    ------
    SettingError
        If that leaves nothing to divide.
    Unavailable
        If the cores are not known.
    """
    sizes: dict[Resource, float] = {}
    in_use: dict[str, Units] = {}
    if Resource.CPU in able:
        cores = settings.cpu_cores or subtree_cores(tree, hierarchies, settings.subtree)
        sizes[Resource.CPU] = cores / UNITS[Resource.CPU]
    if Resource.DISK in able and settings.disk is not None:
        sizes[Resource.DISK] = settings.disk[1] / UNITS[Resource.DISK]
    if Resource.MEMORY in able:
        try:
            used = {name: use.memory_bytes() for name, use in uses.items()}
            total = available_bytes(tree) + sum(used.values())
        except Unavailable as error:
            _log.info("partition: memory is not divided: %s", error)
        else:
            size = sizes[Resource.MEMORY] = total / UNITS[Resource.MEMORY]
            # One unit more than is in use: a limit at the very edge would swap at once.
            in_use = {n: {Resource.MEMORY: math.ceil(held / size) + 1} for n, held in used.items()}
    services = tuple(_service(service, sizes) for service in settings.services)
    try:
        fair(Machine(services, {r: UNITS[r] for r in sizes if r is Resource.MEMORY}), in_use)
    except SettingError as error:
        _log.info("partition: memory is not divided: %s", error)
        del sizes[Resource.MEMORY]
    if not sizes:
        raise SettingError("nothing can be divided, see above")
    slack_bytes = round(settings.memory_slack_mib * 2**20)
    unit_bytes = round(sizes.get(Resource.MEMORY, 0.0))
    return Machine(services, {r: UNITS[r] for r in sizes}, unit_bytes, slack_bytes), sizes, in_use


def _egress(
    settings: PartitionSettings, groups: Mapping[str, Group], journal: Journal | None
) -> Egress | None:
    if settings.network is None or journal is None:
        return None
    try:
        marked = {name: group.v2() or "" for name, group in groups.items()}
        return Egress(*settings.network, marked, journal)
    except LimitError as error:
        # Half of it may be there; what the journal knows of it is taken back at the end.
        _log.info("partition: egress is not divided: %s", error)
        return None


def _service(service: ServiceSettings, sizes: Mapping[Resource, float]) -> Service:
    floors = {
        Resource.CPU: service.cpu_floor_cores,
        Resource.MEMORY: service.memory_floor_mib * 2**20,
    }
    return Service(
        service.name,
        service.target_ms,
        service.stateless,
        # What is a whole number of units must not become one more by rounding.
        {r: math.ceil(least / sizes[r] - 1e-9) for r, least in floors.items() if r in sizes},
    )


def _source(service: ServiceSettings) -> Source | None:
    match service.source:
        case LogSettings() as log:
            return Log(log.path, log.field, log.separator, log.unit_ms)
        case MetricsSettings() as metrics:
            return Histogram(
                partial(_fetch, metrics.url), metrics.histogram, metrics.labels, metrics.unit_ms
            )
        case None:
            return None


def _fetch(url: str) -> str:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=_FETCH_TIMEOUT_S)
    try:
        target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        connection.request("GET", target)
        answer = connection.getresponse()
        text = answer.read(_MOST_METRICS_BYTES)
    except (OSError, HTTPException) as error:
        raise Unavailable(f"{url}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Unavailable(f"{url}: {answer.status} {answer.reason}")
    return text.decode("utf-8", "replace")
