"""What runs, looked at from outside, and what to change in Envoy's configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from dial.adapter import Finding, Severity
from dial.errors import BalancerError, BalancerUnreachable
from dial.logs import LogStream
from dial_envoy import config
from dial_envoy.admin import AdminClient, View
from dial_envoy.cluster import check_cluster
from dial_envoy.endpoints import Pool
from dial_envoy.options import Address, Options
from dial_envoy.server import XdsServer


async def find(
    service: str,
    options: Options,
    *,
    pool: Pool,
    admins: Sequence[AdminClient],
    server: XdsServer | None,
    stream: LogStream,
) -> list[Finding]:
    """Look at each Envoy, its cluster, the way of endpoints to it, and the log, in that order.

    One thing wrong does not hide the next.
    """
    findings = list(_addresses(options))
    views = []
    for admin in admins:
        try:
            view = await admin.view(service)
            stats = await admin.stats(*_stats(service))
        except BalancerUnreachable as error:
            findings.append(_error(str(error), _ADMIN.format(where=admin.address)))
            continue
        except BalancerError as error:
            findings.append(_error(str(error), "add the cluster, or name another as service"))
            continue
        views.append(view)
        findings += check_cluster(view.config, service, options, where=f"Envoy at {admin.address}")
        findings += _endpoints(service, view, stats, pool=pool, options=options, server=server)
    if pool.template.policy.HasField("endpoint_stale_after"):
        findings.append(
            _error(
                "policy.endpoint_stale_after is set in the endpoints: every request is answered "
                "503 when DIAL has been silent for so long",
                "take it out; DIAL's watchdog puts configured weights back instead",
            )
        )
    if views:
        async for finding in _log(options, stream, server):
            findings.append(finding)
    return findings


_ADMIN = """\
at the top of Envoy's bootstrap, reachable from this computer only:
admin:
  address: {{socket_address: {{address: 127.0.0.1, port_value: 9901}}}}
and in DIAL's options: admin = "http://127.0.0.1:9901" (now {where})"""


def _stats(service: str) -> tuple[str, ...]:
    own = ("update_success", "update_rejected", "update_failure", "lb_healthy_panic")
    return ("control_plane.connected_state", *(f"cluster.{service}.{name}" for name in own))


def _addresses(options: Options) -> list[Finding]:
    """Who could reach what can change weights, or be made to."""
    found: list[Finding] = []
    if options.xds.is_loopback:
        return found
    if options.token_file is None and options.tls_client_ca_file is None:
        found.append(
            Finding(
                Severity.WARNING,
                f"xds {options.xds} can be reached from other computers, and asks for neither "
                "token nor certificate: anybody there can send made-up log entries",
                "set token_file and tls_cert_file, or tls_client_ca_file, or listen on 127.0.0.1",
            )
        )
    if options.token_file is not None and options.tls_cert_file is None:
        found.append(
            Finding(
                Severity.WARNING,
                f"xds {options.xds}: the token is sent in clear text",
                "set tls_cert_file and tls_key_file",
            )
        )
    return found


def _endpoints(
    service: str,
    view: View,
    stats: dict[str, int],
    *,
    pool: Pool,
    options: Options,
    server: XdsServer | None,
) -> list[Finding]:
    """Whether what DIAL serves has come to this Envoy."""
    there = [s.name for s in pool.servers if s.address in view.hosts]
    missing = [s.name for s in pool.servers if s.address not in view.hosts]
    found = []
    if not missing:
        found.append(_ok(f"Envoy at {view.address}: has all {len(there)} endpoints"))
    elif server is not None and not server.is_open:
        found.append(
            Finding(
                Severity.NOTE,
                f"Envoy at {view.address}: lacks endpoints {', '.join(missing)}; it fetches them "
                f"when the controller listens on {options.xds}",
            )
        )
    else:
        found.append(
            _error(
                f"Envoy at {view.address}: lacks endpoints {', '.join(missing)}, which DIAL serves "
                f"on {options.xds}",
                f"see that it can reach {options.xds}; Envoy's own log says why it cannot",
            )
        )
    rejected = stats.get(f"cluster.{service}.update_rejected", 0)
    if rejected:
        found.append(
            Finding(
                Severity.WARNING,
                f"Envoy at {view.address}: has refused endpoints {rejected} times since its start",
                "DIAL's log, or Envoy's, has the reason of each",
            )
        )
    if stats.get(f"cluster.{service}.lb_healthy_panic", 0):
        found.append(
            Finding(
                Severity.WARNING,
                f"Envoy at {view.address}: the cluster has been in panic, where load goes to all "
                "servers",
                "see why so many of its servers were unhealthy",
            )
        )
    return found


async def _log(
    options: Options, stream: LogStream, server: XdsServer | None
) -> AsyncIterator[Finding]:
    """Whether requests come in, and can be read."""
    if server is not None and not server.is_open and not isinstance(options.log, Address):
        yield Finding(
            Severity.NOTE,
            "log grpc: shares the controller's port, and is looked at when the controller runs: "
            "see dial_log_lines_malformed_total and the rates in 'dial status'",
        )
        return
    try:
        counters = await stream.wait_for_line(options.check_wait_s)
    except BalancerUnreachable as error:
        yield _error(str(error), "")
        return
    wanted = (
        config.file_access_log(options.log.where)
        if isinstance(options.log, Address)
        else config.grpc_access_log()
    )
    how = f"in access_log of the HTTP connection manager:\n{wanted}"
    if counters.malformed and not counters.requests:
        yield _error(f"log {options.log}: {counters.malformed} lines, none of them readable", how)
    elif counters.requests:
        yield _ok(f"log {options.log}: {counters.requests} requests read")
    else:
        yield Finding(
            Severity.NOTE,
            f"log {options.log}: no request came in {options.check_wait_s:g} s; with traffic, "
            "that would be an error",
            how,
        )


def _ok(what: str) -> Finding:
    return Finding(Severity.OK, what)


def _error(what: str, fix: str) -> Finding:
    return Finding(Severity.ERROR, what, fix)
