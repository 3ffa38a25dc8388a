"""One cluster's configuration, whether it was read from a bootstrap or from a running Envoy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dial.adapter import Finding, Severity
from dial.errors import BalancerRefused
from dial_envoy import config
from dial_envoy.options import Options
from dial_envoy.policy import policy_of


def check_cluster(
    cluster: Mapping[str, Any],
    name: str,
    options: Options | None = None,
    *,
    where: str,
    at: str = "",
) -> Iterator[Finding]:
    """Policy, way of its endpoints, and what else moves load.

    Parameters
    ----------
    cluster
        As YAML or JSON has it.
    name
        Its name.
    options
        DIAL's own, where they are known.
    where
        What it is part of, for messages.
    at
        File and line, if it is from a file.
    """

    def finding(severity: Severity, what: str, fix: str = "") -> Finding:
        return Finding(severity, what if at else f"{where}: {what}", fix, at)

    policy = policy_of(cluster)
    try:
        meaning = policy.meaning(name, zero_drains=True)
    except BalancerRefused as error:
        yield finding(Severity.ERROR, str(error), "lb_policy: ROUND_ROBIN")
    else:
        share = "a weight is a share of requests"
        if meaning.in_flight_bias:
            share += f", less where more are in flight (active_request_bias {policy.bias:g})"
        yield finding(Severity.OK, f"cluster {name!r} uses {policy.name}: {share}")
    if "least_request_lb_config" in cluster and _bias_changes(cluster):
        yield finding(
            Severity.WARNING,
            f"cluster {name!r}: active_request_bias has a runtime_key; DIAL reckons with its "
            "default_value",
            "leave the runtime key alone, or take it out",
        )
    yield from _discovery(cluster, name, options, finding)
    common = cluster.get("common_lb_config")
    common = common if isinstance(common, dict) else {}
    if "locality_weighted_lb_config" in common:
        yield finding(
            Severity.WARNING,
            f"cluster {name!r}: locality_weighted_lb_config shares load out among localities "
            "first; DIAL's weights move it within each, and localities keep their shares",
            "look after one locality, or take it out",
        )
    if any("slow_start_config" in one for one in _tables_in(cluster)):
        yield finding(
            Severity.NOTE,
            f"cluster {name!r}: slow_start_config gives a server that has just joined less than "
            "its weight; DIAL takes what it gets for what it was to get",
        )


def _discovery(
    cluster: Mapping[str, Any], name: str, options: Options | None, finding: Any
) -> Iterator[Finding]:
    wanted = config.eds_config()
    if options is not None and options.xds.scheme == "file":
        wanted = config.eds_file_config(options.xds.where)
    eds = cluster.get("eds_cluster_config")
    source = eds.get("eds_config") if isinstance(eds, dict) else None
    if cluster.get("type") != "EDS" or not isinstance(source, dict):
        yield finding(
            Severity.ERROR,
            f"cluster {name!r} has type {cluster.get('type', 'STATIC')}: its endpoints are its "
            "own, and weights cannot be changed while Envoy runs",
            f"instead of type and load_assignment:\n{wanted}",
        )
        return
    is_file = "path_config_source" in source or "path" in source
    if options is not None and is_file != (options.xds.scheme == "file"):
        yield finding(
            Severity.ERROR,
            f"cluster {name!r} gets its endpoints {'from a file' if is_file else 'over gRPC'}, but "
            f"DIAL's option xds is {options.xds}",
            f"instead of eds_cluster_config:\n{wanted}",
        )
        return
    path = source.get("path_config_source")
    if isinstance(path, dict) and options is not None and path.get("path") != options.xds.where:
        yield finding(
            Severity.ERROR,
            f"cluster {name!r} reads endpoints from {path.get('path')!r}, but DIAL's option xds is "
            f"{options.xds}",
            wanted,
        )
    service_name = eds.get("service_name", name) if isinstance(eds, dict) else name
    resource = (options.resource or name) if options is not None else service_name
    if service_name != resource:
        yield finding(
            Severity.ERROR,
            f"cluster {name!r} asks for {service_name!r}, but DIAL serves {resource!r}",
            f"in DIAL's options: resource = {service_name!r}".replace("'", '"'),
        )
    else:
        yield finding(
            Severity.OK,
            f"cluster {name!r} gets its endpoints {'from a file' if is_file else 'over gRPC'}",
        )


def _bias_changes(cluster: Mapping[str, Any]) -> bool:
    match cluster["least_request_lb_config"]:
        case {"active_request_bias": {"runtime_key": str(key)}}:
            return bool(key)
    return False


def _tables_in(cluster: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("round_robin_lb_config", "least_request_lb_config"):
        if isinstance(cluster.get(key), dict):
            yield cluster[key]
    match cluster.get("load_balancing_policy"):
        case {"policies": [{"typed_extension_config": {"typed_config": dict(typed)}}, *_]}:
            yield typed
