"""Who may ask, what is refused and counted, and what an Envoy that comes back is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from envoy.service.discovery.v3.ads_pb2_grpc import AggregatedDiscoveryServiceStub

import dial_envoy
from dial.conformance import reading_log
from dial.errors import BalancerRefused, BalancerUnreachable, SettingError
from dial.ports import free_port
from dial_envoy.server import MAX_MESSAGE_BYTES
from dial_envoy.testing import FakeEnvoy, entry, send_log

TOKEN = "0123456789abcdef0123456789abcdef"


NO_TOKEN = (
    "UNAUTHENTICATED: DIAL needs 'authorization: Bearer TOKEN' in the call's initial_metadata"
)


async def until(look, within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not look():  # noqa: ASYNC110 - of the fake and of grpc, which set no event
            await asyncio.sleep(0.01)


async def weights(adapter) -> dict[str, int]:
    return {s.name: s.weight for s in (await adapter.read()).servers}


async def test_a_refused_snapshot_is_shown_counted_and_taken_back(fake_harness):
    async with fake_harness() as harness:
        assert (await harness.adapter.apply({"s1": 7}, version=1)).ok
        harness.fake.refuse = "no room\nfor it"
        report = await harness.adapter.apply({"s1": 9, "s2": 9}, version=2)
        harness.fake.refuse = ""
        assert dict(report.in_effect) == {"s1": 7, "s2": 100}
        failures = dict(report.failures)
        assert sorted(failures) == ["s1", "s2"]
        assert "node 'edge-1'" in failures["s1"]
        assert "refuses it: no room for it" in failures["s1"]
        assert harness.adapter.events["xds_nacks"] >= 1
        # The last one that was in force is what everybody is to have, a newcomer too.
        assert await weights(harness.adapter) == {"s1": 7, "s2": 100, "s3": 100}
        await harness.fake.restart()
        await until(lambda: harness.fake.hosts)
        assert [host.weight for host in harness.fake.hosts.values()] == [7, 100, 100]


async def test_an_envoy_that_comes_back_to_a_new_controller_keeps_its_weights(fake_harness):
    async with fake_harness() as harness:
        await harness.adapter.apply({"s1": 7, "s2": 33}, version=1)
        await harness.adapter.aclose()
        had, answers = harness.fake.version, harness.fake.answers

        again = dial_envoy.create("app", harness.adapter.options.model_dump() | plain(harness))
        try:
            # The Envoy asks before anybody has read it: nothing may be answered yet.
            await again._open()
            await until(lambda: again._server.clients)
            await asyncio.sleep(0.1)
            assert harness.fake.answers == answers
            assert await weights(again) == {"s1": 7, "s2": 33, "s3": 100}
            await until(lambda: harness.fake.answers > answers)
            assert harness.fake.version == had
        finally:
            await again.aclose()


def plain(harness) -> dict[str, object]:
    """Addresses as a user writes them."""
    return {
        "admin": f"http://127.0.0.1:{harness.fake.admin_port}",
        "xds": f"grpc://{harness.where}",
        "log": "grpc",
        "endpoints": {name: f"10.0.0.{i}:80" for i, name in enumerate(harness.backends, start=1)},
    }


async def test_an_envoy_without_endpoints_is_answered_before_any_is_read(fake_harness):
    async with fake_harness() as harness:
        # fake_harness itself waits for endpoints without reading through the adapter.
        assert harness.adapter._snapshot is None
        assert [host.weight for host in harness.fake.hosts.values()] == [100, 100, 100]


async def test_several_envoys_get_the_same_weights_and_are_read_as_one(fake_harness):
    async with fake_harness() as harness:
        second = FakeEnvoy(harness.where, node="edge-2", is_delta=False)
        await second.start()
        options = plain(harness)
        options["admin"] = [options["admin"], f"http://127.0.0.1:{second.admin_port}"]
        await harness.adapter.aclose()
        both = dial_envoy.create("app", options)
        try:
            await both.read()
            await until(lambda: second.hosts)
            assert (await both.apply({"s1": 7}, version=1)).ok
            for fake in (harness.fake, second):
                assert [host.weight for host in fake.hosts.values()] == [7, 100, 100]
                fake.serve(3)
            assert [s.requests_total for s in (await both.read()).servers] == [2, 2, 2]
            # One that is away holds up none of the others.
            await second.stop()
            assert (await both.apply({"s1": 8}, version=2)).ok
            assert both.events["admin_unreachable"] >= 1
        finally:
            await both.aclose()
            await second.stop()


async def test_an_unknown_cluster_is_told_what_there_is(fake_harness):
    async with fake_harness() as harness:
        before = await weights(harness.adapter)
        stranger = FakeEnvoy(harness.where, service="shop")
        await stranger.start()
        try:
            await until(lambda: stranger.ended_with)
        finally:
            await stranger.stop()
        said = "NOT_FOUND: DIAL has no endpoints for cluster shop; it has app"
        assert stranger.ended_with == said
        assert harness.adapter.events["xds_unknown_cluster"] >= 1
        assert await weights(harness.adapter) == before


@pytest.mark.parametrize(
    ("options", "fake", "said", "event"),
    [
        (
            {"nodes": ["edge-1"]},
            {"node": "edge-9"},
            "PERMISSION_DENIED: node id 'edge-9' is not among DIAL's option nodes",
            "xds_unknown_node",
        ),
        (
            {"token_file": TOKEN},
            {"token": "wrong"},
            NO_TOKEN,
            "xds_bad_token",
        ),
        (
            {"token_file": TOKEN},
            {"token": ""},
            NO_TOKEN,
            "xds_bad_token",
        ),
    ],
)
async def test_a_stranger_is_turned_away_and_counted(tmp_path, options, fake, said, event):
    if "token_file" in options:
        (tmp_path / "token").write_text(f"{options['token_file']}\n")
        options = {"token_file": str(tmp_path / "token")}
    where = f"127.0.0.1:{free_port()}"
    stranger = FakeEnvoy(where, **fake)
    adapter = dial_envoy.create(
        "app",
        {
            "admin": f"http://127.0.0.1:{free_port()}",
            "xds": f"grpc://{where}",
            "log": "grpc",
            "endpoints": {"s1": "10.0.0.1:80"},
            **options,
        },
    )
    await adapter._open()
    await stranger.start()
    try:
        await until(lambda: stranger.ended_with)
        assert stranger.ended_with == said
        assert stranger.hosts == {}
        assert adapter.events[event] >= 1
        assert adapter._server.clients == ()
    finally:
        await stranger.stop()
        await adapter.aclose()


async def test_with_the_token_an_envoy_is_served(tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    where = f"127.0.0.1:{free_port()}"
    fake = FakeEnvoy(where, token=TOKEN)
    await fake.start()
    adapter = dial_envoy.create(
        "app",
        {
            "admin": f"http://127.0.0.1:{fake.admin_port}",
            "xds": f"grpc://{where}",
            "log": "grpc",
            "endpoints": {"s1": "10.0.0.1:80"},
            "token_file": str(tmp_path / "token"),
        },
    )
    try:
        assert await weights(adapter) == {"s1": 100}
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await send_log(where, [entry("app", ("10.0.0.1", 80))], token="another")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    finally:
        await adapter.aclose()
        await fake.stop()


async def test_a_log_message_that_is_too_long_ends_its_stream_and_nothing_else(fake_harness):
    async with fake_harness() as harness:
        before = await weights(harness.adapter)
        huge = entry("app", ("10.0.0.1", 80))
        huge.request.path = "x" * (MAX_MESSAGE_BYTES + 1)
        async with reading_log(harness) as log:
            await harness.log_ready()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await send_log(harness.where, [huge])
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await harness.send(3)
            await log.until(rows=3)
            assert harness.adapter.events["log_messages_too_long"] == 1
        assert log.rows == 3
        assert await weights(harness.adapter) == before


async def test_heartbeats_are_answered_and_an_envoy_that_does_not_is_counted(fake_harness):
    async with fake_harness() as harness:
        await harness.adapter.read()
        server = harness.adapter._server
        server._options = server._options.model_copy(update={"heartbeat_s": 0.05})
        server._heart.cancel()
        server._heart = asyncio.create_task(server._beat())
        before = harness.fake.answers
        await until(lambda: harness.fake.answers >= before + 3)
        assert harness.adapter.events["xds_silent"] == 0
        await harness.fake.disconnect()
        await until(lambda: not server.clients)
        async with silent_envoy(harness):
            await until(lambda: harness.adapter.events["xds_silent"] >= 2)


async def test_an_envoy_that_says_nothing_holds_up_none_of_the_others(fake_harness):
    async with fake_harness() as harness, silent_envoy(harness):
        report = await harness.adapter.apply({"s1": 7}, version=1)
        assert report.ok
        assert harness.fake.hosts["10.0.0.1", 80].weight == 7


@asynccontextmanager
async def silent_envoy(harness):
    """One that asks and then says nothing more: it neither takes nor refuses."""
    options = (("grpc.enable_http_proxy", 0),)
    async with grpc.aio.insecure_channel(harness.where, options=options) as channel:
        stream = AggregatedDiscoveryServiceStub(channel).DeltaAggregatedResources()
        await stream.write(harness.fake._first())
        await until(lambda: any(not c.subscription.acked for c in harness.adapter._server.clients))
        yield
        stream.cancel()


async def test_no_envoy_connected_is_said_and_nothing_is_taken_for_written(fake_harness):
    async with fake_harness() as harness:
        before = await weights(harness.adapter)
        await harness.fake.disconnect()
        await until(lambda: not harness.adapter._server.clients)
        with pytest.raises(BalancerUnreachable, match="no Envoy is connected to grpc://"):
            await harness.adapter.apply({"s1": 7}, version=1)
        assert await weights(harness.adapter) == before
        # Nor does it come into force when one connects again.
        answers = harness.fake.answers
        harness.fake.connect()
        await until(lambda: harness.fake.answers > answers)
        assert await weights(harness.adapter) == before


async def test_two_controllers_cannot_listen_on_one_port(fake_harness):
    async with fake_harness() as harness:
        other = dial_envoy.create("app", plain(harness))
        with pytest.raises(BalancerUnreachable, match="another controller"):
            await other.read()
        await other.aclose()


async def test_what_would_leave_fewer_than_half_is_not_drained(fake_harness):
    async with fake_harness() as harness:
        report = await harness.adapter.apply({"s1": 0, "s2": 0, "s3": 50}, version=1)
        # One of three would be left, and Envoy sends load to all of them below half.
        assert dict(report.in_effect) == {"s1": 100, "s2": 100, "s3": 50}
        assert "1 of 3 servers would be left" in dict(report.failures)["s1"]
        assert (await harness.adapter.apply({"s1": 0}, version=2)).ok


async def test_localities_are_left_as_they_are_and_not_drained(fake_harness, tmp_path):
    path = tmp_path / "endpoints.yaml"
    path.write_text(LOCALITIES)
    async with fake_harness() as harness:
        await harness.adapter.aclose()
        options = plain(harness) | {"endpoints_file": str(path)}
        del options["endpoints"]
        adapter = dial_envoy.create("app", options)
        try:
            state = await adapter.read()
            # The second priority gets no load while all is well: not DIAL's.
            assert [s.name for s in state.servers] == ["a", "b"]
            assert not state.meaning.zero_drains
            with pytest.raises(BalancerRefused, match="several localities or priorities"):
                await adapter.apply({"a": 0}, version=1)
            assert (await adapter.apply({"a": 7}, version=1)).ok
            sent = adapter._snapshot.pool.assignment(adapter._snapshot.weights)
            assert [one.load_balancing_weight.value for one in sent.endpoints] == [3, 1, 0]
            assert [one.priority for one in sent.endpoints] == [0, 0, 1]
            spare = sent.endpoints[2].lb_endpoints[0]
            assert spare.load_balancing_weight.value == 44
        finally:
            await adapter.aclose()


LOCALITIES = """
cluster_name: app
endpoints:
- locality: {zone: one}
  load_balancing_weight: 3
  lb_endpoints:
  - endpoint: {hostname: a, address: {socket_address: {address: 10.0.0.1, port_value: 80}}}
    load_balancing_weight: 10
