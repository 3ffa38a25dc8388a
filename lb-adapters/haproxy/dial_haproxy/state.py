"""From the text of ``show info``, ``show servers state`` and ``show stat`` to one reading.

Columns are found by their header, never by position: HAProxy adds some with each version.

Which column says what (management guide, 9.3; looked at on 2.6):

- Weight in force and configured weight are ``srv_uweight`` and ``srv_iweight`` of ``show
  servers state``.  ``weight`` of ``show stat`` is not the weight that was set: it is what
  is left of it during a slow start.
- Usable follows ``srv_op_state`` and ``srv_admin_state``.  ``status`` of ``show stat``
  says DRAIN both for an administrator's drain and for a weight of 0, which is ours.
- ``stot`` counts every attempt: three requests to a dead server, retried three times each,
  are 12.  Without ``wretr`` they are 3 again.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dial.errors import BalancerRefused, UnknownService
from dial.types import BalancerState, ServerState, WeightKind, WeightMeaning
from dial_haproxy.config import NAMES_APART, rules_variable
from dial_haproxy.options import NAME

MIN_VERSION = (2, 4)
"""First with a ring that sends raw lines over TCP and shows its start time."""

MAX_WEIGHT = 256
"""HAProxy's SRV_UWGHT_MAX."""

MAX_COUNTER = 2**64 - 1
"""HAProxy's counters are unsigned, of 64 bits at most."""

_PROBE = (
    "in the backend: 'use-server NAME if { rand(1000) lt 5 }' sends 0.5 % of the requests to a "
    "server of weight 0"
)

# HAProxy up to 2.6 at least prints "unknown" for random, and for nothing else.
_KINDS = {
    "roundrobin": WeightKind.REQUESTS,
    "leastconn": WeightKind.CONCURRENCY,
    "random": WeightKind.DRAW,
    "unknown": WeightKind.DRAW,
}

_WHY_NOT = {
    "static-rr": "its weights cannot be changed while HAProxy runs",
    "first": "it fills servers in their order and ignores weights",
}
_WHY_NOT_HASH = (
    "it sends a key always to the same server, so a weight moves keys (and their caches and "
    "sessions) rather than a share of the requests, or cannot be changed at all"
)

_OP_STOPPED, _OP_STARTING, _OP_RUNNING = 0, 1, 2
_MAINTENANCE = 0x01 | 0x02 | 0x20
"""By an admin, by the server that it tracks, by its name's resolution.  Two other bits of
srv_admin_state say where it began (0x04: ``disabled`` in haproxy.cfg, and maybe enabled since) and
that its name was changed (0x40): such a server serves."""
_DRAIN = 0x08 | 0x10
_CHECK_CONFIGURED = _AGENT_CONFIGURED = 2


@dataclass(frozen=True, slots=True)
class Info:
    """The process that answers."""

    version: str
    epoch: str
    """Process id and start time: a container's process id is the same after a restart."""


@dataclass(frozen=True, slots=True)
class Server:
    """One row of ``show servers state``."""

    backend_id: str
    weight: int
    configured_weight: int
    usable: bool
    up_to_rules: bool
    """Whether ``srv_is_up`` is true, by which rules go: also of one that drains, or is down without
    a check of its own (it tracks another, or an agent speaks for it)."""
    has_agent_check: bool


@dataclass(frozen=True, slots=True)
class Stats:
    """``show stat`` of one backend."""

    algorithm: str
    servers: Mapping[str, Mapping[str, int]]
    """Counters by server name; a column HAProxy leaves empty is 0."""

    def is_backup(self, name: str) -> bool:
        """Whether a server is for when nobody else is left."""
        return bool(self.servers.get(name, {}).get("bck", 0))


def parse_info(text: str) -> Info:
    """Read ``show info``.

    Raises
    ------
    BalancerRefused
        If it is no HAProxy's, or one that is too old.
    """
    found = dict(re.findall(r"^([\w ]+): *(.*)$", text, re.MULTILINE))
    version = found.get("Version", "")
    # All of it, for it is shown: 2.6.12-1+deb12u4, and no escape sequence behind it.
    numbers = re.fullmatch(r"(\d{1,4})\.(\d{1,4})[ -~]*", version)
    if numbers is None or "Pid" not in found:
        raise BalancerRefused(f"'show info' answered {text[:80]!r}: this is no HAProxy")
    if (int(numbers[1]), int(numbers[2])) < MIN_VERSION:
        raise BalancerRefused(
            f"HAProxy {version} is too old: {MIN_VERSION[0]}.{MIN_VERSION[1]} or newer is needed"
        )
    return Info(
        version=version,
        epoch=f"{found['Pid']}@{found.get('Start_time_sec', '?')}",
    )


