"""What is refused, drained by others, cut off or left behind: over gRPC, on the fake."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest
from envoy.service.discovery.v3.ads_pb2_grpc import AggregatedDiscoveryServiceStub
from grpc import aio

import dial_envoy
from dial.ports import free_port
from dial_envoy.testing import FakeEnvoy, entry, send_log

CONFIGURED = {"s1": 100, "s2": 100, "s3": 100}


async def until(look, within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not look():  # noqa: ASYNC110 - of the fake and of grpc, which set no event
            await asyncio.sleep(0.01)


async def weights(adapter) -> dict[str, int]:
    return {s.name: s.weight for s in (await adapter.read()).servers}


def plain(harness) -> dict[str, object]:
    """Options as a user writes them."""
    return {
        "admin": f"http://127.0.0.1:{harness.fake.admin_port}",
        "xds": f"grpc://{harness.where}",
        "log": "grpc",
        "endpoints": {name: f"10.0.0.{i}:80" for i, name in enumerate(CONFIGURED, start=1)},
        "timeout_s": 2.0,
    }


@asynccontextmanager
async def another(harness, **options):
    """An adapter in place of the harness's own, as after a restart."""
    await harness.adapter.aclose()
    adapter = dial_envoy.create("app", plain(harness) | options)
    try:
        yield adapter
    finally:
        await adapter.aclose()


def endpoints_file(path, spare: str = "10.0.0.9", **status: str) -> None:
    """s1 to s3, and a spare server of the second priority."""

    def member(name: str, host: str) -> dict[str, object]:
        address = {"socket_address": {"address": host, "port_value": 80}}
        return {
            "endpoint": {"hostname": name, "address": address},
            "load_balancing_weight": 100,
            "health_status": status.get(name, "UNKNOWN"),
        }

    first = [member(name, f"10.0.0.{last}") for last, name in enumerate(CONFIGURED, start=1)]
    spares = [{"priority": 1, "lb_endpoints": [member("spare", spare)]}] if spare else []
    document = {"cluster_name": "app", "endpoints": [{"lb_endpoints": first}, *spares]}
    path.write_text(json.dumps(document))


# ---------------------------------------------------------------- what others do


async def test_nobody_but_dial_writes_weights_over_grpc(fake_harness):
    async with fake_harness() as harness:
        assert (await harness.adapter.read()).meaning.sole_writer


@pytest.mark.parametrize("is_up", [True, False])
async def test_a_server_that_the_administrator_drains_is_no_weight_of_dials(
    fake_harness, tmp_path, is_up
):
    path = tmp_path / "endpoints.json"
    endpoints_file(path, spare="")
    async with fake_harness() as harness:
        options = {"endpoints": {}, "endpoints_file": str(path)}
        async with another(harness, **options) as adapter:
            if is_up:
                assert await weights(adapter) == CONFIGURED
            endpoints_file(path, spare="", s2="DRAINING")
            if not is_up:
                # Whoever was there before us has told Envoy already.
                before = dial_envoy.create("app", plain(harness) | options)
                await before.read()
                await until(lambda: harness.fake.hosts["10.0.0.2", 80].health == "DRAINING")
                await before.aclose()
            await adapter.read()
            await until(lambda: harness.fake.hosts["10.0.0.2", 80].health == "DRAINING")
            s2 = (await adapter.read()).servers[1]
            assert (s2.usable, s2.weight) == (False, 100)
            begun_s = time.monotonic()
            assert (await adapter.apply({"s1": 7}, version=1)).ok
            assert time.monotonic() - begun_s < 1.0
            assert adapter.events["not_in_force"] == 0
            endpoints_file(path, spare="")
            assert (await adapter.apply({"s1": 100}, version=2)).ok
            assert {host.health for host in harness.fake.hosts.values()} == {"HEALTHY"}
            assert await weights(adapter) == CONFIGURED


