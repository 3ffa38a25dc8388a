"""One Envoy's wish for endpoints on one stream: requests in, answers out, no I/O.

Problem
    Envoy asks, is answered, and says of each answer whether it took it (ACK) or not (NACK, with
    the reason).  Requests and answers cross on the wire, so a request may speak of an answer that
    is not the newest.

Rules (xDS protocol, "Streaming gRPC subscriptions")
    - A request that carries the nonce of the newest answer is its ACK, or with ``error_detail``
      its NACK.  One with an older nonce says nothing about the newest; names that it adds count.
    - A stream's first request names what Envoy has already (``version_info``, or
      ``initial_resource_versions``), from before the control plane went away.
    - Both dialects do the same: *state of the world* names all that is wanted in each request,
      *incremental* names what is added and what is no longer wanted.

Departure
    An answer is due whenever something that we have is asked for anew, also where Envoy has its
    newest version already: one message more, and nobody waits for one that never comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)

from dial_envoy.snapshot import TYPE_URL, Snapshot

MAX_SAID = 300
"""Characters kept of what Envoy says."""

MAX_UNKNOWN = 1000
"""Names kept of those asked for that we do not have."""


class Heard(Enum):
    """What a request was."""

    ASKED = auto()
    """For what we have: an answer is due."""
    ACKED = auto()
    NACKED = auto()
    UNKNOWN = auto()
    """For names that we do not have, or not any more for ours: nothing to answer."""
    STALE = auto()
    """About an answer that is not the newest one."""


@dataclass(slots=True)
class Subscription:
    """State of one stream.

    Attributes
    ----------
    resource
        The name that we have.
    is_delta
        Which dialect is spoken.
    had
        Version that Envoy had of it when the stream began; empty where it had none.
    acked
        Version that it took last on this stream.
    wanted
        Whether it asks for our name.
    unknown
        Names asked for that we do not have.
    rejected
        The newest answer's version, if it refused that, and what it said.
    """

    resource: str
    is_delta: bool
    had: str = ""
    acked: str = ""
    wanted: bool = False
    unknown: set[str] = field(default_factory=set)
    rejected: tuple[str, str] | None = None
    _nonce: int = 0
    _sent: str = ""
    _is_open: bool = False
    """While the newest answer has neither been taken nor refused."""
    _is_new: bool = True

    @property
    def answered(self) -> bool:
        """Whether anything has been sent on this stream."""
        return self._nonce > 0

    def is_due(self, version: str) -> bool:
        """Whether this version has to be sent: it is not what was sent last, or was refused.

        What was taken before does not count: another one may be on its way, which would be taken
        after it.
        """
        return not self.answered or self._sent != version or self.rejected is not None

    def has_said(self, version: str) -> bool:
        """Whether this version was sent last, and Envoy has taken or refused it.

        One that came back with it, and was sent nothing since, has it as well.
        """
        if not self.answered:
            return self.had == version
        return self._sent == version and not self._is_open

    def hear(self, request: DiscoveryRequest | DeltaDiscoveryRequest) -> Heard:
        """Take a request in."""
        if isinstance(request, DiscoveryRequest):
            asked_anew = self._names(request.resource_names, ())
            first_version = request.version_info
        else:
            asked_anew = self._names(
                request.resource_names_subscribe, request.resource_names_unsubscribe
            )
            first_version = request.initial_resource_versions.get(self.resource, "")
        if self._is_new:
            self._is_new = False
            self.had = first_version
        if asked_anew:
            return Heard.ASKED
        if request.response_nonce:
            return self._of_an_answer(request)
        return Heard.UNKNOWN

    def _of_an_answer(self, request: DiscoveryRequest | DeltaDiscoveryRequest) -> Heard:
        if request.response_nonce != str(self._nonce):
            return Heard.STALE
        self._is_open = False
        if request.HasField("error_detail"):
            said = ascii(" ".join(request.error_detail.message.split())[:MAX_SAID])[1:-1]
            self.rejected = (self._sent, said or f"code {request.error_detail.code}")
            return Heard.NACKED
        self.acked = self._sent
        self.rejected = None
        return Heard.ACKED

    def _names(self, names: Iterable[str], dropped: Iterable[str]) -> bool:
        """Note what is wanted; whether our name is asked for anew."""
        before = self.wanted
        if self.is_delta:
            added = set(names)
            gone = set(dropped)
            self.unknown = _bounded((self.unknown | added) - gone - {self.resource})
            self.wanted = self.resource in added or (before and self.resource not in gone)
            return self.resource in added
        wanted = set(names)
        self.unknown = _bounded(wanted - {self.resource})
        self.wanted = self.resource in wanted
        return self.wanted and not before

    def answer(self, snapshot: Snapshot) -> DiscoveryResponse | DeltaDiscoveryResponse:
        """The next answer, which Envoy is to ACK."""
        self._nonce += 1
        self._sent = snapshot.version
        self._is_open = True
        self.rejected = None
        if self.is_delta:
            return DeltaDiscoveryResponse(
                system_version_info=snapshot.version,
                type_url=TYPE_URL,
                resources=[snapshot.resource],
                # So that Envoy need not wait for what will not come.
                removed_resources=sorted(self.unknown),
                nonce=str(self._nonce),
            )
        response = snapshot.response
        response.nonce = str(self._nonce)
        return response


def _bounded(names: set[str]) -> set[str]:
    return names if len(names) <= MAX_UNKNOWN else set(sorted(names)[:MAX_UNKNOWN])
