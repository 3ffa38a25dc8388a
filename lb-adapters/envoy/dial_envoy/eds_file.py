"""Endpoint discovery from a file, for those who want no gRPC.

Envoy watches the file's directory and acts on a rename (a write in place it does not see), so the
file is replaced whole.  What it cannot use it refuses, and goes on with what it has.

Others may write the file as well: the watchdog, the administrator, his configuration management.
What DIAL wrote says so by its version, which is a digest of the content.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from google.protobuf.json_format import MessageToJson

from dial.errors import BalancerRefused, BalancerUnreachable
from dial_envoy.endpoints import MAX_FILE_BYTES, METADATA, Pool, load_document, parse_pool
from dial_envoy.pool_source import stamp
from dial_envoy.snapshot import Snapshot, content_of, is_version_of, pool_part

_MODE = 0o644
"""Envoy runs as a user of its own, and the file says nothing that is secret."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the file holds.

    Attributes
    ----------
    template
        The assignment; ``None`` where it cannot be read, or is another cluster's.
    made_of
        Version of the pool that DIAL made it of; empty where it is somebody else's.
    """

    template: ClusterLoadAssignment | None
    made_of: str


class EdsFile:
    """The file that one cluster's ``path_config_source`` names.

    Parameters
    ----------
    path
        Of the file; its directory has to be ours to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: tuple[int, ...] = ()

    def held(self, resource: str) -> Held | None:
        """What it holds now, whoever wrote it; ``None`` if it is not there.

        Raises
        ------
        BalancerUnreachable
            If it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                text = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BalancerUnreachable(
                f"xds file:{self.path}: cannot be read: {error.strerror}"
            ) from error
        try:
            template = parse_pool(text, resource).template
            document = load_document(text)
        except ValueError:
            return Held(None, "")
        version = document.get("version_info") if isinstance(document, dict) else None
        if isinstance(version, str) and is_version_of(version, content_of(template)):
            return Held(template, pool_part(version))
        return Held(template, "")

    def refuse_if_it_says_more(self, pool: Pool) -> None:
        """Before it is replaced: nothing that somebody else wrote there is to be lost.

        Raises
        ------
        BalancerRefused
            If it differs from ``pool`` in more than weights, and DIAL did not write it.
        """
        if self._written and self._written == stamp(self.path):
            return
        held = self.held(pool.template.cluster_name)
        if held is None or held.made_of:
            return
        if held.template is None or _unweighted(held.template) != _unweighted(pool.template):
            raise BalancerRefused(
                f"xds file:{self.path}: was written by somebody else, with other servers, "
                "localities, metadata or health statuses than DIAL's options have; copy it, name "
                "the copy as endpoints_file, or remove it; nothing was written"
            )

    def publish(self, snapshot: Snapshot) -> None:
        """Put ``snapshot`` in place of what is there, whoever wrote that.

        Raises
        ------
        BalancerUnreachable
            If it cannot be written; what was there still is.
        """
        text = MessageToJson(snapshot.response, preserving_proto_field_name=True)
        beside = self.path.with_name(f".{self.path.name}.new")
        try:
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _MODE)
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                # Whatever the umask: ours is usually one that hides the lease from others.
                os.fchmod(file, _MODE)
                stream.write(text)
            self._written = stamp(beside)
            beside.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise BalancerUnreachable(
                f"xds file:{self.path}: cannot be written: {error.strerror}"
            ) from error


def _unweighted(assignment: ClusterLoadAssignment) -> ClusterLoadAssignment:
    """What is the administrator's of it: neither weights, nor the names that we note."""
    made = ClusterLoadAssignment()
    made.CopyFrom(assignment)
    for locality in made.endpoints:
        for member in locality.lb_endpoints:
            member.ClearField("load_balancing_weight")
            if METADATA in member.metadata.filter_metadata:
                del member.metadata.filter_metadata[METADATA]
            if not member.metadata.ListFields():
                member.ClearField("metadata")
    return made
