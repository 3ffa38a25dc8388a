"""What an Envoy administrator adds, as text that docs, lab and ``check`` share.

One source for these lines, because a log format that differs by one field from what the parser
reads fails silently.  YAML is written as text, so that it is shown as a person would write it.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from dial_envoy.requests import BEFORE_CONNECT_TAG, CONNECT_TAG

XDS_CLUSTER = "dial"
"""Name of the static cluster that leads to us."""

JSON_FORMAT: Mapping[str, str] = {
    "cluster": "%UPSTREAM_CLUSTER_RAW%",
    "host": "%UPSTREAM_HOST%",
    "start_s": "%START_TIME(%s.%6f)%",
    "end_us": "%COMMON_DURATION(DS_RX_BEG:US_RX_BEG:us)%",
    "first_us": "%COMMON_DURATION(DS_RX_END:US_RX_BEG:us)%",
    "last_us": "%COMMON_DURATION(DS_RX_END:US_RX_END:us)%",
    "first_retry_us": "%COMMON_DURATION(US_TX_BEG:US_RX_BEG:us)%",
    "last_retry_us": "%COMMON_DURATION(US_TX_BEG:US_RX_END:us)%",
    "before_connect_us": "%COMMON_DURATION(DS_RX_BEG:US_CX_BEG:us)%",
    "connect_us": "%COMMON_DURATION(US_CX_BEG:US_CX_END:us)%",
    "tries": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "code": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "route": "%ROUTE_NAME%",
}
"""Fields of a JSON line; an administrator's own may stand beside them."""

_TAGS = {
    BEFORE_CONNECT_TAG: JSON_FORMAT["before_connect_us"],
    CONNECT_TAG: JSON_FORMAT["connect_us"],
}

ALS_FLUSH_S = 0.2
"""How long an entry may wait in Envoy.  Its own default of a second would be a whole tick."""


def xds_cluster(host: str, port: int, name: str = XDS_CLUSTER) -> str:
    """An entry of ``static_resources.clusters``: where DIAL is reached.

    Keepalive, because a control plane that is frozen, or a path that swallows packets, would
    else look connected for ever.
    """
    return f"""\
- name: {name}
  connect_timeout: 1s
  type: STATIC
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config:
        http2_protocol_options:
          connection_keepalive: {{interval: 5s, timeout: 5s}}
  load_assignment:
    cluster_name: {name}
    endpoints:
    - lb_endpoints:
      - endpoint: {{address: {{socket_address: {{address: {host}, port_value: {port}}}}}}}
"""


def eds_config(token: str = "", name: str = XDS_CLUSTER) -> str:
    """``eds_cluster_config`` of the balanced cluster, for discovery over gRPC.

    Incremental, so that an answer about this cluster is about no other.  It retries after half a
    second, twice that and so on, but never later than every two seconds.
    """
    metadata = (
        f"""
        initial_metadata:
        - {{key: authorization, value: {json.dumps(f"Bearer {token}")}}}"""
        if token
        else ""
    )
    return f"""\
type: EDS
eds_cluster_config:
  eds_config:
    resource_api_version: V3
    api_config_source:
      api_type: DELTA_GRPC
      transport_api_version: V3
      grpc_services:
      - envoy_grpc:
          cluster_name: {name}
          retry_policy:
            retry_back_off: {{base_interval: 0.5s, max_interval: 2s}}{metadata}
"""


def eds_file_config(path: str) -> str:
    """``eds_cluster_config`` of the balanced cluster, for discovery from a file."""
    directory = path.rpartition("/")[0] or "/"
    return f"""\
type: EDS
eds_cluster_config:
  eds_config:
    resource_api_version: V3
    path_config_source:
      path: {json.dumps(path)}
      watched_directory: {{path: {json.dumps(directory)}}}
"""


def grpc_access_log(token: str = "", name: str = XDS_CLUSTER) -> str:
    """An entry of ``access_log`` of the HTTP connection manager: the gRPC service."""
    metadata = (
        f"""
        initial_metadata:
        - {{key: authorization, value: {json.dumps(f"Bearer {token}")}}}"""
        if token
        else ""
    )
    tags = "".join(
        f"\n      - {{tag: {tag}, value: {json.dumps(command)}}}" for tag, command in _TAGS.items()
    )
    return f"""\
- name: envoy.access_loggers.http_grpc
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
    common_config:
      log_name: dial
      transport_api_version: V3
      buffer_flush_interval: {ALS_FLUSH_S:g}s
      custom_tags:{tags}
      grpc_service:
        envoy_grpc: {{cluster_name: {name}}}{metadata}
"""


def file_access_log(path: str) -> str:
    """An entry of ``access_log`` of the HTTP connection manager: JSON lines in a file."""
    fields = "".join(f"\n        {key}: {json.dumps(value)}" for key, value in JSON_FORMAT.items())
    return f"""\
- name: envoy.access_loggers.file
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
    path: {json.dumps(path)}
    log_format:
      json_format:{fields}
"""


def indented(text: str, by: int) -> str:
    """Move lines to the right, to stand inside a larger document."""
    return textwrap.indent(text, " " * by)