async def test_a_drain_counts_servers_that_fail_their_checks(fake_harness):
    async with fake_harness() as harness:
        four = {f"s{i}": f"10.0.0.{i}:80" for i in range(1, 5)}
        async with another(harness, endpoints=four) as adapter:
            await adapter.read()
            await until(lambda: len(harness.fake.hosts) == 4)
            plain_answers = FakeEnvoy._answers

            def failing(fake) -> dict[str, object]:
                answers = plain_answers(fake)
                (cluster,) = answers["/clusters"]["cluster_statuses"]
                for host in cluster["host_statuses"][2:]:
                    host["health_status"]["failed_active_health_check"] = True
                return answers

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FakeEnvoy, "_answers", failing)
                report = await adapter.apply({"s1": 0}, version=1)
            assert "1 of 4 servers would be left" in dict(report.failures)["s1"]
            assert dict(report.in_effect) == {"s1": 100}
            # Two of four are left, and that is half.
            assert (await adapter.apply({"s1": 0, "s2": 0}, version=2)).ok


# ---------------------------------------------------------------- refusals


async def test_an_endpoints_file_that_envoy_refuses_is_taken_back(fake_harness, tmp_path):
    path = tmp_path / "endpoints.json"
    endpoints_file(path)
    async with (
        fake_harness() as harness,
        another(harness, endpoints={}, endpoints_file=str(path)) as adapter,
    ):
        await adapter.apply({"s1": 7}, version=1)
        endpoints_file(path, spare="spare.example")
        assert await weights(adapter) == CONFIGURED | {"s1": 7}
        assert adapter.events["endpoints_file_refused"] == 1
        # Weights go on, and one that comes anew is told what is known to work.
        assert (await adapter.apply({"s1": 9}, version=2)).ok
        await harness.fake.restart()
        await until(lambda: len(harness.fake.hosts) == 4)
        assert harness.fake.hosts["10.0.0.1", 80].weight == 9


async def test_a_refusal_that_comes_late_is_taken_back_with_the_next_reading(
    fake_harness, tmp_path
):
    path = tmp_path / "endpoints.json"
    endpoints_file(path)
    async with (
        fake_harness() as harness,
        another(harness, endpoints={}, endpoints_file=str(path), timeout_s=0.2) as adapter,
    ):
        await adapter.read()
        await until(lambda: adapter.events["xds_acks"])
        await adapter.read()
        await harness.fake.disconnect()
        await until(lambda: not adapter._server.clients)
        endpoints_file(path, spare="spare.example")
        await adapter.read()
        harness.fake.connect()
        await until(lambda: adapter.events["xds_nacks"])
        await adapter.read()
        await until(lambda: harness.fake.version == adapter._snapshot.version)
        (spare,) = adapter._snapshot.pool.template.endpoints[1].lb_endpoints
        assert spare.endpoint.address.socket_address.address == "10.0.0.9"


# ---------------------------------------------------------------- several Envoys


@asynccontextmanager
async def black_hole():
    """An admin interface that takes connections, and says nothing."""
    asked = []

    async def swallow(reader, writer) -> None:
        asked.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in asked:
            writer.close()
        await server.wait_closed()


async def test_an_envoy_whose_computer_is_gone_costs_its_time_limit_once(fake_harness):
    async with fake_harness() as harness, black_hole() as port:
        admin = [f"http://127.0.0.1:{harness.fake.admin_port}", f"http://127.0.0.1:{port}"]
        async with another(harness, admin=admin, timeout_s=30.0) as adapter:
            begun_s = time.monotonic()
            await adapter.read()  # a second
            assert (await adapter.apply({"s1": 7}, version=1)).ok
            for version in range(2, 12):
                assert (await adapter.apply({"s1": version}, version=version)).ok
            assert time.monotonic() - begun_s < 5.0
            assert adapter.events["admin_unreachable"] >= 12
            assert (await adapter.read()).meaning.balancers == 2


