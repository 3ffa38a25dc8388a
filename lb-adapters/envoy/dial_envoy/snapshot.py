"""What is to be in force, as one immutable value with a version."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryResponse, Resource
from google.protobuf.any_pb2 import Any

from dial_envoy.endpoints import Pool

TYPE_URL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A pool with weights.

    Attributes
    ----------
    version
        A digest of the content.  Equal content has an equal version, in another process too: an
        Envoy that comes back and names the version it has need not be sent anything new.  It
        begins with a digest of the pool as configured, whatever the weights.
    """

    pool: Pool
    weights: Mapping[str, int]
    body: Any
    version: str

    @classmethod
    def of(cls, pool: Pool, weights: Mapping[str, int]) -> Self:
        """Fill the weights in; those of servers that are not named are the configured ones."""
        known = {name: weights.get(name, weight) for name, weight in pool.configured.items()}
        content = content_of(pool.assignment(known))
        version = f"{_digest(content_of(pool.template))}-{_digest(content)}"
        return cls(pool, MappingProxyType(known), Any(type_url=TYPE_URL, value=content), version)

    @property
    def resource(self) -> Resource:
        """As incremental discovery sends it."""
        name = self.pool.template.cluster_name
        return Resource(name=name, version=self.version, resource=self.body)

    @property
    def response(self) -> DiscoveryResponse:
        """As a file holds it."""
        return DiscoveryResponse(
            version_info=self.version, type_url=TYPE_URL, resources=[self.body]
        )


def content_of(assignment: ClusterLoadAssignment) -> bytes:
    """Equal for equal messages: a map in the metadata has no order of its own."""
    return bytes(assignment.SerializeToString(deterministic=True))


def is_version_of(version: str, content: bytes) -> bool:
    """Whether a snapshot with this version has this content."""
    return version.partition("-")[2] == _digest(content)


def pool_part(version: str) -> str:
    """The pool's part of a version: equal for equal pools, whatever the weights."""
    return version.partition("-")[0]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
