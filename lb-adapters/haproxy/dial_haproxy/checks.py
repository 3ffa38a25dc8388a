"""What runs, looked at from outside, and the line of haproxy.cfg that would mend it.

Where DIAL's options name haproxy.cfg, its findings (:mod:`dial_haproxy.cfg`) come first, and
what runs is compared with it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dial.adapter import Finding, Severity
from dial.errors import BalancerError, BalancerUnreachable, UnknownService
from dial.logs import LogStream
from dial_haproxy import state
from dial_haproxy.cfg.check import check
from dial_haproxy.cfg.lines import read_files
from dial_haproxy.cfg.running import Running, addresses, compare
from dial_haproxy.cfg.sections import Config, parse
from dial_haproxy.cfg.service import BEST, MEANINGS, SOONER
from dial_haproxy.config import FRONTEND, HTTPLOG, rules_variable, snippet, socket_line
from dial_haproxy.options import Options
from dial_haproxy.runtime import RuntimeClient

_IN_USE = (
    "a controller that runs holds it: stop it, or ask `dial status` instead; else another port"
)


async def find(
    service: str, options: Options, client: RuntimeClient, stream: LogStream
) -> list[Finding]:
    """Look at haproxy.cfg, the socket, the service and the log, in that order.

    One thing wrong does not hide the next: the log is looked at even if the socket is shut.

    Raises
    ------
    SettingError
        If the option ``config_file`` names what cannot be read.
    """
    findings: list[Finding] = []
    config: Config | None = None
    if options.config_file:
        config = parse(read_files(map(Path, options.config_file)))
        findings += check(config, service, options)
    before = None
    try:
        info_text, level, servers_text, rules_text = await client.ask(
            (
                "show info",
                "show cli level",
                f"show servers state {service}",
                f"get var {rules_variable(service)}",
            )
        )
        info = state.parse_info(info_text)
        with_rules = state.parse_rules(rules_text, service)
    except BalancerUnreachable as error:
        findings.append(_error(str(error), f"in 'global':\n{_socket(options)}"))
    except BalancerError as error:
        findings.append(_error(f"runtime socket {options.socket}: {error}", ""))
    else:
        findings.append(_ok(f"runtime socket {options.socket}: HAProxy {info.version}"))
        findings.append(_level(level, options))
        servers, about_service = _service(service, servers_text)
        findings += about_service
        before = await _stats(service, servers, client)
        if before is not None:
            by_delay = state.rules_choose(servers, before, with_rules)
            findings += _algorithm(service, before, options, by_delay=by_delay)
            if without := state.without_rules(servers, before, with_rules):
                findings.append(_without_rules(service, without))
        if config is not None and servers:
            algorithm = before.algorithm if before is not None else None
            running = Running(
                servers,
                addresses(servers_text),
                algorithm,
                level.strip(),
                info.epoch,
                by_delay=bool(with_rules),
            )
            findings += compare(config, service, options.socket, running)
    requests_before = _requests(before)
    try:
        counters = await stream.wait_for_line(options.check_wait_s)
    except BalancerError as error:
        in_use = "already in use" in str(error)
        findings.append(_error(str(error), _IN_USE if in_use else ""))
        return findings
    after = await _stats(service, {}, client) if before is not None else None
    passed = _requests(after) - requests_before
    findings.append(_log(service, options, stream, passed))
    if config is not None and findings[-1].fix:
        # The lines of haproxy.cfg are said above, where it lacks them.
        fix = f"send {service!r} a request, and check again; was HAProxy reloaded?"
        findings[-1] = replace(findings[-1], fix=fix)
    if counters.requests and stream.dropped_requests:
        findings.append(
            _warning(f"{stream.dropped_requests} logged requests were dropped unread", "")
        )
    if not options.log.is_loopback:
        findings.append(
            _warning(
                f"log {options.log} can be reached from outside; whoever reaches it can make up "
                "log lines and so move load",
                "let only HAProxy's address reach that port, or listen on 127.0.0.1",
            )
        )
    return findings


def _level(level: str, options: Options) -> Finding:
    if level.strip() == "admin":
        return _ok("runtime socket: level admin")
    return _error(
        f"runtime socket: level {level.strip() or 'unknown'}; weights need admin",
        f"in 'global', instead of the present line:\n{_socket(options)}",
    )


def _service(service: str, text: str) -> tuple[dict[str, state.Server], list[Finding]]:
    try:
        servers = state.parse_servers(text, service)
    except UnknownService as error:
        return {}, [_error(str(error), f"a section 'backend {service}', or another service name")]
    except BalancerError as error:
        return {}, [_error(str(error), "")]
    usable = [name for name, server in servers.items() if server.usable]
    findings = []
    if len(usable) < 2:
        findings.append(
            _warning(
                f"backend {service!r}: {len(usable)} of {len(servers)} servers usable; load can "
                "move only between two or more",
                "",
            )
        )
    else:
        findings.append(_ok(f"backend {service!r}: {len(usable)} of {len(servers)} servers usable"))
    with_agent = [name for name, server in servers.items() if server.has_agent_check]
    if with_agent:
        findings.append(
            _warning(
                f"agent-check may change the weights of {', '.join(with_agent)} as well",
                f"in 'backend {service}': no 'agent-check', or agents that report up and down only",
            )
        )
    return servers, findings


def _algorithm(
    service: str, stats: state.Stats, options: Options, *, by_delay: bool
) -> list[Finding]:
    try:
        meaning = state.weight_meaning(service, stats.algorithm, by_delay=by_delay)
    except BalancerError as error:
        return [
            _error(
                str(error),
                f"in 'backend {service}':\n    balance leastconn\n(or roundrobin, or random(2))",
            )
        ]
    findings = [
        _ok(
            f"backend {service!r}: balance {state.algorithm_name(stats.algorithm)}; a weight is "
            f"{MEANINGS[meaning.kind]}"
        )
    ]
    best = by_delay or state.algorithm_name(stats.algorithm) == BEST
    if not options.config_file and not best:
        findings.append(Finding(Severity.NOTE, f"backend {service!r}: {SOONER}"))
    reused = sum(row.get("reuse", 0) for row in stats.servers.values())
    if options.new_connections and reused:
        findings.append(
            _warning(
                f"option new_connections is true, but {reused} requests reused a connection: "
                "their connect times of 0 ms are no measurements",
                "in the frontend and in the backend:\n    option httpclose\nor new_connections = "
                "false",
            )
        )
    return findings


def _without_rules(service: str, names: list[str]) -> Finding:
    shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
    return _warning(
        f"backend {service!r}: no rules for the shortest expected delay name {shown}: while it is "
        "up 'balance' chooses for every request; or, where as many other servers drain, rules do, "
        "and send requests to those",
        "rules for it, which `dial check haproxy.cfg` writes; until then take other servers out "
        "with 'state maint' or weight 0, not with 'state drain'",
    )


def _log(service: str, options: Options, stream: LogStream, passed: int) -> Finding:
    counters = stream.counters
    what = f"log {options.log} (format {options.format})"
    if counters.requests:
        return _ok(f"{what}: {counters.requests} requests of {service!r} read")
    if counters.malformed > counters.unattributed:
        return _error(
            f"{what}: {counters.malformed} lines came, none of them in this format",
            f"in each frontend that leads to {service!r}:\n{_frontend_lines(options)}",
        )
    if counters.lines:
        return _warning(
            f"{what}: {counters.lines} lines came, but none of a request that reached a server of "
            f"{service!r}",
            "send it a request, and check again",
        )
    if passed > 0:
        return _error(
            f"{what}: {passed} requests passed within {options.check_wait_s:g} s, no line came",
            _log_lines(options),
        )
    return _warning(
        f"{what}: open, but no line came within {options.check_wait_s:g} s, nor was a request seen",
        f"send {service!r} a request, and check again; the lines needed are:\n"
        + _log_lines(options),
    )


def _frontend_lines(options: Options) -> str:
    return FRONTEND if options.format == "dial" else HTTPLOG


def _log_lines(options: Options) -> str:
    log = options.log
    if log.scheme == "tcp":
        lines = snippet(log_host=log.host, log_port=log.port)
        return f"{lines.section}\nand in each frontend:\n{lines.in_frontend}"
    if log.scheme == "file":
        return f"the file is written by your syslog daemon; in each frontend:\n{HTTPLOG}"
    where = log.path or f"{log.host}:{log.port}"
    return f"in each frontend:\n    log {where} local0\n{_frontend_lines(options)}"


def _socket(options: Options) -> str:
    socket = options.socket
    return socket_line(socket.path or f"ipv4@{socket.host}:{socket.port}")


async def _stats(
    service: str, servers: dict[str, state.Server], client: RuntimeClient
) -> state.Stats | None:
    """Counters of the service by any name it has; ``None`` where they cannot be read."""
    keys = [service, *{server.backend_id for server in servers.values()}]
    try:
        for text in await client.ask([f"show stat {key} 6 -1" for key in keys]):
            stats = state.parse_stats(text, service)
            if stats is not None:
                return stats
    except BalancerError:
        pass
    return None


def _requests(stats: state.Stats | None) -> int:
    return sum(row.get("stot", 0) for row in stats.servers.values()) if stats else 0


def _ok(what: str) -> Finding:
    return Finding(Severity.OK, what)


def _warning(what: str, fix: str) -> Finding:
    return Finding(Severity.WARNING, what, fix)


def _error(what: str, fix: str) -> Finding:
    return Finding(Severity.ERROR, what, fix)
