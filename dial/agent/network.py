"""TCP segments and network bytes, of the right network namespace.

Both kinds of counters belong to a network namespace.  For a whole machine that is the
agent's own.  For a cgroup it is the one its first process is in, and if that is the
host's, the counters are everybody's: traffic of all machines emulated or hosted there.
Such numbers would make one tenant's load look like another's, so they are not given.

How to tell the host's namespace: it is that of process 1; where that may not be read
(hardened kernels refuse even root), it is the one with the number that kernels since 6.18
give to the initial namespace; on older ones the agent's own is taken for the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dial.agent.counters import growth, parse_count, per_second
from dial.agent.files import Tree, Unavailable
from dial.types import Measured, NoData

INITIAL_NAMESPACE = f"net:[{0xEFFFFFF9}]"
"""NET_NS_INIT_INO of include/uapi/linux/nsfs.h."""

_SHARED = "network namespace is shared with the host"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace and where its counters are."""

    identity: str
    directory: str


class Locate(Protocol):
    """Finds the namespace to read, anew for each reading."""

    def __call__(self) -> Namespace:
        """Return it; raises :class:`Unavailable`."""


def own_namespace() -> Namespace:
    """Return the agent's own namespace: that of the whole machine."""
    return Namespace("own", "/proc/net")


@dataclass(frozen=True, slots=True)
class GroupNamespace:
    """The network namespace of the first process of a group."""

    tree: Tree
    members: Callable[[], Sequence[int]]

    def __call__(self) -> Namespace:
        """Return it.

        Raises
        ------
        Unavailable
            If the group has no process, its namespace may not be read, or is the host's.
        """
        pid = self.members()[0]
        identity = self.tree.link(f"/proc/{pid}/ns/net")
        if identity in (INITIAL_NAMESPACE, self._host()):
            raise Unavailable(_SHARED)
        return Namespace(identity, f"/proc/{pid}/net")

    def _host(self) -> str:
        try:
            return self.tree.link("/proc/1/ns/net")
        except Unavailable:
            return self.tree.link("/proc/self/ns/net")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters by name, of one namespace."""

    namespace: str
    values: Mapping[str, int]


def parse_tcp(text: str, where: str) -> dict[str, int]:
    """Return ``OutSegs`` and ``RetransSegs`` from ``/proc/net/snmp``, IPv4 and IPv6.

    The file has pairs of lines, names and then numbers.  ``OutSegs`` leaves out segments
    that hold retransmitted bytes only (RFC 1213), so the two add up to what was sent.

    Raises
    ------
    Unavailable
        If there is no such pair of lines, or one of the two is not in it.
    """
    lines = [line.split() for line in text.splitlines() if line.startswith("Tcp: ")]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]):
        raise Unavailable(f"{where}: no pair of Tcp lines")
    row = dict(zip(*lines, strict=True))
    if "OutSegs" not in row or "RetransSegs" not in row:
        raise Unavailable(f"{where}: no OutSegs and RetransSegs")
    return {name: parse_count(row[name], where) for name in ("OutSegs", "RetransSegs")}


class Tcp:
    """TCP segments of a namespace.

    Parameters
    ----------
    tree
        Where to read.
    locate
        Finds the namespace.
    """

    metrics = ("tcp_segments_out_per_s", "tcp_retransmits_per_s")

    def __init__(self, tree: Tree, locate: Locate) -> None:
        self._tree = tree
        self._locate = locate

    def read(self) -> Counts:
        """Read the counters; raises :class:`Unavailable`."""
        namespace = self._locate()
        path = f"{namespace.directory}/snmp"
        return Counts(namespace.identity, parse_tcp(self._tree.read(path), path))

    def rates(self, before: Counts, after: Counts, interval_s: float) -> dict[str, Measured]:
        """Return segments a second."""
        if before.namespace != after.namespace:
            return dict.fromkeys(self.metrics, _other_namespace())
        old, new = before.values, after.values
        return {
            "tcp_segments_out_per_s": per_second(old["OutSegs"], new["OutSegs"], interval_s),
            "tcp_retransmits_per_s": per_second(old["RetransSegs"], new["RetransSegs"], interval_s),
        }


def parse_interfaces(text: str, where: str) -> dict[str, tuple[int, int]]:
    """Return (received, sent) bytes by interface from ``/proc/net/dev``.

    Raises
    ------
    Unavailable
        If a line has fewer than its sixteen counters.
    """
    interfaces = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.rpartition(":")
        fields = rest.split()
        if not name or len(fields) < 16:
            raise Unavailable(f"{where}: no sixteen counters in {line[:60]!r}")
        interfaces[name.strip()] = (parse_count(fields[0], where), parse_count(fields[8], where))
    return interfaces


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes (received, sent) by interface, of one namespace."""

    namespace: str
    interfaces: Mapping[str, tuple[int, int]]


class Network:
    """Bytes through a namespace's interfaces, loopback left out.

    On a machine a packet passes a bond, a bridge and a card, and would count three times;
    there only interfaces of hardware (those with a ``device`` in sysfs) are taken, where
    there are any.  In a group's own namespace all are: its veth is all it has.

    Parameters
    ----------
    tree
        Where to read.
    locate
        Finds the namespace.
    hardware_only
        Whether to prefer interfaces of hardware.
    """

    metrics = ("net_rx_bytes_per_s", "net_tx_bytes_per_s")

    def __init__(self, tree: Tree, locate: Locate, *, hardware_only: bool) -> None:
        self._tree = tree
        self._locate = locate
        self._hardware_only = hardware_only

    def read(self) -> Traffic:
        """Read the counters; raises :class:`Unavailable`."""
        namespace = self._locate()
        path = f"{namespace.directory}/dev"
        interfaces = parse_interfaces(self._tree.read(path), path)
        interfaces.pop("lo", None)
        if self._hardware_only:
            real = {
                name: counts
                for name, counts in interfaces.items()
                if self._tree.exists(f"/sys/class/net/{name}/device")
            }
            interfaces = real or interfaces
        if not interfaces:
            raise Unavailable(f"{path}: no interface but loopback")
        return Traffic(namespace.identity, interfaces)

    def rates(self, before: Traffic, after: Traffic, interval_s: float) -> dict[str, Measured]:
        """Return bytes a second over the interfaces that were there throughout."""
        if before.namespace != after.namespace:
            return dict.fromkeys(self.metrics, _other_namespace())
        common = before.interfaces.keys() & after.interfaces.keys()
        rates: dict[str, Measured] = {}
        for column, metric in enumerate(self.metrics):
            total = 0
            for name in sorted(common):
                added = growth(before.interfaces[name][column], after.interfaces[name][column])
                if isinstance(added, NoData):
                    rates[metric] = NoData(f"{name}: {added.reason}")
                    break
                total += added
            else:
                rates[metric] = per_second(0, total, interval_s)
        return rates


def _other_namespace() -> NoData:
    return NoData("the group's first process is in another network namespace than before")
