"""Which servers a table has, and which of them can serve, as Pinot's controller says it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dial.errors import BalancerError, UnknownService
from dial_pinot.parser import name_in_log
from dial_pinot.rest import PinotRest

_SERVING = ("ONLINE", "CONSUMING")


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of one table.

    Attributes
    ----------
    usable
        By name, in order: whether it serves a segment now.
    by_log_name
        Server by its name in the query log; those alone whose name is theirs alone.
    segments
        How many segments the table has.
    sets
        How many different sets of replicas there are; 1 where each server can serve all.
    fewest_replicas
        Of any segment.
    """

    usable: Mapping[str, bool]
    by_log_name: Mapping[str, str]
    segments: int
    sets: int
    fewest_replicas: int

    @property
    def ambiguous(self) -> tuple[str, ...]:
        """Servers that the query log cannot tell apart."""
        return tuple(sorted(set(self.usable) - set(self.by_log_name.values())))


def servers_of(
    ideal: Mapping[str, Mapping[str, str]],
    external: Mapping[str, Mapping[str, str]],
    hosts: Mapping[str, str],
) -> Servers:
    """Join the two views.

    Parameters
    ----------
    ideal, external : segment to server to state, as it should be and as it is.
    hosts : host name by server.
    """
    wanted = {s for states in ideal.values() for s, state in states.items() if state in _SERVING}
    serving = {
        server
        for segment, states in external.items()
        for server, state in states.items()
        if state in _SERVING and ideal.get(segment, {}).get(server) in _SERVING
    }
    log_names = {server: name_in_log(hosts[server]) for server in wanted}
    times = Counter(log_names.values())
    sets = [
        frozenset(s for s, state in states.items() if state in _SERVING)
        for states in ideal.values()
    ]
    return Servers(
        usable={server: server in serving for server in sorted(wanted)},
        by_log_name={name: server for server, name in log_names.items() if times[name] == 1},
        segments=len(ideal),
        sets=len(set(sets)),
        fewest_replicas=min(map(len, sets), default=0),
    )


class Cluster:
    """Looks at Pinot now and then, and remembers.

    Parameters
    ----------
    table, rest, brokers : whom to ask for what.
    refresh_s : how long an answer is good for.
    now_s : monotonic clock.
    """

    def __init__(
        self,
        table: str,
        rest: PinotRest,
        brokers: tuple[str, ...],
        refresh_s: float,
        now_s: Callable[[], float],
    ) -> None:
        self._table = table
        self._rest = rest
        self._brokers = brokers
        self._refresh_s = refresh_s
        self._now_s = now_s
        self._hosts: dict[str, str] = {}
        self._started: dict[str, str] = {}
        self._servers: Servers | None = None
        self._asked_s = float("-inf")

    async def servers(self) -> Servers:
        """The table's servers, at most ``refresh_s`` old while Pinot's controller answers.

        While it does not, or answers that it cannot, what it said last stands: brokers route
        without it, too.

        Raises
        ------
        BalancerUnreachable, BalancerRefused
            If it never answered.
        UnknownService
            If it has no such table, or no longer.
        """
        if self._servers is None or self._now_s() - self._asked_s >= self._refresh_s:
            try:
                self._servers = await self._ask()
            except UnknownService:
                raise
            except BalancerError:
                if self._servers is None:
                    raise
            self._asked_s = self._now_s()
        return self._servers

    async def epoch(self) -> str:
        """Changes when a broker was restarted; one that is away, or in trouble, keeps its part.

        Raises
        ------
        BalancerError
            If no broker says when it started: why the first does not.
        """
        failures = [f for f in await asyncio.gather(*map(self._ask_start, self._brokers)) if f]
        if len(failures) == len(self._brokers):
            raise failures[0]
        return " ".join(self._started.get(broker, "?") for broker in self._brokers)

    async def _ask_start(self, broker: str) -> BalancerError | None:
        try:
            self._started[broker] = await self._rest.start_time(broker)
        except BalancerError as error:
            return error
        return None

    async def _ask(self) -> Servers:
        ideal = await self._rest.view(self._table, "idealstate")
        external = await self._rest.view(self._table, "externalview")
        for server in {server for states in ideal.values() for server in states}:
            if server not in self._hosts:
                self._hosts[server] = await self._rest.host(server)
        return servers_of(ideal, external, self._hosts)
