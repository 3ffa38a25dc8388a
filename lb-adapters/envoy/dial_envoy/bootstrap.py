"""``dial check`` on Envoy's own bootstrap, with nothing running.

What depends on a control plane of the user's own (clusters by CDS, routes by RDS) is not in the
file; it is said so, and not counted as an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dial.adapter import Finding, Severity
from dial_envoy import config
from dial_envoy.access_log import check_access_log
from dial_envoy.cluster import check_cluster
from dial_envoy.yaml_lines import Table, read_document, table, tables

_HCM = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

_ADMIN = """\
at the top of the file:
admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 9901}}"""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The parts of a bootstrap that matter."""

    path: Path
    document: Table

    def at(self, part: Table) -> str:
        """Where it stands."""
        return f"{self.path}:{part.line or 1}"

    @property
    def clusters(self) -> list[Table]:
        """Static ones."""
        return tables(table(self.document.get("static_resources")).get("clusters"))

    def cluster(self, name: object) -> Table | None:
        """The static cluster of that name."""
        return next((one for one in self.clusters if one.get("name") == name), None)

    @property
    def managers(self) -> Iterator[Table]:
        """HTTP connection managers of static listeners."""
        for listener in tables(table(self.document.get("static_resources")).get("listeners")):
            chains = tables(listener.get("filter_chains"))
            chains.append(table(listener.get("default_filter_chain")))
            for chain in chains:
                for one in tables(chain.get("filters")):
                    typed = table(one.get("typed_config"))
                    if str(typed.get("@type", "")).endswith(_HCM):
                        yield typed


def check_files(paths: Sequence[Path], service: str = "") -> tuple[Finding, ...] | None:
    """Look at a bootstrap without knowing DIAL's options (see :mod:`dial.adapter`).

    Parameters
    ----------
    paths
        One file: Envoy is given one.
    service
        The cluster that DIAL is to look after; all that it could, where empty.

    Returns
    -------
    ``None`` if this is no Envoy bootstrap.

    Raises
    ------
    SettingError
        If the file cannot be read.
    """
    if len(paths) != 1 or paths[0].is_dir():
        return None
    document = read_document(paths[0])
    if document is None or not document.keys() & {"static_resources", "dynamic_resources"}:
        return None
    return tuple(check(Bootstrap(paths[0], document), service))


def check(bootstrap: Bootstrap, service: str = "") -> Iterator[Finding]:
    """Findings in the order: admin and node, each cluster and the way to it, each access log."""
    yield from _admin(bootstrap)
    chosen, about_choice = _choose(bootstrap, service)
    yield from about_choice
    for cluster in chosen:
        name = str(cluster.get("name"))
        yield from check_cluster(cluster, name, where="bootstrap", at=bootstrap.at(cluster))
        yield from _control_plane(bootstrap, cluster)
        managers = [one for one in bootstrap.managers if leads_to(one, name) is not False]
        for manager in managers:
            if leads_to(manager, name) is None:
                yield Finding(
                    Severity.NOTE,
                    f"its routes are not in this file; whether they lead to {name!r} cannot be "
                    "judged, so its access log is looked at",
                    at=bootstrap.at(manager),
                )
            yield from check_access_log(bootstrap, manager)
        if not managers:
            yield Finding(
                Severity.WARNING,
                f"no HTTP connection manager in this file leads to {name!r}",
                "if one does by discovery, give it an access_log:\n" + config.grpc_access_log(),
                bootstrap.at(cluster),
            )
    if chosen:
        yield _settings(bootstrap, chosen[0])


def leads_to(manager: Table, cluster: str) -> bool | None:
    """Whether its routes lead to the cluster; ``None`` where the file cannot tell."""
    routes = manager.get("route_config")
    if not isinstance(routes, Table):
        return None
    unsure = False
    for host in tables(routes.get("virtual_hosts")):
        for route in tables(host.get("routes")):
            action = table(route.get("route"))
            several = tables(table(action.get("weighted_clusters")).get("clusters"))
            names = {action.get("cluster"), *(one.get("name") for one in several)}
            if cluster in names:
                return True
            unsure |= bool(action) and names == {None}
    return None if unsure else False


def _admin(bootstrap: Bootstrap) -> Iterator[Finding]:
    admin = bootstrap.document.get("admin")
    if not isinstance(admin, Table):
        yield Finding(
            Severity.ERROR,
            "there is no admin interface: counters and the weights in force are read there",
            _ADMIN,
            f"{bootstrap.path}:1",
        )
    else:
        address = table(table(admin.get("address")).get("socket_address")).get("address")
        if address not in (None, "127.0.0.1", "::1"):
            yield Finding(
                Severity.WARNING,
                f"the admin interface listens on {address}: whoever reaches it can stop Envoy",
                "address: 127.0.0.1, or a pipe",
                bootstrap.at(admin),
            )
    if not table(bootstrap.document.get("node")).get("id"):
        yield Finding(
            Severity.WARNING,
            "node has no id: without one (here or by --service-node) Envoy asks no control plane",
            "at the top of the file:\nnode: {id: edge-1, cluster: edge}",
            f"{bootstrap.path}:1",
        )


