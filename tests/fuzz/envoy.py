"""What Envoy says and is told: log, admin interface, bootstrap, endpoints, our options."""

from __future__ import annotations

import random
import zlib

from dial.conformance.suite import assert_well_formed
from dial.errors import BalancerRefused, SettingError
from dial_envoy import check_files
from dial_envoy.admin import MAX_COUNTER, View, parse_config, parse_hosts
from dial_envoy.endpoints import MAX_WEIGHT, MIN_WEIGHT, Endpoint, Server, pool_of_file
from dial_envoy.endpoints import pool_of_options as pool_of
from dial_envoy.options import Address, read_options
from dial_envoy.policy import LbPolicy, policy_of
from dial_envoy.requests import MAX_LINE_BYTES, Attribution, JsonLines
from dial_envoy.snapshot import Snapshot
from dial_envoy.state import combine

from .contract import SERVICE, checked, file_of, refused, table_of

_SERVER = Server("s1", ("10.0.0.1", 80), 100, usable=True)
_POOL = pool_of(SERVICE, {"s1": Endpoint(address="10.0.0.1:80")})
_ADMIN = Address("http", "127.0.0.1:9901")


def envoy_log(data: bytes) -> bool:
    """Envoy's access log as JSON lines."""
    whole = _read([data])
    choose = random.Random(zlib.crc32(data))  # the same pieces whenever the input is the same
    cuts = sorted(choose.randint(0, len(data)) for _ in range(choose.randint(1, 8)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert _read(pieces) == whole
    return whole[0] > 0


def envoy_clusters(data: bytes) -> bool:
    """Answer of the admin interface to ``/clusters``."""
    try:
        hosts = parse_hosts(data, SERVICE)
    except BalancerRefused as error:
        return refused(error, "/clusters")
    for host in hosts.values():
        assert 0 <= host.weight < 2**32
        for count in (host.in_flight, host.requests_total, host.errors_total):
            assert 0 <= count <= MAX_COUNTER
    view = View(_ADMIN, "now", LbPolicy("ROUND_ROBIN"), hosts)
    assert [server.name for server in combine(SERVICE, _POOL, [view], {}).servers] == ["s1"]
    return bool(hosts)


def envoy_config_dump(data: bytes) -> bool:
    """Answer of the admin interface to ``/config_dump``."""
    try:
        found = parse_config(data, SERVICE)
        if found is None:
            return False
        policy_of(found[0]).meaning(SERVICE, zero_drains=True)
    except BalancerRefused as error:
        return refused(error, "/config_dump", f"cluster {SERVICE!r}")
    assert found[1].isprintable()
    return True


def envoy_endpoints(data: bytes) -> bool:
    """A file of endpoints."""
    with file_of(data) as path:
        try:
            pool = pool_of_file(path, SERVICE)
        except SettingError as error:
            return refused(error, str(path))
    assert len(pool.by_name) == len(pool.by_address) == len(pool.servers) > 0
    assert all(MIN_WEIGHT <= weight <= MAX_WEIGHT for weight in pool.configured.values())
    first = pool.servers[0].name
    assert Snapshot.of(pool, {first: 7}).version == Snapshot.of(pool, {first: 7}).version
    return True


def envoy_yaml(data: bytes) -> bool:
    """Envoy's bootstrap."""
    return checked(data, check_files)


def envoy_options(data: bytes) -> bool:
    """The ``[adapter.options]`` table of a configuration, as TOML."""
    table = table_of(data)
    if table is None:
        return False
    try:
        options = read_options(SERVICE, table)
    except SettingError as error:
        return refused(error, "adapter.options")
    for address in (*options.admin, options.xds):
        assert Address.parse(str(address), address.scheme) == address
    for seconds in (options.timeout_s, options.poll_s, options.check_wait_s):
        assert 0.0 <= seconds <= 60.0
    return True


def _read(pieces: list[bytes]) -> tuple[int, int, int, list[object]]:
    lines = JsonLines(Attribution(SERVICE, lambda: {_SERVER.address: _SERVER}), "total")
    batches = []
    for piece in pieces:
        batches.append(lines.feed(piece))
        assert len(lines._carry) <= MAX_LINE_BYTES, "an endless line costs memory"
    for batch in batches:
        assert_well_formed(batch)
        assert not (batch.latency_ms < 0).any()
    ends = [end_s for batch in batches for end_s in batch.end_s.tolist()]
    return (
        sum(map(len, batches)),
        sum(batch.malformed for batch in batches),
        sum(batch.unattributed for batch in batches),
        ends,
    )
