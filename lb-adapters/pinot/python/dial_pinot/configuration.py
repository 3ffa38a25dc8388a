"""What DIAL needs of a table's configuration and of a broker's, wherever they were read.

Only what would keep DIAL from working is an error; what it does with the rest is said as a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dial.adapter import Finding, Severity

SELECTOR = "dial.pinot.DialInstanceSelector"
"""The plugin's class."""

PLUGIN = "dial"
"""Name of the plugin's folder, where it is loaded from Pinot's plugins directory."""

ADAPTIVE = "pinot.broker.adaptive.server.selector.type"
LOG_RATE = "pinot.broker.query.log.maxRatePerSecond"
FIXED_REPLICA = "pinot.broker.use.fixed.replica"

_DEFAULT_LOG_RATE = 10_000.0


def check_table(config: Mapping[str, Any], at: str = "") -> Iterator[Finding]:
    """Look at one part (OFFLINE or REALTIME) of a table's configuration."""
    name = str(config.get("tableName", "?"))
    routing = config.get("routing")
    routing = routing if isinstance(routing, dict) else {}
    selector = routing.get("instanceSelectorType")
    wanted = f"{PLUGIN}:{SELECTOR}"
    if isinstance(selector, str) and selector.rpartition(":")[2] == SELECTOR:
        yield Finding(Severity.OK, f"table {name}: replicas are chosen by {selector}", at=at)
        if ":" not in selector:
            yield Finding(
                Severity.NOTE,
                f"table {name}: {selector} without a plugin's name is found on the broker's "
                f"classpath only; a jar in plugins/{PLUGIN}/ needs {wanted}",
                at=at,
            )
    else:
        text = json.dumps({"routing": {**routing, "instanceSelectorType": wanted}})
        yield Finding(
            Severity.ERROR,
            f"table {name}: routing.instanceSelectorType is {selector or 'not set (balanced)'}",
            f"once every broker has the plugin (not before: a broker that is started without it "
            f"cannot serve the table):\n{text}",
            at=at,
        )
    if routing.get("useFixedReplica") is True:
        yield Finding(
            Severity.ERROR,
            f"table {name}: routing.useFixedReplica sends every query to the same replicas",
            "take useFixedReplica out of the table's routing",
            at=at,
        )
    custom = config.get("metadata")
    settings = custom.get("customConfigs") if isinstance(custom, dict) else None
    mode = settings.get("dial.mode", "query") if isinstance(settings, dict) else "query"
    if mode not in ("query", "segment"):
        yield Finding(
            Severity.ERROR,
            f"table {name}: dial.mode is {mode!r}",
            "in the table's metadata.customConfigs: query or segment",
            at=at,
        )
    elif mode == "segment":
        yield Finding(
            Severity.NOTE,
            f"table {name}: dial.mode segment: a server's weight is its share of segments, and a "
            "query of many segments meets nearly every server all the same",
            at=at,
        )


def replicas_per_table(config: Mapping[str, Any], at: str = "") -> Iterator[Finding]:
    """Look at how many replicas the table's configuration asks for."""
    segments = config.get("segmentsConfig")
    text = segments.get("replication") if isinstance(segments, dict) else None
    if isinstance(text, str | int) and str(text).isdecimal() and int(text) < 2:
        yield Finding(
            Severity.ERROR,
            f"table {config.get('tableName', '?')}: replication {text}: there is no other replica "
            "to move load to",
            "in the table's segmentsConfig: a replication of 2 or more, then rebalance",
            at=at,
        )


def check_broker(config: Mapping[str, str], at: str = "") -> Iterator[Finding]:
    """Look at a broker's own configuration (``pinot.broker.*``)."""
    adaptive = config.get(ADAPTIVE, "NO_OP")
    if adaptive != "NO_OP":
        yield Finding(
            Severity.NOTE,
            f"{ADAPTIVE} = {adaptive}: Pinot's adaptive selection goes on for other tables; tables "
            "with DIAL's selector go by weights",
            at=at,
        )
    if config.get(FIXED_REPLICA, "false").lower() == "true":
        yield Finding(
            Severity.ERROR,
            f"{FIXED_REPLICA} = true sends every query to the same replicas",
            f"{FIXED_REPLICA}=false, or useFixedReplica: false in the table's routing",
            at=at,
        )
    rate = config.get(LOG_RATE)
    try:
        number = _DEFAULT_LOG_RATE if rate is None else float(rate)
    except ValueError:
        number = 0.0
    if number < 1_000.0:
        yield Finding(
            Severity.WARNING,
            f"{LOG_RATE} = {rate}: queries beyond it are not logged, and not seen",
            f"{LOG_RATE}={_DEFAULT_LOG_RATE:g}, which is Pinot's default, or more than the queries "
            "a second",
            at=at,
        )
