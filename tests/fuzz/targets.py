"""Every parser of what comes from outside, as a function of bytes.

A target feeds one parser and checks its contract.  Either it takes the input (``True``), and
what it made of it is sound; or it refuses it (``False``) with the one kind of error that is
documented, whose message says where and is one printable line, because it is read in a log or
a terminal.  Any other exception is a defect.

Hypothesis runs them (``test_fuzz``), and libFuzzer does (``run``); both begin with the real
outputs in ``seeds``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .bridge import statistics_page, wait_events
from .envoy import (
    envoy_clusters,
    envoy_config_dump,
    envoy_endpoints,
    envoy_log,
    envoy_options,
    envoy_yaml,
)
from .haproxy import (
    adapter_options,
    compact,
    haproxy_cfg,
    httplog,
    show_info,
    show_servers,
    show_stat,
)
from .ours import (
    agent_json,
    charge_file,
    lease,
    limit_journal,
    model,
    partition_file,
    recording,
    settings,
)
from .pinot import pinot_files, pinot_options, query_log, weight_document

Target = Callable[[bytes], bool]

TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        compact,
        httplog,
        show_info,
        show_servers,
        show_stat,
        haproxy_cfg,
        adapter_options,
        envoy_log,
        envoy_clusters,
        envoy_config_dump,
        envoy_endpoints,
        envoy_yaml,
        envoy_options,
        agent_json,
        model,
        settings,
        recording,
        lease,
        partition_file,
        charge_file,
        limit_journal,
        query_log,
        weight_document,
        pinot_files,
        pinot_options,
        statistics_page,
        wait_events,
    )
}

SEEDS = Path(__file__).parent / "seeds"


def seeds(name: str) -> dict[str, bytes]:
    """Kept inputs of a target by file name; those that it must refuse begin with ``refused-``."""
    return {path.name: path.read_bytes() for path in sorted((SEEDS / name).iterdir())}