def _choose(bootstrap: Bootstrap, service: str) -> tuple[list[Table], list[Finding]]:
    """The clusters to look at."""
    plumbing = _plumbing(bootstrap)
    there = [one for one in bootstrap.clusters if str(one.get("name")) not in plumbing]
    names = ", ".join(str(one.get("name")) for one in there) or "none"
    if service:
        found = bootstrap.cluster(service)
        if found is not None:
            return [found], []
        what = f"no static cluster {service!r}; there are: {names}"
        fix = "another service name; one that comes by CDS is looked at by 'dial check dial.toml'"
        return [], [Finding(Severity.ERROR, what, fix, f"{bootstrap.path}:1")]
    if not there:
        what = "no static cluster that could be balanced"
        fix = "one that comes by CDS is looked at by 'dial check dial.toml', with Envoy running"
        return [], [Finding(Severity.ERROR, what, fix, f"{bootstrap.path}:1")]
    by_eds = [one for one in there if one.get("type") == "EDS"]
    several = [one for one in there if len(_members(one)) > 1]
    chosen = by_eds or several or there
    if len(chosen) == 1:
        return chosen, []
    names = ", ".join(str(one.get("name")) for one in chosen)
    what = f"{len(chosen)} clusters could be DIAL's: {names}"
    fix = "a controller looks after one: name it with --service"
    return chosen, [Finding(Severity.NOTE, what, fix, bootstrap.at(chosen[0]))]


def _plumbing(bootstrap: Bootstrap) -> set[str]:
    """Clusters that lead to control planes and logs, not to servers."""
    found: set[str] = set()
    seen: set[int] = set()

    def look(part: object) -> None:
        # An anchor may be used many times, and inside its own table.
        if id(part) in seen:
            return
        if isinstance(part, dict | list):
            seen.add(id(part))
        if isinstance(part, dict):
            grpc = part.get("envoy_grpc")
            if isinstance(grpc, dict):
                found.add(str(grpc.get("cluster_name")))
            for value in part.values():
                look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    look(bootstrap.document)
    return found


def _control_plane(bootstrap: Bootstrap, cluster: Table) -> Iterator[Finding]:
    """The cluster by which Envoy reaches us, where endpoints come over gRPC."""
    source = table(table(cluster.get("eds_cluster_config")).get("eds_config"))
    if "ads" in source:
        ads = table(bootstrap.document.get("dynamic_resources")).get("ads_config")
        if not isinstance(ads, Table):
            yield Finding(
                Severity.ERROR,
                "its endpoints come by ADS, but dynamic_resources has no ads_config",
                f"instead of eds_cluster_config:\n{config.eds_config()}",
                bootstrap.at(cluster),
            )
            return
        api: Table = ads
    elif isinstance(source.get("api_config_source"), Table):
        api = source["api_config_source"]
    else:
        return
    names = [
        table(one.get("envoy_grpc")).get("cluster_name") for one in tables(api.get("grpc_services"))
    ]
    if not names or names[0] is None:
        yield Finding(
            Severity.ERROR,
            "it names no grpc_services with an envoy_grpc cluster",
            f"instead of eds_cluster_config:\n{config.eds_config()}",
            bootstrap.at(api),
        )
        return
    control = bootstrap.cluster(names[0])
    if control is None:
        yield Finding(
            Severity.ERROR,
            f"there is no static cluster {names[0]!r}, by which endpoints are fetched",
            "in static_resources.clusters:\n"
            + config.xds_cluster("127.0.0.1", 18000, str(names[0])),
            bootstrap.at(api),
        )
        return
    yield from check_control_cluster(bootstrap, control)


def check_control_cluster(bootstrap: Bootstrap, control: Table) -> Iterator[Finding]:
    """HTTP/2 and keepalive."""
    http2 = control.get("http2_protocol_options")
    for one in table(control.get("typed_extension_protocol_options")).values():
        explicit = table(table(one).get("explicit_http_config"))
        http2 = explicit.get("http2_protocol_options", http2)
    example = config.xds_cluster("127.0.0.1", 18000, str(control.get("name")))
    if http2 is None:
        yield Finding(
            Severity.ERROR,
            f"cluster {control.get('name')!r} speaks no HTTP/2, which gRPC needs",
            f"as here:\n{example}",
            bootstrap.at(control),
        )
    elif "connection_keepalive" not in table(http2):
        yield Finding(
            Severity.WARNING,
            f"cluster {control.get('name')!r} has no connection_keepalive: a control plane that "
            "hangs would look connected",
            "in http2_protocol_options:\nconnection_keepalive: {interval: 5s, timeout: 5s}",
            bootstrap.at(control),
        )


def _members(cluster: Table) -> list[Table]:
    assignment = table(cluster.get("load_assignment"))
    return [
        member
        for locality in tables(assignment.get("endpoints"))
        for member in tables(locality.get("lb_endpoints"))
    ]


def _settings(bootstrap: Bootstrap, cluster: Table) -> Finding:
    """What to tell DIAL, so that it finds what this configuration has.

    TOML's strings are JSON's.
    """
    name = str(cluster.get("name"))
    address = table(table(bootstrap.document.get("admin")).get("address"))
    admin = table(address.get("socket_address"))
    lines = [
        f"service = {json.dumps(name)}",
        "[adapter]",
        'name = "envoy"',
        "[adapter.options]",
        f'admin = "http://{admin.get("address", "127.0.0.1")}:{admin.get("port_value", 9901)}"',
        'xds = "grpc://127.0.0.1:18000"',
        'log = "grpc"',
        "[adapter.options.endpoints]",
    ]
    for number, member in enumerate(_members(cluster), start=1):
        endpoint = table(member.get("endpoint"))
        socket = table(table(endpoint.get("address")).get("socket_address"))
        key = json.dumps(str(endpoint.get("hostname") or f"s{number}"))
        where = json.dumps(f"{socket.get('address')}:{socket.get('port_value')}")
        weight = member.get("load_balancing_weight")
        value = where if weight is None else f"{{ address = {where}, weight = {weight} }}"
        lines.append(f"{key} = {value}")
    if not _members(cluster):
        lines.append('s1 = "10.0.0.11:8080"  # each server, by IP address')
    what = "DIAL's configuration that goes with it"
    return Finding(Severity.NOTE, what, settings="\n".join(lines))
