"""A fake Envoy: asks for endpoints over gRPC, has an admin interface, and logs requests.

It takes and refuses what Envoy 1.40 takes and refuses, as far as weights go: a weight of 0,
weights whose sum does not fit into 32 bits, or a host's name are a NACK, and what it had stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address

import grpc.aio
from envoy.config.core.v3.health_check_pb2 import DRAINING
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage
from envoy.service.accesslog.v3.als_pb2_grpc import AccessLogServiceStub
from envoy.service.discovery.v3.ads_pb2_grpc import AggregatedDiscoveryServiceStub
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)
from google.protobuf.duration_pb2 import Duration

from dial_envoy.endpoints import HostPort
from dial_envoy.snapshot import TYPE_URL

RECONNECT_S = 0.02
_MAX_SUM = 2**32 - 1
_DIRECT = (("grpc.enable_http_proxy", 0),)
"""A proxy for the web is none for a peer on this computer."""


@dataclass(slots=True)
class FakeHost:
    """A host as the fake has it."""

    weight: int
    health: str = "HEALTHY"
    requests: int = 0


@dataclass(slots=True)
class FakeEnvoy:
    """One cluster of one Envoy.

    Parameters
    ----------
    xds
        ``host:port`` of the control plane.
    service
        Name of the cluster, and of what it asks for.
    is_delta
        Which dialect it speaks.
    policy
        Its ``lb_policy``.
    refuse
        Said instead of an ACK, if anything: it then refuses all it is sent.
    """

    xds: str
    service: str = "app"
    is_delta: bool = True
    policy: str = "ROUND_ROBIN"
    node: str = "edge-1"
    token: str = ""
    refuse: str = ""
    admin_port: int = 0
    hosts: dict[HostPort, FakeHost] = field(default_factory=dict)
    version: str = ""
    answers: int = 0
    """Answers of the control plane so far."""
    ended_with: str = ""
    """What the control plane said when it last ended the stream."""
    _started_s: float = field(default_factory=time.time)
    _admin: asyncio.Server | None = None
    _asking: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ lifecycle

    async def start(self) -> None:
        """Open the admin interface, and begin to ask."""
        self._admin = await asyncio.start_server(self._serve, "127.0.0.1", self.admin_port)
        self.admin_port = int(self._admin.sockets[0].getsockname()[1])
        self._asking = asyncio.create_task(self._ask_for_ever())

    async def stop(self) -> None:
        """Stop for good."""
        await self.disconnect()
        if self._admin is not None:
            self._admin.close()
            await self._admin.wait_closed()
            self._admin = None

    async def disconnect(self) -> None:
        """Ask no more; what is in force stays."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
            self._asking = None

    def connect(self) -> None:
        """Ask again."""
        self._asking = asyncio.create_task(self._ask_for_ever())

    async def restart(self) -> None:
        """Forget everything, and ask anew."""
        await self.stop()
        self.hosts, self.version = {}, ""
        self._started_s = max(time.time(), self._started_s + 0.001)
        await self.start()

    # ------------------------------------------------------------------ discovery

    async def _ask_for_ever(self) -> None:
        task = asyncio.current_task()
        # A cancellation that meets the end of a stream comes out of gRPC as that end, and is lost.
        while task is None or not task.cancelling():
            try:
                async with grpc.aio.insecure_channel(self.xds, options=_DIRECT) as channel:
                    await self._ask(channel)
            except grpc.aio.AioRpcError as error:
                self.ended_with = f"{error.code().name}: {error.details()}"
            await asyncio.sleep(RECONNECT_S)

    async def _ask(self, channel: grpc.aio.Channel) -> None:
        stub = AggregatedDiscoveryServiceStub(channel)
        ask = stub.DeltaAggregatedResources if self.is_delta else stub.StreamAggregatedResources
        metadata = [("authorization", f"Bearer {self.token}")] if self.token else None
        stream = ask(metadata=metadata)
        await stream.write(self._first())
        async for answer in stream:
            self.answers += 1
            await stream.write(self._judged(answer))

    def _first(self) -> DiscoveryRequest | DeltaDiscoveryRequest:
        if not self.is_delta:
            request = DiscoveryRequest(
                type_url=TYPE_URL, resource_names=[self.service], version_info=self.version
            )
        else:
            request = DeltaDiscoveryRequest(
                type_url=TYPE_URL,
                resource_names_subscribe=[self.service],
                initial_resource_versions={self.service: self.version} if self.version else {},
            )
        request.node.id = self.node
        return request

    def _judged(
        self, answer: DiscoveryResponse | DeltaDiscoveryResponse
    ) -> DiscoveryRequest | DeltaDiscoveryRequest:
        """Take what was sent, or refuse it."""
        for sent in answer.resources:
            body = sent.resource if self.is_delta else sent
            version = sent.version if self.is_delta else answer.version_info
            wrong = self.refuse or self._take(body.value)
            if not wrong:
                self.version = version
        if self.is_delta:
            said = DeltaDiscoveryRequest(type_url=TYPE_URL, response_nonce=answer.nonce)
        else:
            said = DiscoveryRequest(
                type_url=TYPE_URL,
                resource_names=[self.service],
                version_info=self.version,
                response_nonce=answer.nonce,
            )
        if wrong:
            said.error_detail.code = 13
            said.error_detail.message = wrong
        return said

    def _take(self, body: bytes) -> str:
        assignment = ClusterLoadAssignment.FromString(body)
        found: dict[HostPort, FakeHost] = {}
        for locality in assignment.endpoints:
            for member in locality.lb_endpoints:
                socket = member.endpoint.address.socket_address
                if not _is_ip(socket.address):
                    return f"malformed IP address: {socket.address}"
                address = (socket.address, int(socket.port_value))
                weight = member.load_balancing_weight.value
                before = self.hosts.get(address, FakeHost(0)).requests
                health = "DRAINING" if member.health_status == DRAINING else "HEALTHY"
                found[address] = FakeHost(weight, health, before)
        if any(host.weight == 0 for host in found.values()):
            return "LoadBalancingWeight: value must be greater than or equal to 1"
        if sum(host.weight for host in found.values()) > _MAX_SUM:
            return "The sum of weights of all endpoints in a locality exceeds the limit"
        self.hosts = found
        return ""

    # ------------------------------------------------------------------ requests

    def serve(self, requests: int) -> list[HTTPAccessLogEntry]:
        """Spread requests in turn over what is in force; their log entries."""
        usable = [address for address, host in self.hosts.items() if host.health == "HEALTHY"]
        served = []
        for number in range(requests):
            address = usable[number % len(usable)]
            self.hosts[address].requests += 1
            served.append(entry(self.service, address))
        return served

    # ------------------------------------------------------------------ admin

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode().partition("?")[0]
            body = json.dumps(self._answers().get(path, {})).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            )
            writer.write(body)
            await writer.drain()
        writer.close()

    def _answers(self) -> dict[str, object]:
        started = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._started_s))
        statuses = [
            {
                "address": {"socket_address": {"address": host, "port_value": port}},
                "stats": [
                    {"name": "rq_total", "value": str(one.requests)},
                    {"name": "rq_error"},
                    {"type": "GAUGE", "name": "rq_active"},
                ],
                "health_status": {"eds_health_status": one.health},
                "weight": one.weight,
            }
            for (host, port), one in self.hosts.items()
        ]
        cluster = {
            "name": self.service,
            "type": "EDS",
            "eds_cluster_config": {"eds_config": {"ads": {}}},
            "lb_policy": self.policy,
        }
        return {
            "/clusters": {"cluster_statuses": [{"name": self.service, "host_statuses": statuses}]},
            "/config_dump": {
                "configs": [
                    {
                        "cluster": cluster,
                        "last_updated": f"{started}.{int(self._started_s * 1e3) % 1000:03d}Z",
                    }
                ]
            },
            "/stats": {"stats": []},
        }


