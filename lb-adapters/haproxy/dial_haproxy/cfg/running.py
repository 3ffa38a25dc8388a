"""Whether what runs is what the files say.

The trap: haproxy.cfg was edited, and HAProxy was not reloaded.  All looks right in the file,
and the next reload, weeks later, changes servers, weights or algorithm under DIAL's hands.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dial.adapter import Finding, Severity
from dial_haproxy import state
from dial_haproxy.cfg.addresses import same
from dial_haproxy.cfg.findings import error, note, ok, warning
from dial_haproxy.cfg.process import level, sockets
from dial_haproxy.cfg.sections import Config, Section
from dial_haproxy.cfg.servers import Server, has_rules, servers
from dial_haproxy.cfg.service import DEFAULT_ALGORITHM, algorithm_line
from dial_haproxy.options import Address

_DEFAULT_ALGORITHMS = (DEFAULT_ALGORITHM, "random")


@dataclass(frozen=True, slots=True)
class Running:
    """What HAProxy says of itself."""

    servers: Mapping[str, state.Server]
    addresses: Mapping[str, tuple[str, str]]
    """Address and port by server, as ``show servers state`` prints them."""
    algorithm: str | None
    """As ``show stat`` prints it; ``None`` where it does not."""
    level: str
    epoch: str
    by_delay: bool
    """Whether it has the rules of :func:`dial_haproxy.config.expected_delay`."""


def addresses(text: str) -> dict[str, tuple[str, str]]:
    """Addresses and ports in ``show servers state``, by server."""
    lines = text.splitlines()[1:]
    header = lines[0].removeprefix("# ").split(" ") if lines else []
    rows = (dict(zip(header, line.split(" "), strict=False)) for line in lines[1:])
    return {
        row["srv_name"]: (row["srv_addr"], row["srv_port"])
        for row in rows
        if row.keys() >= {"srv_name", "srv_addr", "srv_port"}
    }


def compare(config: Config, service: str, socket: Address, running: Running) -> list[Finding]:
    """One finding for each difference, or one that says there is none."""
    sections = [s for s in config.of_kind("backend", "listen") if s.name == service]
    if not sections:
        return []  # said already
    section = sections[0]
    findings = [
        *_servers(section, running),
        *_algorithm(section, running),
        *_rules(section, running),
        *_level(config, socket, running),
    ]
    if not findings:
        findings = [
            *_older(config, running),
            ok(section.header, f"{section}: runs as the file says (servers, weights, algorithm)"),
        ]
    reload = f"haproxy -c {' '.join(f'-f {file.path}' for file in config.files)}, and reload"
    return [
        Finding(f.severity, f.what, f.fix or reload, f.at)
        if f.severity in (Severity.ERROR, Severity.WARNING)
        else f
        for f in findings
    ]


def _servers(section: Section, running: Running) -> Iterator[Finding]:
    written = servers(section)
    if not all(section.holds(s.line) and not s.line.words[1].variables for s in written):
        yield note(
            section.header,
            f"{section}: its servers depend on conditions or environment variables, and are not "
            "compared with those that run",
        )
        return
    expected = {name: server for server in written for name in server.names}
    missing = [name for name in expected if name not in running.servers]
    extra = [name for name in running.servers if name not in expected]
    if missing:
        yield error(
            section.header, f"{section}: the file has {_list(missing)}, HAProxy runs without"
        )
    if extra:
        yield error(section.header, f"{section}: HAProxy runs {_list(extra)}, the file is without")
    for name, server in expected.items():
        if name in running.servers:
            yield from _server(section, server, name, running)


def _server(section: Section, server: Server, name: str, running: Running) -> Iterator[Finding]:
    runs = running.servers[name].configured_weight
    if server.weight is not None and server.weight != runs:
        yield error(
            server.line,
            f"{section}: server {name} has weight {server.weight}, HAProxy runs it with {runs}",
        )
    there = running.addresses.get(name)
    here = _literal(server.address)
    if there is not None and here is not None and here != _literal(":".join(there)):
        yield warning(
            server.line,
            f"{section}: server {name} is at {server.address}, HAProxy sends to {':'.join(there)}",
        )


def _literal(text: str) -> tuple[str, str] | None:
    """Address and port; ``None`` where the address is a name, which may change by itself."""
    host, _, port = text.rpartition(":")
    with suppress(ValueError):
        return str(ipaddress.ip_address(host.strip("[]"))), port
    return None


def _algorithm(section: Section, running: Running) -> Iterator[Finding]:
    if running.algorithm is None:
        return
    runs = state.algorithm_name(running.algorithm)
    line = algorithm_line(section)
    if line is None:
        if runs not in _DEFAULT_ALGORITHMS:
            what = f"{section}: no balance line, HAProxy runs balance {runs}"
            yield error(section.header, what)
    elif section.certain(line) and line.texts[1].partition("(")[0] != runs:
        yield error(line, f"{section}: {line.statement}, HAProxy runs balance {runs}")


def _rules(section: Section, running: Running) -> Iterator[Finding]:
    if has_rules(section) != running.by_delay:
        there, here = ("with", "without") if running.by_delay else ("without", "with")
        yield error(
            section.header,
            f"{section}: {here} the rules for the shortest expected delay, HAProxy runs {there}",
        )


def _level(config: Config, socket: Address, running: Running) -> Iterator[Finding]:
    for address, line in sockets(config):
        if same(address, socket) and not line.doubt and level(line) != running.level:
            yield error(
                line, f"stats socket at level {level(line)}, HAProxy runs it at {running.level}"
            )


def _older(config: Config, running: Running) -> Iterator[Finding]:
    """Whether a file is newer than the process; its start is known to the second."""
    with suppress(ValueError, OSError):
        started_s = int(running.epoch.rpartition("@")[2])
        changed = {Path(file.path).stat().st_mtime: file.path for file in config.files}
        latest_s = max(changed)
        if latest_s >= started_s + 1:
            when = datetime.fromtimestamp(latest_s, UTC).isoformat(" ", "seconds")
            what = f"{changed[latest_s]} was changed at {when}, after HAProxy started"
            yield Finding(Severity.WARNING, what, at=changed[latest_s])


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"server{'' if len(names) == 1 else 's'} {shown}{' ...' if len(names) > 5 else ''}"
