"""The adapter: endpoint discovery, access log and admin interface behind DIAL's protocol.

Weights in force are what Envoy's admin interface shows, never what was sent.  A snapshot is sent,
an ACK or a NACK is waited for, then all is read back.  What an Envoy refuses is taken back: the
last snapshot that was in force is sent to all again, so that none differs from the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import index
from pathlib import Path

from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage

from dial.adapter import Finding, RequestBatch, Severity
from dial.errors import BalancerError, BalancerRefused, BalancerUnreachable, SettingError, StalePlan
from dial.logs import FollowedFile, Follower, LogStream, Sink, Source
from dial.types import ApplyReport, BalancerState
from dial_envoy import state
from dial_envoy.admin import AdminClient, View
from dial_envoy.eds_file import EdsFile
from dial_envoy.endpoints import MAX_WEIGHT, Pool
from dial_envoy.fleet import SOON_S, Fleet
from dial_envoy.options import Address, Options
from dial_envoy.pool_source import PoolSource
from dial_envoy.requests import Attribution, JsonLines, of_entries
from dial_envoy.running import find
from dial_envoy.server import Settled, XdsServer
from dial_envoy.snapshot import Snapshot, pool_part

_log = logging.getLogger(__name__)

_READ_BACK_EVERY_S = 0.02
"""Between two looks whether weights are in force; Envoy acts on a renamed file within 3 ms."""

_TAKE_BACK_S = 1.0
"""Longest wait until what one Envoy has refused is taken back from the others."""

_SHOWN_BYTES = 80
"""Of a log line that cannot be read: not yet a path, which may hold somebody's secret."""

EVENTS = (
    "xds_acks",
    "xds_nacks",
    "xds_unknown_cluster",
    "xds_unknown_node",
    "xds_unknown_type",
    "xds_bad_token",
    "xds_tls_refused",
    "xds_too_many_streams",
    "xds_silent",
    "log_messages_too_long",
    "admin_unreachable",
    "endpoints_file_refused",
    "not_in_force",
)
"""Kinds of :attr:`EnvoyAdapter.events`; the README says what each is."""


