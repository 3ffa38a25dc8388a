"""The three gRPC services as Envoy calls them; what they do is :mod:`dial_envoy.server`'s."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol

import grpc.aio
from envoy.service.accesslog.v3 import als_pb2_grpc
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsResponse
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.endpoint.v3 import eds_pb2_grpc


class Streams(Protocol):
    """Who serves the streams; grpc's contexts and the messages come without annotations."""

    def discover(self, requests: Any, context: Any, *, is_delta: bool) -> AsyncGenerator[Any, None]:
        """Serve one stream of discovery."""

    async def take_logs(self, messages: Any, context: Any) -> None:
        """Read one stream of the access log."""


def register(server: grpc.aio.Server, streams: Streams) -> None:
    """Let a gRPC server offer the services."""
    eds_pb2_grpc.add_EndpointDiscoveryServiceServicer_to_server(Eds(streams), server)
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(Ads(streams), server)
    als_pb2_grpc.add_AccessLogServiceServicer_to_server(Als(streams), server)


class Eds(eds_pb2_grpc.EndpointDiscoveryServiceServicer):  # type: ignore[misc] # untyped
    """``EndpointDiscoveryService``."""

    def __init__(self, server: Streams) -> None:
        self._server = server

    async def StreamEndpoints(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - gRPC's
        """State of the world."""
        async with aclosing(self._server.discover(requests, context, is_delta=False)) as answers:
            async for answer in answers:
                yield answer

    async def DeltaEndpoints(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Incremental."""
        async with aclosing(self._server.discover(requests, context, is_delta=True)) as answers:
            async for answer in answers:
                yield answer


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):  # type: ignore[misc]
    """``AggregatedDiscoveryService``, of which endpoints are all we have."""

    def __init__(self, server: Streams) -> None:
        eds = Eds(server)
        self.StreamAggregatedResources = eds.StreamEndpoints
        self.DeltaAggregatedResources = eds.DeltaEndpoints


class Als(als_pb2_grpc.AccessLogServiceServicer):  # type: ignore[misc]
    """``AccessLogService``."""

    def __init__(self, server: Streams) -> None:
        self._server = server

    async def StreamAccessLogs(self, messages: Any, context: Any) -> StreamAccessLogsResponse:  # noqa: N802
        """Read until Envoy ends it."""
        await self._server.take_logs(messages, context)
        return StreamAccessLogsResponse()
