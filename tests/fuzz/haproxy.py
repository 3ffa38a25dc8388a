"""What HAProxy says and is told: its log, its runtime socket, its configuration, our options."""

from __future__ import annotations

import random
import zlib
from datetime import UTC

from dial.conformance.suite import assert_well_formed
from dial.errors import BalancerRefused, SettingError, UnknownService
from dial_haproxy import check_files
from dial_haproxy.options import NAME, Address, LogFormat, read_options
from dial_haproxy.parser import MAX_LINE_BYTES, LogParser
from dial_haproxy.runtime import split_answers
from dial_haproxy.state import (
    MAX_COUNTER,
    MAX_WEIGHT,
    Info,
    Server,
    Stats,
    backend_names,
    combine,
    parse_info,
    parse_servers,
    parse_stats,
)

from .contract import SERVICE, checked, refused, table_of

_INFO = Info(version="2.6.12", epoch="1@2")
_SERVERS = {"s1": Server("4", 26, 100, usable=True, up_to_rules=True, has_agent_check=False)}
_STATS = Stats("roundrobin", {"s1": {"scur": 1, "stot": 12, "wretr": 9}})


def compact(data: bytes) -> bool:
    """HAProxy's log in format ``dial``."""
    return _log(data, "dial")


def httplog(data: bytes) -> bool:
    """HAProxy's log in its standard format."""
    return _log(data, "httplog")


def show_info(data: bytes) -> bool:
    """Answer to ``show info``."""
    try:
        info = parse_info(_answer(data))
    except BalancerRefused as error:
        return refused(error, "HAProxy")
    combine(SERVICE, info, _SERVERS, _STATS, with_rules=())
    return True


def show_servers(data: bytes) -> bool:
    """Answer to ``show servers state SERVICE``."""
    try:
        servers = parse_servers(_answer(data), SERVICE)
    except (BalancerRefused, UnknownService) as error:
        return refused(error, SERVICE)
    for name, server in servers.items():
        assert NAME.fullmatch(name), "a name could be a second command"
        assert 0 <= server.weight <= MAX_WEIGHT
        assert 0 <= server.configured_weight <= MAX_WEIGHT
    state = combine(SERVICE, _INFO, servers, _STATS, with_rules=["s1"])
    assert [server.name for server in state.servers] == list(servers)
    return bool(servers)


def show_stat(data: bytes) -> bool:
    """Answer to ``show stat``."""
    text = _answer(data)
    try:
        names = backend_names(text)
        stats = parse_stats(text, SERVICE)
        if stats is None:
            return False
        state = combine(SERVICE, _INFO, _SERVERS, stats, with_rules=())
    except BalancerRefused as error:
        return refused(error, "show stat", f"backend {SERVICE!r}")
    assert SERVICE in names
    for counters in stats.servers.values():
        assert all(0 <= count <= MAX_COUNTER for count in counters.values())
    for server in state.servers:
        assert min(server.in_flight, server.requests_total, server.errors_total) >= 0
    return True


def adapter_options(data: bytes) -> bool:
    """The ``[adapter.options]`` table of a configuration, as TOML."""
    table = table_of(data)
    if table is None:
        return False
    try:
        options = read_options(SERVICE, table)
    except SettingError as error:
        return refused(error, "adapter.options")
    assert Address.parse(str(options.socket), ("unix", "tcp")) == options.socket
    assert Address.parse(str(options.log), (options.log.scheme,)) == options.log
    assert options.format in ("dial", "httplog")
    assert options.zone is None or options.zone.key == options.timezone
    for seconds in (options.timeout_s, options.poll_s, options.check_wait_s):
        assert 0.0 <= seconds <= 60.0
    return True


def haproxy_cfg(data: bytes) -> bool:
    """HAProxy's own configuration; what is to be changed in it can be changed."""
    return checked(data, check_files)


def _answer(data: bytes) -> str:
    """The first answer on the runtime socket, decoded as the adapter does."""
    return next(iter(split_answers(data.decode("utf-8", errors="replace"))), "")


def _log(data: bytes, log_format: LogFormat) -> bool:
    """Feed a stream at once and in pieces, to both parsers: every line counts once, and alike."""
    rows, malformed, unattributed = whole = _read([data], log_format)
    assert _read([data], log_format, compiled=True) == whole
    *lines, rest = data.split(b"\n")
    expected = sum(1 for line in lines if line.removesuffix(b"\r")) + bool(rest)
    assert len(rows) + malformed + unattributed == expected
    choose = random.Random(zlib.crc32(data))  # the same pieces whenever the input is the same
    cuts = sorted(choose.randint(0, len(data)) for _ in range(choose.randint(1, 8)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert _read(pieces, log_format) == whole
    return bool(rows)


def _read(
    pieces: list[bytes], log_format: LogFormat, *, compiled: bool = False
) -> tuple[list[str], int, int]:
    """Rows as text, in which NaN equals NaN; lines malformed; lines unattributed."""
    parser = LogParser(SERVICE, log_format, zone=UTC, compiled=compiled)
    batches = []
    for piece in pieces:
        batches.append(parser.feed(piece))
        assert len(parser._carry) <= MAX_LINE_BYTES, "an endless line costs memory"
    batches.append(parser.finish())
    rows = []
    for batch in batches:
        assert_well_formed(batch)
        assert not (batch.latency_ms < 0).any()
        columns = (batch.backend, batch.end_s, batch.latency_ms, batch.connect_ms, batch.failed)
        routes = batch.route or [""] * len(batch)
        for (backend, *values), route in zip(
            zip(*(column.tolist() for column in columns), strict=True), routes, strict=True
        ):
            rows.append(repr((batch.names[backend], *values, route)))
    return rows, sum(b.malformed for b in batches), sum(b.unattributed for b in batches)
