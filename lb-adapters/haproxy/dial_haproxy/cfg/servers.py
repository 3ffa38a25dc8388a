"""The servers of a backend as they are configured, and who else sets their weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dial.adapter import Edit, Finding
from dial_haproxy.cfg.findings import in_doubt, note, ok, warning
from dial_haproxy.cfg.lines import Line
from dial_haproxy.cfg.sections import Section
from dial_haproxy.config import CHOSEN

MAX_TEMPLATE = 4096
"""Servers of one template that are looked at; HAProxy's roundrobin holds 4095."""

_SHOWN = 5
"""Names in one message; the rest is counted."""

_AGENT_VALUES = ("agent-port", "agent-addr", "agent-inter", "agent-send")
_FIRST_PARAMETER = {"server": 3, "server-template": 4, "default-server": 1}


@dataclass(frozen=True, slots=True)
class Server:
    """One ``server`` line, or one ``server-template`` line for many."""

    line: Line
    name: str
    address: str
    weight: int | None
    """``None`` where the file does not say it as a number."""
    backup: bool
    has_maxconn: bool = False
    """Whether it takes a limited number of requests at a time; also where that is not known."""
    has_slowstart: bool = False
    first: int = 1
    count: int = 1
    """A template makes ``name`` + ``first``, and so on."""

    @property
    def is_template(self) -> bool:
        """Whether its names are made from a prefix and numbers."""
        return self.line.texts[0] == "server-template"

    @property
    def names(self) -> list[str]:
        """Names that HAProxy gives; of a template as many as it can hold."""
        if not self.is_template:
            return [self.name]
        return [f"{self.name}{n}" for n in range(self.first, self.first + self.count)]


def servers(section: Section) -> list[Server]:
    """Servers of a backend, as configured."""
    found: list[Server] = []
    inherited = {"weight": "1", "maxconn": "0", "slowstart": "0"}
    for line in section.effective("server", "server-template", "default-server"):
        keyword = line.texts[0]
        skipped = _FIRST_PARAMETER[keyword]
        written = {name: line.after_word(name, first=skipped) for name in inherited}
        values = inherited | {name: text for name, text in written.items() if text is not None}
        if keyword == "default-server":
            inherited = values
        elif section.has(line) and len(line.texts) >= skipped and not line.negated:
            first, count = 1, 1
            if keyword == "server-template":
                first, count = _numbers(line.texts[2])
            found.append(
                Server(
                    line=line,
                    name=line.texts[1],
                    address=line.texts[skipped - 1],
                    weight=_weight(values["weight"]),
                    backup="backup" in line.texts[skipped:],
                    has_maxconn=not _is_zero(values["maxconn"]),
                    has_slowstart=not _is_zero(values["slowstart"]),
                    first=first,
                    count=count,
                )
            )
    return found


def _weight(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,3}", text, re.ASCII) else None


def _is_zero(text: str) -> bool:
    """Whether a number, or a time such as ``0s``, is 0."""
    return re.fullmatch(r"0+[a-z]*", text) is not None


def _numbers(text: str) -> tuple[int, int]:
    """First number and how many: ``5`` is 1 to 5, ``3-5`` is 3 to 5."""
    found = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})", text, re.ASCII)
    if found is None:
        return 1, 0
    first, last = int(found[1] or 1), int(found[2])
    return first, min(max(0, last - first + 1), MAX_TEMPLATE)


def check_servers(section: Section) -> Iterator[Finding]:
    """Enough of them, and nobody else who sets their weights or keeps clients in place."""
    found = servers(section)
    active = [s for s in found if not s.backup]
    for doubtful in [s for s in found if not section.holds(s.line)][:1]:
        yield in_doubt(doubtful.line, f"{section}: server {doubtful.name}", doubtful.line.doubt)
    count = sum(s.count for s in active)
    weights = {s.weight for s in active}
    if count < 2:
        yield warning(
            section.header,
            f"{section}: {count} server{'' if count == 1 else 's'} (backup ones left out); load "
            "can move only between two or more",
        )
    else:
        what = f"{section}: {count} servers"
        if any(s.is_template for s in active):
            what += ", some of a server-template: those that are not there yet do not count"
        if None in weights:
            what += "; their weights are not all written as numbers"
        elif len(weights) > 1:
            what += "; their weights differ, which is fine: DIAL's shares begin from them"
        yield ok(section.header, what)
    for server in active:
        if server.weight == 0:
            yield note(
                server.line,
                f"{section}: server {server.name} has weight 0: it gets no request, and DIAL "
                "returns to that when it lets go",
            )
    yield from _agents(section)
    yield from _sticky(section)


def _agents(section: Section) -> Iterator[Finding]:
    """An agent that answers with a percentage is a second writer of weights."""
    inherited = False
    found: list[tuple[Line, Edit]] = []
    for line in section.effective("default-server", "server", "server-template"):
        texts = line.texts
        parameters = range(_FIRST_PARAMETER[texts[0]], len(texts))
        present = inherited
        for at in parameters:
            if texts[at] in ("agent-check", "no-agent-check"):
                present = texts[at] == "agent-check"
        if texts[0] == "default-server":
            inherited = present
        elif present and section.has(line):
            left_out = [at for at in parameters if texts[at] == "agent-check"]
            left_out += [at + i for at in parameters if texts[at] in _AGENT_VALUES for i in (0, 1)]
            added = ("no-agent-check",) if inherited else ()
            found.append((line, line.with_words(without=left_out, added=added)))
    if found:
        names = [line.texts[1] for line, _ in found if len(line.texts) > 1]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield warning(
            found[0][0],
            f"{section}: agent-check of {', '.join(names[:_SHOWN])}{more}: an agent that answers "
            "with a percentage sets the weight as well, and DIAL's does not last",
            *(edit for _, edit in found),
            fix="leave it where agents answer up, down, drain or maint only",
        )


def has_rules(section: Section) -> bool:
    """Whether the rules of :func:`dial_haproxy.config.expected_delay` choose before ``balance``."""
    return any(line.statement.startswith(CHOSEN) for line in section.own("use-server"))


def sticky(section: Section) -> list[Line]:
    """The lines by which clients stay with their server, unless ``use-server`` chooses."""
    return [
        line
        for line in section.effective("cookie", "stick")
        if not line.negated and line.texts[1:2] not in (("store-request",), ("store-response",))
    ]


def backups_at_once(section: Section) -> int:
    """How many backup servers HAProxy uses together, at most, where no other server can be."""
    count = sum(server.count for server in servers(section) if server.backup)
    options = [line for line in section.effective("option") if not line.negated]
    together = any(line.texts[1:2] == ("allbackups",) for line in options)
    return count if together else min(count, 1)


def _sticky(section: Section) -> Iterator[Finding]:
    for line in [] if has_rules(section) else sticky(section)[-1:]:
        yield warning(
            line,
            f"{section}: '{line.statement}': clients stay with their server, so weights move new "
            "clients only, and slowly",
        )
    for line in section.own("use-server"):
        if line.statement.startswith(CHOSEN):
            continue  # it chooses by them
        yield note(line, f"{section}: '{line.statement}' goes past the weights")
