"""All that DIAL needs of an HAProxy configuration, looked at in its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from dial.adapter import Finding, Severity
from dial_haproxy.cfg.delay import check_rules
from dial_haproxy.cfg.findings import note
from dial_haproxy.cfg.lines import read_files
from dial_haproxy.cfg.log import check_frontend, check_ring, check_silenced
from dial_haproxy.cfg.log_targets import Wanted, choose
from dial_haproxy.cfg.process import (
    check_processes,
    check_socket,
    check_state_file,
    choose_socket,
)
from dial_haproxy.cfg.sections import Config, Section, parse
from dial_haproxy.cfg.servers import check_servers, servers
from dial_haproxy.cfg.service import (
    check_algorithm,
    check_mode,
    check_new_connections,
    frontends,
    is_http,
    services,
)
from dial_haproxy.options import Address, Options


def check_files(paths: Sequence[Path], service: str = "") -> tuple[Finding, ...] | None:
    """Look at configuration files without knowing DIAL's (see :mod:`dial.adapter`).

    Parameters
    ----------
    paths
        In the order in which HAProxy is given them; a directory stands for its ``*.cfg``.
    service
        The backend that DIAL is to look after; all that it could, where empty.

    Returns
    -------
    ``None`` if this is no HAProxy configuration.

    Raises
    ------
    SettingError
        If a file cannot be read.
    """
    config = parse(read_files(paths))
    return tuple(check(config, service)) if config.is_haproxys else None


def check(config: Config, service: str = "", options: Options | None = None) -> list[Finding]:
    """Findings in the order: what cannot be read, global, each service, its frontends, the ring.

    Parameters
    ----------
    config
        The files taken apart.
    service
        Name of a backend; all that DIAL could look after, where empty.
    options
        DIAL's own, where they are known; else what asks for the fewest changes.
    """
    findings = [
        Finding(Severity.ERROR, f"HAProxy cannot read this line: {wrong.why}", at=wrong.at)
        for wrong in config.unreadable
    ]
    findings += [
        Finding(
            Severity.ERROR,
            "the last line has no line break: HAProxy takes the file for one cut short",
            "end it with one",
            f"{file.path}:{len(file.lines)}",
            (file.appended(),),
        )
        for file in config.files
        if file.is_cut_off
    ]
    if not config.sections:
        return [*findings, Finding(Severity.ERROR, "there is no section in it")]
    chosen, about_choice = _choose(config, service)
    findings += about_choice
    socket = options.socket if options else choose_socket(config)
    # One way for all, for frontends may lead to several.
    in_front = [f for section in chosen for f in frontends(config, section)[0]]
    log = (
        Wanted(options.log, options.format, options.sampled)
        if options
        else choose(config, in_front)
    )
    findings += check_socket(config, socket)
    findings += check_processes(config)
    expected = options is not None and options.new_connections
    for section in chosen:
        findings += _service(config, section, log, expected)
    if chosen:
        findings += check_state_file(config, chosen, socket)
        # Last, for it goes to the end of the file, behind what is put in after a last line.
        findings += check_ring(config, log, in_front)
        if options is None:
            findings.append(_settings(config, [c.name for c in chosen], socket, log))
    return list(dict.fromkeys(findings))


def _choose(config: Config, service: str) -> tuple[list[Section], list[Finding]]:
    """The backends to look at."""
    there = services(config)
    names = ", ".join(section.name for section in there) or "none with servers"
    if service:
        found = [s for s in config.of_kind("backend", "listen") if s.name == service]
        if found:
            return found[:1], []
        where = config.sections[0].header.at
        what = f"no backend {service!r}; there are: {names}"
        return [], [Finding(Severity.ERROR, what, "another service name", where)]
    if not there:
        what = "no backend with servers"
        fix = "write the frontend and backend that are to be balanced, and check again"
        return [], [Finding(Severity.ERROR, what, fix, config.sections[-1].header.at)]
    several = [s for s in there if sum(server.count for server in servers(s)) > 1] or there
    chosen = [s for s in several if is_http(s)] or several
    if len(chosen) == 1:
        return chosen, []
    return chosen, [
        note(
            chosen[0].header,
            f"{len(chosen)} backends could be DIAL's: {', '.join(s.name for s in chosen)}",
            fix="a controller looks after one, and reads a log of its own: name it with --service",
        )
    ]


def _service(config: Config, section: Section, log: Wanted, expected: bool) -> Iterator[Finding]:
    sure, unsure = frontends(config, section)
    yield from check_mode(section)
    yield from check_algorithm(section)
    yield from check_servers(section)
    yield from check_rules(config, section)
    yield from check_new_connections(section, sure, expected)
    for frontend in unsure:
        yield Finding(
            Severity.WARNING,
            f"{frontend} picks its backend by an expression: whether that can be {section.name} "
            "cannot be judged; if it can, its requests are to be logged as those of the others",
            at=frontend.header.at,
        )
    if not sure and not unsure:
        yield Finding(
            Severity.ERROR,
            f"no frontend leads to {section}",
            f"in a frontend: default_backend {section.name}",
            section.header.at,
        )
    for frontend in sure:
        if frontend is not section:
            yield from check_mode(frontend)
        yield from check_frontend(config, frontend, log)
    if section not in sure:
        yield from check_silenced(section)


def _settings(config: Config, names: list[str], socket: Address, log: Wanted) -> Finding:
    """What to tell DIAL, so that it finds what this configuration has.

    TOML's strings are JSON's.
    """
    service, *others = map(json.dumps, names)
    lines = [
        f"service = {service}" + (f"  # or {', '.join(others)}" if others else ""),
        "[adapter]",
        'name = "haproxy"',
        "[adapter.options]",
        f"socket = {json.dumps(socket.path or str(socket))}",
        f"log = {json.dumps(str(log.address))}"
        + ("  # where the syslog daemon writes it" if log.address.scheme == "file" else ""),
    ]
    if log.format != ("dial" if log.address.scheme == "tcp" else "httplog"):
        lines.append(f'log_format = "{log.format}"')
    files = [str(Path(file.path).absolute()) for file in config.files]
    lines.append(f"config_file = {json.dumps(files if len(files) > 1 else files[0])}")
    what = "DIAL's configuration that goes with it"
    return Finding(Severity.NOTE, what, settings="\n".join(lines))
