"""The rules of the shortest expected delay: there, complete, or worth adding."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dial.adapter import Finding
from dial_haproxy.cfg.findings import note, ok, warning
from dial_haproxy.cfg.sections import Config, Section
from dial_haproxy.cfg.servers import backups_at_once, servers
from dial_haproxy.config import CHOSEN, Rules, expected_delay, is_rules_variable

MOST_SERVERS = 16
"""Each server is eight rules for each request: with 3, 10 and 32 they took HAProxy 2.6 8, 13 and
36 us of CPU time more for a request, which took it 18 to 22 without (medians of five)."""

SOONER_STILL = (
    "with rules for the shortest expected delay before 'balance' requests are served sooner still: "
    "leastconn takes an idle server however slow it is, and with them weights say how slow"
)
"""Measured in decision 43."""

_OURS = re.compile(r"\bproc\.dial\.|\btxn\.dial_(least|usable|weight|queue|delay|server)\b")


def has_rules(section: Section) -> bool:
    """Whether the rules of :func:`dial_haproxy.config.expected_delay` choose before ``balance``."""
    return any(line.statement.startswith(CHOSEN) for line in section.own("use-server"))


def check_rules(config: Config, section: Section) -> Iterator[Finding]:
    """Whether the rules are those for the servers that there are."""
    active = [server for server in servers(section) if not server.backup]
    names = [name for server in active for name in server.names]
    backups = backups_at_once(section)
    limited = [name for server in active if server.has_maxconn for name in server.names]
    wanted = expected_delay(section.name, names, limited=limited, backups_at_once=backups)
    present = [line for line in section.lines if _OURS.search(line.statement)]
    if not has_rules(section):
        # What a template makes need not be there; a rule for a server that is not is refused.
        lasting = all(section.certain(s.line) and not s.is_template for s in active)
        # HAProxy follows them only while more servers are up than it may count of backup ones.
        if lasting and max(1, backups) < len(names) <= MOST_SERVERS:
            yield note(section.header, f"{section}: {SOONER_STILL}", fix=_lines(section, wanted))
        return
    in_global = [
        line
        for line in config.in_global("set-var")
        if is_rules_variable(section.name, "".join(line.texts[1:2]))
    ]
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
    edits = [line.removed() for line in (*in_global, *present)]
    edits.append(present[-1].followed_by(*section.indented(*wanted.in_backend)))
    edits += [there.starts_with(*wanted.in_global) for there in config.of_kind("global")[:1]]
    yield warning(present[-1], what, *edits)


def _lines(section: Section, rules: Rules) -> str:
    """What to add, in words and lines."""
    in_global, in_backend = (
        "\n".join(f"    {statement}" for statement in statements)
        for statements in (rules.in_global, rules.in_backend)
    )
    return f"in 'global':\n{in_global}\nin '{section}':\n{in_backend}"