def _is_ip(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ip_address(text))
    return False


def entry(cluster: str, address: HostPort, *, took_ms: float = 1.4) -> HTTPAccessLogEntry:
    """One finished request, as Envoy logs it."""
    made = HTTPAccessLogEntry()
    common = made.common_properties
    common.start_time.FromNanoseconds(int((time.time() - took_ms * 1e-3) * 1e9))
    common.time_to_last_rx_byte.CopyFrom(_duration(0.05))
    common.time_to_first_upstream_tx_byte.CopyFrom(_duration(0.1))
    common.time_to_first_upstream_rx_byte.CopyFrom(_duration(took_ms * 0.9))
    common.time_to_last_upstream_rx_byte.CopyFrom(_duration(took_ms))
    common.upstream_cluster = cluster
    common.upstream_request_attempt_count = 1
    socket = common.upstream_remote_address.socket_address
    socket.address, socket.port_value = address
    made.response.response_code.value = 200
    return made


def _duration(ms: float) -> Duration:
    return Duration(nanos=int(ms * 1e6))


async def send_log(where: str, entries: Iterable[HTTPAccessLogEntry], *, token: str = "") -> None:
    """Send entries in one message, and wait until they were taken."""
    message = StreamAccessLogsMessage()
    message.http_logs.log_entry.extend(entries)

    async def messages() -> AsyncIterator[StreamAccessLogsMessage]:
        yield message

    metadata = [("authorization", f"Bearer {token}")] if token else None
    async with grpc.aio.insecure_channel(where, options=_DIRECT) as channel:
        await AccessLogServiceStub(channel).StreamAccessLogs(messages(), metadata=metadata)
