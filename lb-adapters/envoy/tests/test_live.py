"""A real Envoy under load: weight changes, refusals, a control plane that dies."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from contextlib import asynccontextmanager

import httpx
import pytest

import dial_envoy
from dial.conformance import reading_log
from dial.lease import Lease, LeaseFile, Moment
from dial.watchdog import Watchdog
from dial_envoy.example import SERVED_BY

TOKEN = "0123456789abcdef0123456789abcdef"


class Load:
    """Requests one after another on some connections; who answered, and what failed."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.failed: list[object] = []
        self.served: list[str] = []

    async def one(self, client: httpx.AsyncClient) -> None:
        while True:
            try:
                answer = await client.get(self.url)
            except httpx.HTTPError as error:
                self.failed.append(error)
                continue
            if answer.status_code != 200:
                self.failed.append(answer.status_code)
            self.served.append(answer.headers.get(SERVED_BY, "-"))

    async def shares(self, requests: int) -> dict[str, float]:
        """Of the next requests."""
        begin = len(self.served)
        while len(self.served) < begin + requests:  # noqa: ASYNC110 - some tasks add to it
            await asyncio.sleep(0.01)
        counts = Counter(self.served[begin:])
        return {name: count / counts.total() for name, count in counts.items()}


@asynccontextmanager
async def load_on(harness):
    load = Load(harness.port)
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        tasks = [asyncio.create_task(load.one(client)) for _ in range(4)]
        try:
            yield load
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def weights(adapter) -> dict[str, int]:
    return {s.name: s.weight for s in (await adapter.read()).servers}


async def test_a_control_plane_that_dies_under_load_leaves_the_split_and_takes_over_again(
    real_harness,
):
    async with real_harness() as harness, load_on(harness) as load:
        shifted = {"s1": 10, "s2": 95, "s3": 95}
        assert (await harness.adapter.apply(shifted, version=1)).ok
        await load.shares(50)
        assert (await load.shares(200))["s1"] == pytest.approx(0.05, abs=0.02)

        await harness.adapter.aclose()
        assert (await load.shares(200))["s1"] == pytest.approx(0.05, abs=0.02)

        again = dial_envoy.create("app", harness.own_options())
        try:
            begin = len(load.served)
            assert await weights(again) == shifted
            assert (await again.apply(shifted, version=1)).ok  # it is connected again
            after = Counter(load.served[begin:])
            assert after["s1"] <= 0.07 * after.total() + 1
            assert (await load.shares(200))["s1"] == pytest.approx(0.05, abs=0.02)
            assert (await again.apply({"s1": 95}, version=2)).ok
            await load.shares(50)
            assert (await load.shares(200))["s1"] == pytest.approx(1 / 3, abs=0.05)
        finally:
            await again.aclose()
        assert load.failed == []


async def test_the_watchdog_puts_configured_weights_back_and_gives_the_port_back(
    real_harness, directory
):
    async with real_harness() as harness, load_on(harness) as load:
        assert (await harness.adapter.apply({"s1": 7}, version=1)).ok
        await harness.adapter.aclose()  # as if it had been killed
        file = LeaseFile(directory / "app.lease", "app")
        file.write(Lease("app", {"s1": (7,)}, Moment("an earlier boot", 0.0), 1.0, 4711))
        watching = dial_envoy.create("app", harness.own_options())
        await Watchdog(file, watching).look()
        assert file.read() is None
        again = dial_envoy.create("app", harness.own_options())
        try:
            assert await weights(again) == {"s1": 100, "s2": 100, "s3": 100}
        finally:
            await again.aclose()
        assert load.failed == []


async def test_what_a_real_envoy_refuses_stays_as_it_was(real_harness):
    async with real_harness() as harness, load_on(harness) as load:
        adapter = harness.adapter
        assert (await adapter.apply({"s1": 7}, version=1)).ok
        # A spare server of the administrator's own, of weight 0: Envoy refuses all of the message.
        pool = adapter._pools.pool
        spare = pool.template.endpoints.add(priority=1)
        member = spare.lb_endpoints.add()
        member.endpoint.address.socket_address.address = "127.0.0.1"
        member.endpoint.address.socket_address.port_value = 9
        member.load_balancing_weight.SetInParent()
        report = await adapter.apply({"s1": 9}, version=2)
        del pool.template.endpoints[1]
        assert dict(report.in_effect) == {"s1": 7}
        assert "refuses it" in dict(report.failures)["s1"]
        assert adapter.events["xds_nacks"] >= 1
        assert (await adapter.apply({"s1": 8}, version=3)).ok
        await load.shares(20)
        assert load.failed == []


