"""A real Envoy for one block: bootstrap and start; the counterpart of :mod:`dial_lab.haproxy`.

Without a controller its endpoints are fixed and nothing is logged.  With one they come from the
controller, so it serves only once that is there.  One worker, as HAProxy has one thread.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dial.errors import LabError
from dial_envoy.config import eds_config, grpc_access_log, xds_cluster
from dial_envoy.example import Example, command, envoy_binary, fixed
from dial_lab.addresses import Address
from dial_lab.haproxy import SERVICE, WEIGHT
from dial_lab.processes import Children

_MOST = 8000
"""In flight, as HAProxy's maxconn: a policy is to be measured, not a circuit breaker."""

_BREAKERS = f"""\
circuit_breakers:
  thresholds:
  - {{max_connections: {_MOST}, max_pending_requests: {_MOST}, max_requests: {_MOST}}}
"""

_NEW_CONNECTIONS = """\
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    common_http_protocol_options: {max_requests_per_connection: 1}
    explicit_http_config: {http_protocol_options: {}}
"""


LOAD_REPORTS = "LOAD_BALANCING_POLICY_CONFIG"
"""The policy that is an extension: weights from what servers report of their load."""

_ASK_FOR_REPORTS = """\
request_headers_to_add:
- {header: {key: endpoint-load-metrics-format, value: text}}
"""

_EXTENSION = "load_balancing_policies.client_side_weighted_round_robin"

_BY_LOAD_REPORTS = f"""\
load_balancing_policy:
  policies:
  - typed_extension_config:
      name: envoy.{_EXTENSION}
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.{_EXTENSION}.v3.ClientSideWeightedRoundRobin
        blackout_period: 1s
"""
"""As it comes, but that it trusts a server after a second instead of ten, which would be most of a
block.  Weights are computed each second, as requests/s over application_utilization."""


@dataclass(frozen=True, slots=True)
class Balancer:
    """Where one Envoy is reached."""

    port: int
    admin_port: int

    def adapter_settings(self, servers: Mapping[str, Address], xds_port: int) -> str:
        """The ``[adapter]`` table of its controller, which listens on ``xds_port``."""
        endpoints = "".join(
            f"{name} = {{ address = {json.dumps(f'{address.host}:{address.port}')}, "
            f"weight = {WEIGHT} }}\n"
            for name, address in servers.items()
        )
        return f"""\
[adapter]
name = "envoy"

[adapter.options]
admin = "http://127.0.0.1:{self.admin_port}"
xds = "grpc://127.0.0.1:{xds_port}"
log = "grpc"

[adapter.options.endpoints]
{endpoints}"""


def config(
    lb_policy: str,
    servers: Mapping[str, Address],
    balancer: Balancer,
    xds_port: int | None = None,
    *,
    new_connections: bool = False,
) -> str:
    """The bootstrap.

    Parameters
    ----------
    lb_policy
        Of the cluster; :data:`LOAD_REPORTS` for client-side weighted round robin.
    servers
        Where each listens, by name.
    balancer
        Where it is to be reached.
    xds_port
        Where a controller listens; without one nothing is logged, so that rivals do not pay for
        what they do not use.
    new_connections
        Whether each request gets a connection of its own to its server.
    """
    by_reports = lb_policy == LOAD_REPORTS
    more = _BREAKERS + (_NEW_CONNECTIONS if new_connections else "")
    return str(
        Example(
            balancer.port,
            balancer.admin_port,
            fixed(SERVICE, servers, WEIGHT) if xds_port is None else eds_config(),
            service=SERVICE,
            lb_policy=lb_policy,
            access_log="" if xds_port is None else grpc_access_log(),
            clusters="" if xds_port is None else xds_cluster("127.0.0.1", xds_port),
            more=more + (_BY_LOAD_REPORTS if by_reports else ""),
            virtual_host=_ASK_FOR_REPORTS if by_reports else "",
        )
    )


def start(
    children: Children, directory: Path, text: str, cores: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start Envoy in the foreground; it listens when it has endpoints.

    Raises
    ------
    LabError
        If it is not installed.
    """
    binary = envoy_binary()
    if binary is None:
        raise LabError("envoy: not installed; `make setup-dev` installs it")
    path = directory / "envoy.yaml"
    path.write_text(text, encoding="utf-8")
    return children.start("envoy", command(binary, path), cores=cores)
