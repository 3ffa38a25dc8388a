"""Quotas that pay for packets, as a part of the agent: begun and ended with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dial import bpf
from dial.agent.capacity import quota_cores_v1, quota_cores_v2
from dial.agent.cgroups import MOUNTINFO, Group, parse_mountinfo
from dial.agent.files import Tree, Unavailable
from dial.errors import LimitError, SettingError
from dial.limits.cpu_time import used_ns
from dial.limits.guardian import guarded
from dial.limits.journal import Journal, Limits
from dial.limits.knobs import Resource, probe
from dial.limits.limiter import Limiter
from dial.limits.periodic import acting
from dial.limits.qdisc import remove_qdisc
from dial.netcharge.collect import context_is_accounted
from dial.netcharge.enforce import PERIOD_S, Charged, Enforcer
from dial.netcharge.ingress import Ingress
from dial.netcharge.interrupts import parse_softirq_ns
from dial.netcharge.settings import ChargeSettings, read_settings
from dial.netcharge.softirq import Softirqs
from dial.types import NoData

_log = logging.getLogger(__name__)


@contextmanager
def charging(path: str, tree: Tree) -> Iterator[Enforcer]:
    """Charge quotas by a file while the context lasts; they are put back at its end.

    Parameters
    ----------
    path
        Of the settings.
    tree
        Where to read.

    Raises
    ------
    SettingError
        If the file or a group cannot be used, or eBPF is not allowed.
    """
    settings = read_settings(path)
    try:
        made = enforcer(settings, tree)
    except (LimitError, Unavailable, bpf.BpfError) as error:
        raise SettingError(f"--net-charge-quotas: {error}") from error
    with guarded(settings.journal), acting("net-charge", made, PERIOD_S, time.monotonic):
        yield made


def enforcer(settings: ChargeSettings, tree: Tree) -> Enforcer:
    """Put an enforcer together; what an earlier agent left behind is put back first.

    Raises
    ------
    SettingError
        If a group has no quota of its own: there is nothing to charge.
    LimitError, Unavailable, BpfError
        If the journal, a group or eBPF cannot be used.
    """
    mounts = parse_mountinfo(tree.read(MOUNTINFO))
    limits = Limits.below(mounts, settings.subtree)
    journal = Journal.emptied(Path(settings.journal), limits, remove_qdisc)
    try:
        names = {name: Group(mounts, f"{settings.subtree}/{name}") for name in settings.ports}
        groups = {name: _charged(tree, group) for name, group in names.items()}
        softirqs = Softirqs(
            mounts.v2 or "", {name: group.v2() or "" for name, group in names.items()}
        )
    except (SettingError, Unavailable, bpf.BpfError):
        journal.undo()
        journal.close()
        raise
    return Enforcer(
        groups,
        softirqs,
        _ingress(settings),
        Limiter(limits, journal),
        softirq_ns=lambda cpus: parse_softirq_ns(tree.read("/proc/stat"), cpus),
        context_is_accounted=context_is_accounted(),
        monotonic_s=time.monotonic,
    )


def _charged(tree: Tree, group: Group) -> Charged:
    knob = probe(tree, group, None)[Resource.CPU]
    if isinstance(knob, NoData):
        raise Unavailable(knob.reason)
    if directory := group.v1("cpu"):
        quota = quota_cores_v1(tree, directory)
    else:
        quota = quota_cores_v2(tree, group.v2() or "")
    if quota is None:
        raise SettingError(
            f"--net-charge-quotas: {group.name}: has no CPU quota; allowed: a group that has one"
        )
    return Charged(quota, knob, partial(used_ns, tree, group))


def _ingress(settings: ChargeSettings) -> Ingress | None:
    if settings.device is None:
        return None
    try:
        return Ingress(settings.device, settings.ports)
    except bpf.BpfError as error:
        _log.info("net-charge: packets of who is in debt are not dropped: %s", error)
        return None