def parse_servers(text: str, service: str) -> dict[str, Server]:
    """Read ``show servers state SERVICE``: servers by name, in the order of haproxy.cfg.

    Raises
    ------
    UnknownService
        If HAProxy has no such backend.
    BalancerRefused
        If it answered anything else.
    """
    if "find backend" in text:
        raise UnknownService(f"service = {service!r}: HAProxy has no such backend")
    lines = text.splitlines()
    if len(lines) < 2 or not lines[1].startswith("# "):
        raise BalancerRefused(f"'show servers state {service}' answered {text[:80]!r}")
    header = lines[1][2:].split(" ")
    servers: dict[str, Server] = {}
    try:
        for line in lines[2:]:
            row = dict(zip(header, line.split(" "), strict=False))
            if row["be_name"] != service:
                continue
            op_state, admin_state = int(row["srv_op_state"]), int(row["srv_admin_state"])
            checked = bool(int(row["srv_check_state"]) & _CHECK_CONFIGURED)
            in_service = not admin_state & _MAINTENANCE
            servers[_name(row["srv_name"])] = Server(
                backend_id=row["be_id"],
                weight=_number(row["srv_uweight"], MAX_WEIGHT),
                configured_weight=_number(row["srv_iweight"], MAX_WEIGHT),
                usable=op_state in (_OP_STARTING, _OP_RUNNING)
                and in_service
                and not admin_state & _DRAIN,
                up_to_rules=in_service and (op_state != _OP_STOPPED or not checked),
                has_agent_check=bool(int(row["srv_agent_state"]) & _AGENT_CONFIGURED),
            )
    except (KeyError, ValueError) as error:
        shown = repr(line[:200])
        raise BalancerRefused(f"'show servers state {service}': cannot read {shown}") from error
    return servers


def parse_stats(text: str, service: str) -> Stats | None:
    """Read ``show stat ... 6 -1``; ``None`` if the service's own row is not in it.

    Raises
    ------
    BalancerRefused
        If it is no such table, or a counter in it is none.
    """
    algorithm: str | None = None
    servers: dict[str, dict[str, int]] = {}
    for row in _table(text):
        if row.get("pxname") != service:
            continue
        if row.get("svname") == "BACKEND":
            algorithm = row.get("algo") or "unknown"
        else:
            servers[row.get("svname", "")] = _counters(row)
    return None if algorithm is None else Stats(algorithm, servers)


def backend_names(text: str) -> tuple[str, ...]:
    """Names of all backends in ``show stat -1 2 -1``."""
    rows = (row for row in _table(text) if row.get("svname") == "BACKEND")
    return tuple(sorted(row["pxname"] for row in rows if "pxname" in row))


def _counters(row: Mapping[str, str]) -> dict[str, int]:
    """The columns of one row that are numbers."""
    try:
        return {k: _number(v, MAX_COUNTER) for k, v in row.items() if v.isdecimal()}
    except ValueError as error:
        name = row.get("svname", "")
        raise BalancerRefused(f"'show stat': server {name[:80]!r}: {error}") from error


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no name of a server")
    return text


def _number(text: str, most: int) -> int:
    number = int(text)
    if not 0 <= number <= most:
        raise ValueError(f"{text[:80]!r}: allowed are 0 to {most}")
    return number


def _table(text: str) -> list[dict[str, str]]:
    """Rows of a CSV answer by column; a row too short lacks its last columns."""
    try:
        header, *rows = csv.reader(text.removeprefix("# ").splitlines())
    except (csv.Error, ValueError) as error:
        raise BalancerRefused(f"'show stat' answered {text[:80]!r}") from error
    return [dict(zip(header, row, strict=False)) for row in rows]


