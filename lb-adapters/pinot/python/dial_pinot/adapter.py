"""The adapter: a Pinot table's servers behind DIAL's protocol.

Brokers are not written to.  Weights are put where their plugin finds them
(:mod:`dial_pinot.weights`), and are in force as long as they stand there and are renewed; a broker
that hears nothing more falls back to even ones by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from operator import index
from pathlib import Path

from dial.adapter import Finding, RequestBatch
from dial.errors import BalancerRefused, StalePlan
from dial.types import ApplyReport, BalancerState, ServerState, WeightKind, WeightMeaning
from dial_pinot.checks import find
from dial_pinot.cluster import Cluster, Servers
from dial_pinot.options import Options, read_secret
from dial_pinot.rest import PinotRest
from dial_pinot.stream import QueryLog
from dial_pinot.weights import Document, FeedStore, FileStore, Store, ZooKeeperStore

CONFIGURED_WEIGHT = 100
"""Pinot configures no weights: its own routing is even."""

MEANING = WeightMeaning(WeightKind.DRAW, minimum=1, maximum=1_000, zero_drains=True)
"""A query, or each of its segments, goes to a replica drawn by weight."""

ALGORITHM = "dial"


class PinotAdapter:
    """One Pinot table.

    Parameters
    ----------
    table
        With its type.
    options
        Checked options.
    now_s
        Wall clock for documents and reports.
    monotonic_s
        For how old an answer of Pinot is.
    """

    name = "pinot"

    def __init__(
        self,
        table: str,
        options: Options,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self.options = options
        self._now_s = now_s
        secret = options.authorization_file
        self._rest = PinotRest(
            options.pinot,
            options.timeout_s,
            read_secret(secret, "authorization_file") if secret else None,
        )
        self._cluster = Cluster(table, self._rest, options.brokers, options.refresh_s, monotonic_s)
        self._log = QueryLog(table, options)
        self._store = _store(options, self._rest)
        self._ours: tuple[int, ...] = ()
        """Versions of what this process put there last, and tried to; only those are renewed."""
        self._valid_version: int | None = None
        """Of the document that was in force when we last looked."""
        self._expiries = 0
        """How often weights ran out between two readings."""
        self._applied_version: int | None = None
        # Two writers would read each other's half-written weights back.
        self._writing = asyncio.Lock()

    @property
    def dropped_requests(self) -> int:
        """Logged requests that were dropped because ``requests()`` was read too slowly."""
        return self._log.dropped_requests

    async def log_opened(self) -> None:
        """Wait until ``requests()``, begun elsewhere, listens: from then on no line is missed."""
        await self._log.opened.wait()

    async def read(self) -> BalancerState:
        """Servers, counters and weights in force (see the protocol); renews weights of ours."""
        servers = await self._cluster.servers()
        epoch = await self._cluster.epoch()
        await self._log.open(servers.by_log_name)
        async with self._writing:
            document = await self._store.read()
            in_force = self._in_force(document, servers)
            self._count_expiry(document)
            await self._renew(document)
        if self._expiries:
            # As after a restart: weights are even again, and nobody has made them so.
            epoch = f"{epoch} {self._expiries} expired"
        return BalancerState(
            epoch=epoch,
            algorithm=ALGORITHM,
            meaning=MEANING,
            servers=tuple(
                ServerState(
                    name=name,
                    weight=in_force[name],
                    configured_weight=CONFIGURED_WEIGHT,
                    usable=usable,
                    in_flight=0,
                    requests_total=self._log.by_server[name],
                    errors_total=self._log.failed_by_server[name],
                )
                for name, usable in servers.usable.items()
            ),
        )

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        """Put a document with these weights where brokers find it, and read it back.

        Raises
        ------
        StalePlan
            If ``version`` is lower than one already applied.
        BalancerRefused
            If a weight is outside 0 to 1,000; nothing is written then.
        UnknownService, BalancerUnreachable
            As the protocol says.
        """
        wanted = {name: _checked(name, weight) for name, weight in weights.items()}
        async with self._writing:
            if self._applied_version is not None and version < self._applied_version:
                raise StalePlan(
                    f"plan {version} for service {self._table!r}: plan {self._applied_version} "
                    "was applied already"
                )
            servers = await self._cluster.servers()
            await self._cluster.epoch()
            self._applied_version = version
            document = await self._store.read()
            before = self._in_force(document, servers)
            after = before | {name: w for name, w in wanted.items() if name in before}
            if after != before:
                await self._put(after, document)
            in_force = self._in_force(await self._store.read(), servers)
        failures = {
            name: "Pinot has no server of this name for the table"
            for name in wanted
            if name not in in_force
        }
        in_effect = {name: in_force[name] for name in wanted if name in in_force}
        failures |= {
            name: f"weight in force is {weight}, not {wanted[name]}"
            for name, weight in in_effect.items()
            if weight != wanted[name]
        }
        return ApplyReport(
            version=version,
            at_s=self._now_s(),
            wanted=tuple(wanted.items()),
            in_effect=tuple(in_effect.items()),
            failures=tuple(failures.items()),
        )

    def requests(self) -> AsyncIterator[RequestBatch]:
        """Finished requests as they are logged, until :meth:`aclose` (see the protocol)."""
        return self._requests()

    async def _requests(self) -> AsyncIterator[RequestBatch]:
        servers = await self._cluster.servers()
        await self._log.open(servers.by_log_name)
        async for batch in self._log.batches():
            yield batch

    async def check(self) -> tuple[Finding, ...]:
        """What must change at Pinot for DIAL to work; never raises for what it finds."""
        return tuple(
            await find(
                self._table,
                self.options,
                rest=self._rest,
                cluster=self._cluster,
                log=self._log,
                store=self._store,
            )
        )

    async def aclose(self) -> None:
        """Close the log and let ``requests()`` end; weights stay until their time is over."""
        await self._log.close()
        await self._rest.aclose()

    def _in_force(self, document: Document | None, servers: Servers) -> dict[str, int]:
        """Weight by server: the document's while it holds, even ones else."""
        if document is None or not document.is_valid(self._now_s()):
            return dict.fromkeys(servers.usable, CONFIGURED_WEIGHT)
        # A server the document does not name is weighed by brokers as the mean of those it does.
        mean = round(sum(document.weights.values()) / len(document.weights))
        return {name: document.weights.get(name, mean) for name in servers.usable}

    async def _put(self, weights: Mapping[str, int], last: Document | None) -> None:
        now_s = self._now_s()
        version = max(int(now_s * 1e6), last.version + 1 if last else 0)
        # What failed may have been written all the same: then that is ours, and else the last one.
        self._ours = (*self._ours[-1:], version)
        await self._store.write(Document(version, now_s, self.options.valid_s, weights))
        self._ours = (version,)
        self._valid_version = version

    async def _renew(self, there: Document | None) -> None:
        """Stand by our weights when a third of their time is over; again, where that failed.

        What somebody else has written since is theirs to renew.
        """
        now_s = self._now_s()
        if there is None or there.version not in self._ours or not there.is_valid(now_s):
            return
        self._ours = (there.version,)
        if abs(now_s - there.at_s) >= there.valid_s / 3.0:
            await self._store.write(replace(there, at_s=now_s))

    def _count_expiry(self, there: Document | None) -> None:
        """Tell weights whose time is over from those that somebody took back."""
        valid = there is not None and there.is_valid(self._now_s())
        if there is not None and not valid and there.version == self._valid_version:
            self._expiries += 1
        self._valid_version = there.version if there is not None and valid else None


def _store(options: Options, rest: PinotRest) -> Store:
    scheme, _, path = options.weights.partition(":")
    if scheme == "file":
        return FileStore(Path(path))
    return ZooKeeperStore(path, rest) if scheme == "zookeeper" else FeedStore()


def _checked(name: str, weight: int) -> int:
    try:
        number = index(weight)
    except TypeError:
        number = -1
    if not 0 <= number <= MEANING.maximum:
        raise BalancerRefused(
            f"weight of {name!r} = {weight!r}: allowed are whole numbers from 0 to "
            f"{MEANING.maximum}; nothing was written"
        )
    return number
