"""What Pinot's brokers and operators say: the query log, weight documents, configurations."""

from __future__ import annotations

from datetime import UTC

from dial.conformance.suite import assert_well_formed
from dial.errors import BalancerRefused, SettingError
from dial_pinot import check_files
from dial_pinot.options import read_options
from dial_pinot.parser import QueryLogParser
from dial_pinot.weights import decode

from .contract import checked, refused, table_of

TABLE = "events_OFFLINE"
_SERVERS = {f"127.0.0.{i}": f"Server_127.0.0.{i}_8098" for i in (2, 3, 4)}


def query_log(data: bytes) -> bool:
    """Lines of the broker's query log, posted or in a file."""
    read = [_query_log(data, posted=posted) for posted in (True, False)]
    return any(read)


def _query_log(data: bytes, *, posted: bool) -> bool:
    parser = QueryLogParser(TABLE, UTC, posted=posted)
    parser.servers = _SERVERS
    lines = data.decode("utf-8", errors="replace").split("\n")
    whole = parser.read(lines)
    assert_well_formed(whole)
    assert not (whole.latency_ms < 0).any()
    assert set(whole.names) <= set(_SERVERS.values())
    assert whole.malformed <= len(lines)
    one_by_one = [parser.read([line]) for line in lines]
    assert sum(len(batch) for batch in one_by_one) == len(whole), "a line is read alone"
    assert sum(batch.malformed for batch in one_by_one) == whole.malformed
    return len(whole) > 0


def weight_document(data: bytes) -> bool:
    """The document that brokers follow, read back."""
    try:
        document = decode(data, "weights /run/w")
    except BalancerRefused as error:
        return refused(error, "weights /run/w")
    assert document.version >= 0
    assert 0.0 < document.valid_s <= 86_400.0
    assert document.weights
    assert all(0 <= weight <= 1_000_000 for weight in document.weights.values())
    assert decode(document.encode(), "w") == document
    return True


def pinot_files(data: bytes) -> bool:
    """A table's configuration or a broker's."""
    return checked(data, check_files)


def pinot_options(data: bytes) -> bool:
    """The ``[adapter.options]`` table of a configuration, as TOML."""
    table = table_of(data)
    if table is None:
        return False
    try:
        options = read_options(TABLE, table)
    except SettingError as error:
        return refused(error, "adapter.options")
    assert options.log_file is not None or 0 < options.listen[1] < 65_536
    return True