def parse_rules(text: str, service: str) -> frozenset[str]:
    """Read ``get var``: the servers that have rules (:func:`dial_haproxy.config.expected_delay`).

    HAProxy before 2.4 does not know the command, and has no rules.
    """
    begin, _, names = text.rstrip().partition("=<")
    if begin != f"{rules_variable(service)}: type=str value":
        return frozenset()
    return frozenset(names.removesuffix(">").split(NAMES_APART))


def without_rules(
    servers: Mapping[str, Server], stats: Stats, with_rules: Collection[str]
) -> list[str]:
    """The servers for which ``balance`` chooses instead of the rules, for all requests.

    HAProxy counts them as usable and the rules do not.  One of weight 0 is named too: HAProxy does
    not count it, but DIAL may have set that weight for what it means while the server is there.
    Without any rules there is nothing to choose instead of, and none is named.
    """
    if not with_rules:
        return []
    return [
        name
        for name, server in servers.items()
        if server.usable and name not in with_rules and not stats.is_backup(name)
    ]


def rules_choose(servers: Mapping[str, Server], stats: Stats, with_rules: Collection[str]) -> bool:
    """Whether the rules choose for all requests.

    There are some, no server is up without, and none is up to them that HAProxy does not use: while
    they count other servers than HAProxy does, ``balance`` chooses.
    """
    if not with_rules or without_rules(servers, stats, with_rules):
        return False
    return not any(
        name in with_rules and server.up_to_rules and server.weight and not server.usable
        for name, server in servers.items()
    )


def weight_meaning(service: str, algorithm: str, *, by_delay: bool) -> WeightMeaning:
    """What a weight means under ``balance ALGORITHM``, or under the rules before it.

    Parameters
    ----------
    service : name of the backend.
    algorithm : as ``show stat`` prints it.
    by_delay : whether :func:`dial_haproxy.config.expected_delay` is in force, which chooses first.

    Raises
    ------
    BalancerRefused
        If weights of this algorithm move no share of the load: the message says why.
    """
    kind = _KINDS.get(algorithm)
    if kind is None:
        why = _WHY_NOT.get(algorithm, _WHY_NOT_HASH)
        raise BalancerRefused(
            f"backend {service!r} uses balance {algorithm[:80]!r}: {why}; allowed are "
            "roundrobin, leastconn and random"
        )
    return WeightMeaning(
        kind=WeightKind.SERVICE_RATE if by_delay else kind,
        minimum=1,
        maximum=MAX_WEIGHT,
        zero_drains=True,
        probe=_PROBE,
    )


def takes_weights(algorithm: str) -> bool:
    """Whether weights move a share of the load under ``balance ALGORITHM``."""
    return algorithm in _KINDS


def algorithm_name(algorithm: str) -> str:
    """The algorithm as haproxy.cfg calls it."""
    return "random" if algorithm == "unknown" else algorithm


def combine(
    service: str,
    info: Info,
    servers: Mapping[str, Server],
    stats: Stats,
    *,
    with_rules: Collection[str],
) -> BalancerState:
    """One reading out of the answers.

    Parameters
    ----------
    service : name of the backend.
    info, servers, stats : what HAProxy says of itself, of its servers and their counters.
    with_rules : names of the servers that have rules.

    Raises
    ------
    BalancerRefused
        If the algorithm is one whose weights are of no use.
    """
    by_delay = rules_choose(servers, stats, with_rules)
    meaning = weight_meaning(service, stats.algorithm, by_delay=by_delay)
    # Backup servers have no requests, and count for no capacity, before all others are gone.
    others_serve = any(
        server.usable and server.weight and not stats.is_backup(name)
        for name, server in servers.items()
    )
    states = []
    for name, server in servers.items():
        count = stats.servers.get(name, {})
        states.append(
            ServerState(
                name=name,
                weight=server.weight,
                configured_weight=server.configured_weight,
                usable=server.usable and not (others_serve and stats.is_backup(name)),
                in_flight=count.get("scur", 0),
                requests_total=max(0, count.get("stot", 0) - count.get("wretr", 0)),
                errors_total=sum(count.get(c, 0) for c in ("econ", "eresp", "hrsp_5xx")),
            )
        )
    return BalancerState(info.epoch, algorithm_name(stats.algorithm), meaning, tuple(states))
