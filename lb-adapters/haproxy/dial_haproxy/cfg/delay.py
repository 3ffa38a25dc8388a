"""The rules of the shortest expected delay: there, complete, or worth adding."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dial.adapter import Finding
from dial_haproxy import state
from dial_haproxy.cfg.findings import note, ok, warning
from dial_haproxy.cfg.lines import Line
from dial_haproxy.cfg.sections import Config, Section
from dial_haproxy.cfg.servers import Server, backups_at_once, has_rules, servers, sticky
from dial_haproxy.cfg.service import (
    DEFAULT_ALGORITHM,
    algorithm_line,
    algorithm_once_mended,
    is_http,
    mode,
)
from dial_haproxy.config import Rules, expected_delay, is_rules_variable

MOST_SERVERS = 16
"""Each server is eight rules for each request while weights differ: with 3, 10 and 32 they took
HAProxy 2.6 8, 13 and 36 us of CPU time more for a request, which took it 18 to 22 without (medians
of five)."""

SOONER_STILL = (
    "with rules for the shortest expected delay before 'balance' requests are served sooner still: "
    "leastconn takes an idle server however slow it is, and with them weights say how slow"
)
"""Measured in decision 43."""

SLOWSTART_STEPS = 16
"""HAProxy's BE_WEIGHT_SCALE: a slow start has so many for ``balance``, whatever the weight."""

FINER = "'weight 100' where all weights are alike, else all of them times the same number"

REDISPATCH = "option redispatch 1"

ELSEWHERE_AT_ONCE = (
    "the rules for the shortest expected delay pin a request to its server: one that it refuses is "
    "tried there again, up to a second apart, in all retries but those that this line names"
)
"""HAProxy takes what ``use-server`` chose for persistence.  What ``balance`` chose goes elsewhere
at once.  With one of three servers not there, and three retries, requests took 2 s instead of none,
and none with a 1 (HAProxy 2.6 and 3.4, roundrobin and leastconn)."""

_OURS = re.compile(r"\bproc\.dial\.|\btxn\.dial_(least|usable|uneven|weight|queue|delay|server)\b")
_OF_RULES = ("http-request", "http-after-response", "use-server")
"""What rules are made of: a line of another kind that names their variables is somebody else's."""


def check_rules(config: Config, section: Section) -> Iterator[Finding]:
    """Whether the rules are those for the servers that there are, and go with the other lines."""
    active = [server for server in servers(section) if not server.backup]
    names = [name for server in active for name in server.names]
    backups = backups_at_once(section)
    limited = [name for server in active if server.has_maxconn for name in server.names]
    wanted = expected_delay(
        section.name,
        names,
        limited=limited,
        backups_at_once=backups,
        balance=algorithm_once_mended(section),
    )
    if not has_rules(section):
        # HAProxy follows them only while more servers are up than it may count of backup ones.
        if max(1, backups) < len(names) <= MOST_SERVERS and _are_free_to_choose(section, active):
            yield from _recommended(section, active, wanted)
        return
    present = [line for line in section.own(*_OF_RULES) if _OURS.search(line.statement)]
    in_global = [
        line
        for line in config.in_global("set-var")
        if is_rules_variable(section.name, "".join(line.texts[1:2]))
    ]
    removed = [line.removed() for line in (*in_global, *present)]
    for line in sticky(section)[-1:]:
        yield warning(
            line,
            f"{section}: '{line.statement}': rules for the shortest expected delay choose before "
            "it, and no client stays with its server",
            *removed,
            fix=f"or leave out '{line.statement}'",
        )
        return
    for server in _slowly_started(active):
        yield warning(server.line, f"{section}: {_from_1_to(server)}", fix=FINER)
    for line in _redispatched_late(section):
        edit = section.instead(line, REDISPATCH)
        yield warning(line, f"{section}: '{line.statement}': {ELSEWHERE_AT_ONCE}", edit)
    if (
        tuple(line.statement for line in present) == wanted.in_backend
        and tuple(line.statement for line in in_global) == wanted.in_global
    ):
        yield ok(present[-1], f"{section}: rules for the shortest expected delay")
        return
    left_out = [n for n in names if not any(f"/{n})" in line.statement for line in present)]
    what = f"{section}: the rules for the shortest expected delay are not those for its servers"
    if left_out:
        what += f": they leave out {', '.join(left_out[:5])}, and 'balance' chooses meanwhile"
    edits = [*removed, present[-1].followed_by(*section.indented(*wanted.in_backend))]
    edits += [there.starts_with(*wanted.in_global) for there in config.of_kind("global")[:1]]
    yield warning(present[-1], what, *edits)


def _are_free_to_choose(section: Section, active: list[Server]) -> bool:
    """Whether a request may go to any server, all of which are there for certain.

    ``use-server`` comes before cookies, stick tables and the keys of ``balance``.
    """
    balance = algorithm_line(section)
    said = [line for line in (balance, mode(section)) if line is not None]
    algorithm = balance.texts[1].partition("(")[0] if balance is not None else DEFAULT_ALGORITHM
    return (
        all(section.certain(line) for line in said)
        and is_http(section)
        and state.takes_weights(algorithm)
        and not sticky(section)
        # What a template makes need not be there; a rule for a server that is not is refused.
        and all(section.certain(s.line) and not s.is_template for s in active)
    )


def _recommended(section: Section, active: list[Server], rules: Rules) -> Iterator[Finding]:
    yield note(section.header, f"{section}: {SOONER_STILL}", fix=_lines(section, rules))
    for server in _slowly_started(active):
        yield note(server.line, f"{section}: {_from_1_to(server)}", fix=FINER)
    for line in _redispatched_late(section):
        yield note(line, f"{section}: '{line.statement}': {ELSEWHERE_AT_ONCE}", fix=REDISPATCH)


def _redispatched_late(section: Section) -> list[Line]:
    """The ``option redispatch`` in force, if it is for other retries than each of them.

    With a 0 it is for none, as where it is not said: then the rules make no difference.
    """
    said = [line for line in section.effective("option") if line.texts[1:2] == ("redispatch",)]
    return [
        line for line in said[-1:] if not line.negated and line.texts[2:3] not in (("0",), ("1",))
    ]


def _slowly_started(active: list[Server]) -> list[Server]:
    """The first of the servers whose slow start has fewer steps for the rules, if there is one."""
    return [
        server
        for server in active
        if server.has_slowstart and server.weight and server.weight < SLOWSTART_STEPS
    ][:1]


def _from_1_to(server: Server) -> str:
    return (
        f"for the rules for the shortest expected delay slowstart takes server {server.name} from "
        f"weight 1 to {server.weight}, in whole numbers"
    )


def _lines(section: Section, rules: Rules) -> str:
    """What to add, in words and lines."""
    in_global, in_backend = (
        "\n".join(f"    {statement}" for statement in statements)
        for statements in (rules.in_global, rules.in_backend)
    )
    return f"in 'global':\n{in_global}\nin '{section}':\n{in_backend}"
