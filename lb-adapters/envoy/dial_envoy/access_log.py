"""Whether an HTTP connection manager logs what DIAL needs, read from a bootstrap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dial.adapter import Finding, Severity
from dial_envoy import config
from dial_envoy.requests import BEFORE_CONNECT_TAG, CONNECT_TAG
from dial_envoy.yaml_lines import Table, table, tables

if TYPE_CHECKING:
    from dial_envoy.bootstrap import Bootstrap

_GRPC = "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig"
_FILE = "envoy.extensions.access_loggers.file.v3.FileAccessLog"

NEEDED = ("cluster", "host", "start_s", "code", "flags", "first_us", "last_us")
"""Fields of a JSON line without which a request cannot be judged."""

_LONGEST_FLUSH_S = 1.0
"""A tick: what waits longer is counted in a later one."""


def check_access_log(bootstrap: Bootstrap, manager: Table) -> Iterator[Finding]:
    """Findings about its access logs, of which one has to be DIAL's."""
    found = False
    for log in tables(manager.get("access_log")):
        typed = table(log.get("typed_config"))
        kind = str(typed.get("@type", ""))
        if kind.endswith(_GRPC):
            found = True
            yield from _grpc(bootstrap, typed)
        elif kind.endswith(_FILE) and _is_meant(typed):
            found = True
            yield from _file(bootstrap, typed)
        else:
            continue
        if "filter" in log:
            yield Finding(
                Severity.WARNING,
                "this access log has a filter: requests that it hides are missing in DIAL's rates "
                "and percentiles",
                "take the filter out of this one; others may keep theirs",
                bootstrap.at(log),
            )
    if not found:
        yield Finding(
            Severity.ERROR,
            "no access log that DIAL can read: response times come from there",
            f"in access_log of this HTTP connection manager:\n{config.grpc_access_log()}",
            bootstrap.at(manager),
        )


def _is_meant(typed: Table) -> bool:
    """A JSON log with one of our fields: others are somebody else's."""
    fields = table(table(typed.get("log_format")).get("json_format"))
    return bool(fields.keys() & {"first_us", "last_us", "start_s"})


def _grpc(bootstrap: Bootstrap, typed: Table) -> Iterator[Finding]:
    common = table(typed.get("common_config"))
    name = table(table(common.get("grpc_service")).get("envoy_grpc")).get("cluster_name")
    if bootstrap.cluster(name) is None:
        yield Finding(
            Severity.ERROR,
            f"there is no static cluster {name!r}, to which requests are logged",
            "in static_resources.clusters:\n" + config.xds_cluster("127.0.0.1", 18000, str(name)),
            bootstrap.at(common),
        )
    flush_s = _seconds(common.get("buffer_flush_interval", "1s"))
    if flush_s is None or flush_s > _LONGEST_FLUSH_S:
        yield Finding(
            Severity.WARNING,
            f"requests wait up to {common.get('buffer_flush_interval')} before they are logged",
            f"buffer_flush_interval: {config.ALS_FLUSH_S:g}s",
            bootstrap.at(common),
        )
    tags = {tag.get("tag") for tag in tables(common.get("custom_tags"))}
    if not {CONNECT_TAG, BEFORE_CONNECT_TAG} <= tags:
        yield Finding(
            Severity.NOTE,
            "connect times are not logged; DIAL does without, and knows less of the network",
            f"custom_tags as in:\n{config.grpc_access_log()}",
            bootstrap.at(common),
        )
    else:
        yield Finding(Severity.OK, "requests are logged over gRPC", at=bootstrap.at(common))


def _file(bootstrap: Bootstrap, typed: Table) -> Iterator[Finding]:
    fields = table(table(typed.get("log_format")).get("json_format"))
    wrong = [key for key in NEEDED if fields.get(key) != config.JSON_FORMAT[key]]
    if wrong:
        yield Finding(
            Severity.ERROR,
            f"fields of this JSON log are missing or otherwise than DIAL reads them: "
            f"{', '.join(wrong)}",
            f"json_format as in:\n{config.file_access_log(str(typed.get('path')))}",
            bootstrap.at(typed),
        )
        return
    yield Finding(
        Severity.OK, f"requests are logged as JSON to {typed.get('path')}", at=bootstrap.at(typed)
    )
    yield Finding(
        Severity.NOTE,
        "Envoy writes a log file every 10 s unless told otherwise",
        "start it with --file-flush-interval-msec 200",
        bootstrap.at(typed),
    )


def _seconds(text: object) -> float | None:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", str(text))
    return float(found[1]) if found else None