class EnvoyAdapter:
    """One cluster, in one or several Envoys.

    Parameters
    ----------
    service
        Name of the cluster.
    options
        Checked options.
    now_s
        Wall clock for the reports.
    """

    name = "envoy"

    def __init__(
        self, service: str, options: Options, now_s: Callable[[], float] = time.time
    ) -> None:
        self.options = options
        self.events: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))
        """What was refused or went wrong since the adapter was made, by kind."""
        self._service = service
        self._resource = options.resource or service
        self._pools = PoolSource(self._resource, options, self.events)
        self._admin = [AdminClient(address, options.timeout_s) for address in options.admin]
        self._fleet = Fleet(self._admin, service, self.events)
        self._server: XdsServer | None = None
        self._file: EdsFile | None = None
        if options.xds.scheme == "grpc":
            self._server = XdsServer(self._resource, options, self.events)
        else:
            self._file = EdsFile(Path(options.xds.where))
        self._attribution = Attribution(service, lambda: self._pools.pool.by_address)
        self._stream = LogStream(str(options.log), self._open_log, options.max_queued_requests)
        self._now_s = now_s
        self._snapshot: Snapshot | None = None
        self._taken: Snapshot | None = None
        """The last one that all Envoys have taken: what is gone back to from one they refuse."""
        self._applied_version: int | None = None
        # Two writers would read each other's half-written weights back.
        self._writing = asyncio.Lock()

    @property
    def dropped_requests(self) -> int:
        """Logged requests that were dropped because ``requests()`` was read too slowly."""
        return self._stream.dropped_requests

    async def log_opened(self) -> None:
        """Wait until ``requests()``, begun elsewhere, listens: from then on no line is missed."""
        await self._stream.opened.wait()

    # ------------------------------------------------------------------ reading

    async def read(self) -> BalancerState:
        """Servers, counters and weights in force (see the protocol).

        The first reading also finds the weights that are in force already, before any Envoy is
        told any: see :meth:`_begin`.

        Raises
        ------
        BalancerUnreachable
            If an admin interface does not answer, or no Envoy has got endpoints yet.
        """
        snapshot, views = await self._look()
        return state.combine(
            self._service,
            snapshot.pool,
            views,
            snapshot.weights,
            balancers=len(self._admin),
            # A file can be written by others, too.
            sole_writer=self._server is not None,
        )

    async def _look(self) -> tuple[Snapshot, Sequence[View]]:
        """What was sent last, and what each Envoy has."""
        await self._open()
        views = await self._views()
        if self._snapshot is None:
            self._begin(views)
        self._take_back()
        await self._follow_endpoints()
        snapshot = self._in_force()
        if not state.has_hosts(snapshot.pool, views):
            views = await self._first_hosts(snapshot.pool)
        return snapshot, views

    async def _views(self) -> Sequence[View]:
        return await self._fleet.views()

    async def _open(self) -> None:
        """Listen, or write the file if there is none (Envoy does not start without one)."""
        if self._server is not None:
            if not self._server.is_open:
                await self._server.open(Snapshot.of(self._pools.pool, {}))
        elif self._file is not None and not self._file.path.exists():
            if self._snapshot is not None:
                self._publish(self._snapshot)
                return
            views: Sequence[View] = ()
            with contextlib.suppress(BalancerError):
                views = await self._views()
            self._begin(views)

    def _begin(self, views: Sequence[View]) -> None:
        """Go on from the weights in force: the controller may have been away, Envoy was not.

        A file that somebody else wrote is left as it is until weights are to be changed; in one
        that we wrote of another pool the configured weights count: the administrator has changed
        his mind.
        """
        pool = self._pools.pool
        snapshot = Snapshot.of(pool, state.left_in_force(pool, views))
        held = self._file.held(self._resource) if self._file is not None else None
        if held is not None and not held.made_of:
            self._snapshot = snapshot
            return
        if held is not None and held.made_of != pool_part(snapshot.version):
            snapshot = Snapshot.of(pool, {})
        self._publish(snapshot)

    def _take_back(self) -> None:
        """Go back from what an Envoy has refused, whenever it did, to what all have taken."""
        if self._server is None:
            return
        now = self._in_force()
        said = self._server.said(now.version)
        if said.took and not said.trouble:
            self._taken = now
        elif said.refused and self._taken is not None and self._taken.version != now.version:
            self._pools.go_back(self._taken.pool)
            self._publish(self._taken)

    async def _follow_endpoints(self) -> None:
        """Send the endpoints of a file that has changed, unless Envoy refuses them."""
        if not await self._pools.changed():
            return
        before = self._in_force()
        changed = self._pools.after(before)
        settled = await self._send(changed)
        refused = "; ".join(settled.refused) if settled is not None else ""
        if self._file is not None:
            views = await self._read_back(changed, wait=True)
            refused = "; ".join(state.deviating(changed.pool, views, changed.weights).values())
        if refused:
            self.events["endpoints_file_refused"] += 1
            _log.error(
                "endpoints_file %s: %s; the endpoints of before stay",
                self.options.endpoints_file,
                refused,
            )
            self._pools.go_back(before.pool)
            self._publish(before)

    async def _first_hosts(self, pool: Pool) -> Sequence[View]:
        """Wait until an Envoy has got endpoints; it may be on its way to us."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.timeout_s):
                while True:
                    views = await self._views()
                    if state.has_hosts(pool, views):
                        return views
                    await asyncio.sleep(_READ_BACK_EVERY_S)
        raise BalancerUnreachable(
            f"cluster {self._service!r} has none of the endpoints yet: no Envoy has fetched them "
            f"from {self.options.xds}"
        )

    # ------------------------------------------------------------------ writing

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        """Send the weights to every Envoy, and read them back.

        Raises
        ------
        StalePlan
            If ``version`` is lower than one already applied.
        BalancerRefused
            If a weight is outside the range, or 0 where servers cannot be drained (nothing is
            sent then), or the policy has no use for weights.
        UnknownService, BalancerUnreachable
            As the protocol says.
        """
        wanted = {name: _checked(name, weight) for name, weight in weights.items()}
        async with self._writing:
            if self._applied_version is not None and version < self._applied_version:
                raise StalePlan(
                    f"plan {version} for service {self._service!r}: plan {self._applied_version} "
                    "was applied already"
                )
            before, views = await self._look()
            pool = before.pool
            known = {name: weight for name, weight in wanted.items() if name in pool.by_name}
            if 0 in known.values() and not pool.can_drain:
                raise BalancerRefused(
                    f"weight 0 in cluster {self._service!r}: its servers are in several localities "
                    "or priorities, among which Envoy would move load; allowed are 1 to "
                    f"{MAX_WEIGHT}; nothing was sent"
                )
            self._applied_version = version
            refused = dict.fromkeys(wanted.keys() - known.keys(), "no such server in the cluster")
            kept, too_many = state.drainable(pool, views, before.weights, known)
            refused |= too_many
            if self._file is not None:
                self._file.refuse_if_it_says_more(pool)
            settled = await self._send(Snapshot.of(pool, {**before.weights, **kept}))
            if settled is None or settled.refused:
                # Every Envoy is to have the same, and a new one is to get what is known to work.
                self._publish(before)
            if settled is None:
                raise BalancerUnreachable(
                    f"no Envoy is connected to {self.options.xds}: weights cannot be sent"
                )
            if settled.refused:
                await self._settled(before, _TAKE_BACK_S)
            after = await self._read_back(self._in_force(), wait=not settled.trouble)
        sent = self._in_force().weights
        in_effect = {
            name: state.weight_in_force(pool.by_name[name], after, sent[name])
            for name in known
            if any(pool.by_name[name].address in view.hosts for view in after)
        }
        for name, said in state.deviating(pool, after, known).items():
            refused.setdefault(name, "; ".join((*settled.trouble, said)))
        return ApplyReport(
            version=version,
            at_s=self._now_s(),
            wanted=tuple(wanted.items()),
            in_effect=tuple(in_effect.items()),
            failures=tuple(refused.items()),
        )

    async def _send(self, snapshot: Snapshot) -> Settled | None:
        """Publish, and wait until each Envoy has said what it makes of it; ``None`` without any.

        A file says nothing: what became of it shows when it is read back.
        """
        self._publish(snapshot)
        settled = await self._settled(snapshot, self.options.timeout_s)
        return None if self._server is not None and settled == Settled() else settled

    async def _settled(self, snapshot: Snapshot, timeout_s: float) -> Settled:
        if self._server is None:
            return Settled()
        return await self._server.settled(snapshot.version, timeout_s)

    async def _read_back(self, snapshot: Snapshot, *, wait: bool) -> Sequence[View]:
        """What is in force; where there is no trouble already, as soon as the snapshot is.

        Envoy takes a snapshot before it says so; of a file it says nothing.
        """
        patience_s = self.options.timeout_s
        if self._server is not None:
            patience_s = min(patience_s, SOON_S)
        give_up = time.monotonic() + (patience_s if wait else 0.0)
        while True:
            views = await self._views()
            if not state.deviating(snapshot.pool, views, snapshot.weights):
                return views
            if time.monotonic() >= give_up:
                self.events["not_in_force"] += 1
                return views
            await asyncio.sleep(_READ_BACK_EVERY_S)

    def _publish(self, snapshot: Snapshot) -> None:
        if self._server is not None:
            self._server.publish(snapshot)
        elif self._file is not None:
            self._file.publish(snapshot)
        self._snapshot = snapshot

    def _in_force(self) -> Snapshot:
        assert self._snapshot is not None  # noqa: S101 - read() comes first
        return self._snapshot

    # ------------------------------------------------------------------ the log

    def requests(self) -> AsyncIterator[RequestBatch]:
        """Finished requests as they are logged, until :meth:`aclose` (see the protocol)."""
        return self._stream.batches()

    async def _open_log(self, sink: Sink) -> Source:
        if isinstance(self.options.log, Address):
            lines = JsonLines(self._attribution, self.options.latency, self._complain)
            try:
                file = FollowedFile(Path(self.options.log.where))
            except OSError as error:
                raise BalancerUnreachable(
                    f"log {self.options.log}: cannot be opened: {error.strerror}"
                ) from error
            return Follower(
                file,
                self.options.poll_s,
                lambda data: sink(lines.feed(data)),
            )
        assert self._server is not None  # noqa: S101 - the options say so
        await self._open()
        until = self.options.latency

        def take(message: StreamAccessLogsMessage) -> None:
            sink(of_entries(message.http_logs.log_entry, self._attribution, until))

        self._server.listen_to_log(take)
        return _GrpcLog(self._server)

    def _complain(self, line: bytes) -> None:
        _log.warning(
            "log %s: line %r is not in DIAL's JSON format; it and others like it are counted",
            self.options.log,
            line[:_SHOWN_BYTES],
        )

    # ------------------------------------------------------------------ the rest

    async def check(self) -> tuple[Finding, ...]:
        """What must change in Envoy's configuration; never raises for what it finds."""
        try:
            pool = self._pools.pool
        except SettingError as error:
            return (Finding(Severity.ERROR, str(error), "mend or replace the file"),)
        return tuple(
            await find(
                self._service,
                self.options,
                pool=pool,
                admins=self._admin,
                server=self._server,
                stream=self._stream,
            )
        )

    async def aclose(self) -> None:
        """Close the log and the server; Envoy keeps the weights it has."""
        await self._stream.close()
        if self._server is not None:
            await self._server.close()
        await self._fleet.aclose()
        # Others may write while we are away; the next reading begins from what is in force.
        self._snapshot = self._taken = None


class _GrpcLog:
    """The access log service as a source: it shares the server, which outlives it."""

    def __init__(self, server: XdsServer) -> None:
        self._server = server

    async def close(self) -> None:
        self._server.listen_to_log(None)


def _checked(name: str, weight: int) -> int:
    try:
        number = index(weight)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_WEIGHT:
        raise BalancerRefused(
            f"weight of {name!r} = {weight!r}: allowed are whole numbers from 0 to {MAX_WEIGHT}; "
            "nothing was sent"
        )
    return number