async def test_an_endpoints_file_that_a_real_envoy_refuses_is_taken_back(real_harness, directory):
    path = directory / "endpoints.json"
    async with real_harness() as harness, load_on(harness) as load:
        assert (await harness.adapter.apply({"s1": 7}, version=1)).ok
        await harness.adapter.aclose()

        def write(spare: str) -> None:
            """The harness's servers, and a spare one of the second priority."""

            def member(host: str, port: int) -> dict[str, object]:
                address = {"socket_address": {"address": host, "port_value": port}}
                return {"endpoint": {"address": address}, "load_balancing_weight": 100}

            first = [member("127.0.0.1", one.port) for one in harness.members.values()]
            first = [
                one | {"endpoint": one["endpoint"] | {"hostname": name}}
                for name, one in zip(harness.members, first, strict=True)
            ]
            groups = [
                {"lb_endpoints": first},
                {"priority": 1, "lb_endpoints": [member(spare, 9)]},
            ]
            path.write_text(json.dumps({"cluster_name": "app", "endpoints": groups}))

        write("127.0.0.9")
        options = harness.own_options() | {"endpoints_file": str(path)}
        del options["endpoints"]
        again = dial_envoy.create("app", options)
        try:
            shifted = {"s1": 7, "s2": 100, "s3": 100}
            assert await weights(again) == shifted
            assert (await again.apply(shifted, version=1)).ok
            write("spare.example")  # endpoint discovery knows addresses only
            assert await weights(again) == shifted
            assert again.events["endpoints_file_refused"] == 1
            assert again.events["xds_nacks"] >= 1
            assert (await again.apply({"s1": 9}, version=2)).ok
            assert load.failed == []
            # One that comes up now gets what is known to work.
            await harness.restart()
            assert await weights(again) == shifted | {"s1": 9}
        finally:
            await again.aclose()


async def test_a_bias_of_0_as_a_real_envoy_prints_it_makes_a_round_robin(real_harness):
    policy = """LEAST_REQUEST
    least_request_lb_config:
      active_request_bias: {default_value: 0.0, runtime_key: app.bias}"""
    async with real_harness(policy) as harness:
        assert (await harness.adapter.read()).meaning.in_flight_bias == 0.0


async def test_weight_0_takes_a_server_out_of_a_real_envoy_and_a_weight_brings_it_back(
    real_harness,
):
    async with real_harness("LEAST_REQUEST") as harness, load_on(harness) as load:
        assert (await harness.adapter.apply({"s1": 0}, version=1)).ok
        await load.shares(20)
        assert "s1" not in await load.shares(100)
        assert {s.name: s.usable for s in (await harness.adapter.read()).servers}["s1"]
        assert (await harness.adapter.apply({"s1": 100}, version=2)).ok
        await load.shares(20)
        assert "s1" in await load.shares(100)
        assert load.failed == []


async def test_failures_are_told_from_requests_that_reached_nobody(real_harness):
    async with real_harness() as harness, reading_log(harness) as log:
        await harness.send(1)
        for path in ("/503", "/drop", "/404"):
            await harness.get(path)
        await log.until(rows=4)
        failed = [bool(one) for batch in log.batches for one in batch.failed]
        # A log stream per worker keeps their order, and there is one worker.
        assert failed[-4:] == [False, True, True, False]


def certificates(directory) -> None:
    """An authority, and a certificate of it for each side."""
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    make += ["-nodes", "-days", "2"]

    def run(*more: str) -> None:
        subprocess.run([*make, *more], cwd=directory, check=True, capture_output=True)

    run("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")
    for name in ("server", "client"):
        run(
            *("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
        )


TLS = """\
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      common_tls_context:
        validation_context: {{trusted_ca: {{filename: {0}/ca.pem}}}}
        {1}
"""
OWN = """tls_certificates:
        - certificate_chain: {{filename: {0}/client.pem}}
          private_key: {{filename: {0}/client.key}}"""


@pytest.mark.parametrize("has_certificate", [True, False])
async def test_with_tls_an_envoy_needs_a_certificate_and_the_token(
    real_harness, directory, monkeypatch, has_certificate
):
    certificates(directory)
    (directory / "token").write_text(TOKEN)
    own = OWN.format(directory) if has_certificate else ""
    plain = dial_envoy.config.xds_cluster
    monkeypatch.setattr(
        dial_envoy.config,
        "xds_cluster",
        lambda *where: plain(*where) + TLS.format(directory, own),
    )
    if not has_certificate:
        monkeypatch.setattr(dial_envoy.access, "CALL_WITHIN_S", 0.1)
    options = {
        "heartbeat_s": 1.0,
        "token_file": str(directory / "token"),
        "tls_cert_file": str(directory / "server.pem"),
        "tls_key_file": str(directory / "server.key"),
        "tls_client_ca_file": str(directory / "ca.pem"),
        "timeout_s": 2.0,
    }
    async with real_harness(token=TOKEN, wait=has_certificate, **options) as harness:
        if has_certificate:
            assert (await harness.adapter.apply({"s1": 7}, version=1)).ok
            assert await weights(harness.adapter) == {"s1": 7, "s2": 100, "s3": 100}
            assert harness.adapter.events["xds_tls_refused"] == 0
            return

        async def turned_away() -> bool:
            stats = await harness.adapter._admin[0].stats(
                "cluster.dial.ssl.connection_error", "cluster.dial.upstream_cx_connect_fail"
            )
            return sum(stats.values()) > 0

        async def counted() -> bool:
            return harness.adapter.events["xds_tls_refused"] > 0

        await harness.until(turned_away)
        await harness.until(counted)
        assert harness.adapter._server.clients == ()
        assert (await harness.adapter._views())[0].hosts == {}
