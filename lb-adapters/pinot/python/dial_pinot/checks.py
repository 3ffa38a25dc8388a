"""What runs, looked at from outside, and what would mend it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial.adapter import Finding, Severity
from dial.errors import BalancerError, DialError
from dial_pinot.cluster import Cluster, Servers
from dial_pinot.configuration import check_broker, check_table
from dial_pinot.options import Options, is_loopback
from dial_pinot.rest import PinotRest
from dial_pinot.stream import QueryLog
from dial_pinot.weights import Store

_FOLLOWED = {"feed": ("http", "https")}
"""Scheme of the brokers' ``dial.weights`` by ours, where they differ."""


async def find(
    table: str,
    options: Options,
    *,
    rest: PinotRest,
    cluster: Cluster,
    log: QueryLog,
    store: Store,
) -> list[Finding]:
    """Look at Pinot's controller, the table, each broker, the weights and the log, in that order.

    One thing wrong does not hide the next.
    """
    findings: list[Finding] = []
    servers = None
    try:
        servers = await cluster.servers()
        findings += _servers(table, servers)
        findings += check_table(await rest.table_config(table))
    except BalancerError as error:
        findings.append(_error(str(error), "adapter.options.pinot names Pinot's controller"))
    for broker in options.brokers:
        try:
            findings += _broker(broker, await rest.app_config(broker), options)
        except BalancerError as error:
            findings.append(_error(str(error), "adapter.options.brokers names each broker"))
    findings.append(await _weights(options, store))
    try:
        await log.open(servers.by_log_name if servers else {})
        findings += await _log(table, options, log)
    except DialError as error:
        findings.append(_error(str(error), "adapter.options.log: another port, or end what has it"))
    return findings


def _servers(table: str, servers: Servers) -> list[Finding]:
    usable = sum(servers.usable.values())
    what = (
        f"table {table}: {usable} of {len(servers.usable)} servers serve its {servers.segments} "
        "segments"
    )
    findings = [Finding(Severity.OK if usable >= 2 else Severity.WARNING, what)]
    if servers.segments and servers.fewest_replicas < 2:
        findings.append(
            _error(
                f"table {table}: a segment has {servers.fewest_replicas} replica: there is no "
                "other to move its load to",
                "a replication of 2 or more in the table's segmentsConfig, then rebalance",
            )
        )
    if servers.sets > 1:
        findings.append(
            Finding(
                Severity.NOTE,
                f"table {table}: {servers.sets} different sets of replicas; a query meets more "
                "than one server, and one that is slow more often than its weight says",
            )
        )
    if servers.ambiguous:
        findings.append(
            _error(
                f"table {table}: the query log cannot tell {', '.join(servers.ambiguous)} apart: "
                "it names servers by the first label of their host, without the port",
                "one server a host, and host names whose first labels differ",
            )
        )
    return findings


def _broker(broker: str, config: Mapping[str, Any], options: Options) -> list[Finding]:
    own = config.get("pinotConfig")
    findings = list(check_broker({k: str(v) for k, v in own.items()} if own else {}, broker))
    jvm = config.get("jvmConfig")
    jvm = jvm if isinstance(jvm, dict) else {}
    arguments = [str(argument) for argument in jvm.get("args") or []]
    environment = jvm.get("envVariables") or {}
    said = [a.partition("=")[2] for a in arguments if a.startswith("-Ddial.weights=")]
    if isinstance(environment, dict) and "DIAL_WEIGHTS" in environment:
        said.append(str(environment["DIAL_WEIGHTS"]))
    ours = options.weights.partition(":")[0]
    if not said:
        findings.append(
            _error(
                f"broker {broker}: its JVM has no dial.weights: the plugin leaves routing to Pinot",
                "in the broker's JAVA_OPTS: -Ddial.weights=http://DIAL:9180/v1/weights "
                "-Ddial.telemetry=http://DIAL:9181/v1/queries; then restart it",
            )
        )
    elif said[0].partition(":")[0] not in _FOLLOWED.get(ours, (ours,)):
        findings.append(
            _error(
                f"broker {broker}: dial.weights is {said[0]}, but weights are put to "
                f"{options.weights}",
                "adapter.options.weights and the brokers' dial.weights: one and the same place",
            )
        )
    else:
        findings.append(Finding(Severity.OK, f"broker {broker}: answers, and has dial.weights"))
    return findings


async def _weights(options: Options, store: Store) -> Finding:
    try:
        document = await store.read()
    except BalancerError as error:
        return _error(str(error), "adapter.options.weights: a place that DIAL can write")
    if document is None:
        return Finding(Severity.OK, f"weights {options.weights}: none yet, so even ones")
    return Finding(Severity.OK, f"weights {options.weights}: version {document.version}")


async def _log(table: str, options: Options, log: QueryLog) -> list[Finding]:
    counters = await log.wait_for_line(options.check_wait_s)
    what = f"log {options.log}"
    findings = []
    if counters.requests:
        findings.append(
            Finding(Severity.OK, f"{what}: {counters.requests} requests of {table} read")
        )
    elif counters.malformed > counters.unattributed:
        findings.append(
            _error(
                f"{what}: {counters.malformed} lines came, none of which can be read",
                "Pinot 1.5 or newer, with the query log in log4j2's usual pattern",
            )
        )
    elif log.brokers:
        findings.append(
            Finding(
                Severity.WARNING,
                f"{what}: {len(log.brokers)} brokers are heard, but no query of {table}",
                "send it a query, and check again",
            )
        )
    else:
        findings.append(
            Finding(
                Severity.WARNING,
                f"{what}: open, but nothing came within {options.check_wait_s:g} s",
                'a followed file\'s appender must say immediateFlush="true"'
                if options.log_file
                else "in each broker's JAVA_OPTS: -Ddial.telemetry=http://DIAL:9181/v1/queries",
            )
        )
    dropped = sum(broker.dropped for broker in log.brokers.values())
    if dropped:
        findings.append(
            Finding(Severity.WARNING, f"brokers dropped {dropped} lines that were not delivered")
        )
    if options.log_file is None and not is_loopback(options.listen[0]):
        findings.append(
            Finding(
                Severity.NOTE,
                f"{what} can be reached from outside; whoever has the token can make up times and "
                "so move load",
            )
        )
    return findings


def _error(what: str, fix: str) -> Finding:
    return Finding(Severity.ERROR, what, fix)