async def test_of_two_envoys_the_one_that_has_a_shift_counts(fake_harness):
    async with fake_harness() as harness:
        await harness.adapter.apply({"s1": 7}, version=1)
        await harness.adapter.aclose()
        fresh = FakeEnvoy(harness.where, node="edge-0", admin_port=free_port())
        await fresh.start()
        # The one that has just come up is asked first.
        admin = [f"http://127.0.0.1:{one.admin_port}" for one in (fresh, harness.fake)]
        try:
            async with another(harness, admin=admin) as adapter:
                await adapter._open()
                await until(lambda: fresh.hosts)
                assert fresh.hosts["10.0.0.1", 80].weight == 100
                await adapter.read()
                await until(lambda: fresh.hosts["10.0.0.1", 80].weight == 7)
                assert await weights(adapter) == CONFIGURED | {"s1": 7}
        finally:
            await fresh.stop()


class Slow(FakeEnvoy):
    """Says what it makes of an answer when it is told to."""

    go: asyncio.Event

    async def _ask(self, channel) -> None:
        stream = AggregatedDiscoveryServiceStub(channel).DeltaAggregatedResources()
        await stream.write(self._first())
        async for answer in stream:
            await self.go.wait()
            await stream.write(self._judged(answer))
            self.answers += 1


async def test_a_slow_envoy_does_not_keep_what_another_one_refused(fake_harness):
    async with fake_harness() as harness:
        slow = Slow(harness.where, node="edge-2")
        slow.go = asyncio.Event()
        slow.go.set()
        await slow.start()
        try:
            admin = [f"http://127.0.0.1:{one.admin_port}" for one in (harness.fake, slow)]
            async with another(harness, admin=admin) as adapter:
                await adapter.read()
                await until(lambda: slow.hosts and len(adapter._server.clients) == 2)
                assert (await adapter.apply({"s1": 7}, version=1)).ok
                slow.go.clear()
                answers = slow.answers
                harness.fake.refuse = "no"
                report = await adapter.apply({"s1": 9}, version=2)
                assert not report.ok
                harness.fake.refuse = ""
                slow.go.set()
                # It takes what was on its way, and then what was sent after it.
                await until(lambda: slow.answers == answers + 2)
                assert slow.hosts["10.0.0.1", 80].weight == 7
                assert await weights(adapter) == CONFIGURED | {"s1": 7}
        finally:
            await slow.stop()


async def test_a_servers_name_is_in_the_metadata_and_in_no_traffic(fake_harness):
    async with fake_harness() as harness:
        await harness.adapter.read()
        sent = harness.adapter._snapshot.pool.assignment(CONFIGURED)
        (locality,) = sent.endpoints
        assert {member.endpoint.hostname for member in locality.lb_endpoints} == {""}
        named = [member.metadata.filter_metadata["dial"] for member in locality.lb_endpoints]
        assert [one["server"] for one in named] == list(CONFIGURED)


async def test_a_stream_that_asks_for_nothing_is_ended(fake_harness, monkeypatch):
    monkeypatch.setattr("dial_envoy.server.FIRST_REQUEST_S", 0.05)
    async with fake_harness() as harness:
        options = (("grpc.enable_http_proxy", 0),)
        async with aio.insecure_channel(harness.where, options=options) as channel:
            stream = AggregatedDiscoveryServiceStub(channel).DeltaAggregatedResources()
            with pytest.raises(aio.AioRpcError, match="nothing was asked for"):
                await stream.read()
        await until(lambda: len(harness.adapter._server.clients) == 1)


async def test_streams_of_the_log_are_bounded(fake_harness, monkeypatch):
    monkeypatch.setattr("dial_envoy.server.MAX_LOG_STREAMS", 0)
    async with fake_harness() as harness:
        with pytest.raises(aio.AioRpcError, match="0 streams of the access log are open"):
            await send_log(harness.where, [entry("app", ("10.0.0.1", 80))])
        assert harness.adapter.events["xds_too_many_streams"] == 1