- locality: {zone: two}
  load_balancing_weight: 1
  lb_endpoints:
  - endpoint: {hostname: b, address: {socket_address: {address: 10.0.0.2, port_value: 80}}}
    load_balancing_weight: 10
- priority: 1
  lb_endpoints:
  - endpoint: {hostname: spare, address: {socket_address: {address: 10.0.0.3, port_value: 80}}}
    load_balancing_weight: 44
"""


async def test_a_file_of_endpoints_is_watched_and_a_broken_one_changes_nothing(
    fake_harness, tmp_path
):
    path = tmp_path / "endpoints.yaml"
    path.write_text(LOCALITIES)
    async with fake_harness() as harness:
        await harness.adapter.aclose()
        options = plain(harness) | {"endpoints_file": str(path)}
        del options["endpoints"]
        adapter = dial_envoy.create("app", options)
        try:
            await adapter.read()
            await adapter.apply({"a": 7, "b": 9}, version=1)

            path.write_text("cluster_name: app\nendpoints: [")
            assert await weights(adapter) == {"a": 7, "b": 9}
            assert adapter.events["endpoints_file_refused"] == 1

            # b is weighted anew by the administrator, c joins, a keeps what is in force.
            path.write_text(
                LOCALITIES.replace("hostname: spare", "hostname: c")
                .replace("priority: 1", "priority: 0")
                .replace(
                    "address: 10.0.0.2, port_value: 80}}}\n    load_balancing_weight: 10",
                    "address: 10.0.0.2, port_value: 80}}}\n    load_balancing_weight: 20",
                )
            )
            await adapter.read()
            await until(lambda: len(harness.fake.hosts) == 3)
            assert await weights(adapter) == {"a": 7, "b": 20, "c": 44}
        finally:
            await adapter.aclose()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoints": {}}, "give endpoints or endpoints_file, one of them"),
        ({"endpoints": {"s1": "app.example:80"}}, "allowed are IP:PORT and [IPv6]:PORT"),
        ({"endpoints": {"s1": "10.0.0.1:80", "s2": "10.0.0.1:80"}}, "two names have one address"),
        ({"endpoints": {"s1": {"address": "10.0.0.1:80", "weight": 0}}}, "adapter.options."),
        ({"xds": "http://127.0.0.1:1"}, "allowed are grpc://host:port or file:/path"),
        ({"xds": "file:/tmp/eds.json"}, "log = 'grpc' needs xds = 'grpc://host:port'"),
        ({"admin": []}, "adapter.options.admin"),
        ({"tls_cert_file": "/c"}, "tls_cert_file and tls_key_file go together"),
        ({"lgo": "grpc"}, "(options are: admin, xds, log, "),
    ],
)
def test_a_wrong_option_is_named(options, said):
    right = {
        "admin": "http://127.0.0.1:9901",
        "xds": "grpc://127.0.0.1:18000",
        "log": "grpc",
        "endpoints": {"s1": "10.0.0.1:80"},
    }
    with pytest.raises(SettingError) as refused:
        dial_envoy.create("app", right | options)
    assert said in str(refused.value)
    assert str(refused.value).isprintable()


async def test_a_short_token_is_refused(tmp_path):
    (tmp_path / "token").write_text("secret")
    adapter = dial_envoy.create(
        "app",
        {
            "admin": "http://127.0.0.1:9",
            "xds": f"grpc://127.0.0.1:{free_port()}",
            "log": "grpc",
            "endpoints": {"s1": "10.0.0.1:80"},
            "token_file": str(tmp_path / "token"),
        },
    )
    with pytest.raises(SettingError, match="16 printable characters"):
        await adapter.read()
