"""The adapter: HAProxy's runtime socket and log behind DIAL's protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from operator import index

from dial.adapter import Finding, RequestBatch
from dial.errors import BalancerRefused, StalePlan, UnknownService
from dial.types import ApplyReport, BalancerState
from dial_haproxy import state
from dial_haproxy.checks import find
from dial_haproxy.config import rules_variable
from dial_haproxy.options import NAME, Options
from dial_haproxy.runtime import RuntimeClient
from dial_haproxy.stream import log_stream

_DENIED = "Permission denied"


class HAProxyAdapter:
    """One HAProxy backend.

    Parameters
    ----------
    service
        Name of the ``backend`` (or ``listen``) section.
    options
        Checked options.
    now_s
        Wall clock for the reports.
    """

    name = "haproxy"

    def __init__(
        self, service: str, options: Options, now_s: Callable[[], float] = time.time
    ) -> None:
        self._service = service
        self.options = options
        self._client = RuntimeClient(options.socket, options.timeout_s)
        self._stream = log_stream(service, options)
        self._now_s = now_s
        self._applied_version: int | None = None
        # Two writers would read each other's half-written weights back.
        self._writing = asyncio.Lock()
        self._stat_key = service

    @property
    def dropped_requests(self) -> int:
        """Logged requests that were dropped because ``requests()`` was read too slowly."""
        return self._stream.dropped_requests

    async def log_opened(self) -> None:
        """Wait until ``requests()``, begun elsewhere, listens: from then on no line is missed."""
        await self._stream.opened.wait()

    async def read(self) -> BalancerState:
        """Servers, counters and weights in force, in one exchange (see the protocol).

        What was logged until now is in ``requests()`` by the time it returns, so that a window that
        is closed then holds the requests of its interval, and not those of a while before.
        """
        self._stream.take()
        info_text, servers_text, stat_text, rules_text = await self._client.ask(
            (
                "show info",
                f"show servers state {self._service}",
                self._show_stat(),
                f"get var {rules_variable(self._service)}",
            )
        )
        info = state.parse_info(info_text)
        servers = await self._servers(servers_text)
        stats = state.parse_stats(stat_text, self._service)
        if stats is None and servers:
            # A frontend of the same name hides the backend from 'show stat NAME'; its number
            # does not, but changes when haproxy.cfg does, so it is looked up anew then.
            self._stat_key = next(iter(servers.values())).backend_id
            (stat_text,) = await self._client.ask((self._show_stat(),))
            stats = state.parse_stats(stat_text, self._service)
        if stats is None:
            raise BalancerRefused(f"'{self._show_stat()}' does not show backend {self._service!r}")
        with_rules = state.parse_rules(rules_text, self._service)
        return state.combine(self._service, info, servers, stats, with_rules=with_rules)

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        """Write the weights that differ in one exchange, then read all of them back.

        Read-back decides, not the answer to the write: only what is in force counts.

        Raises
        ------
        StalePlan
            If ``version`` is lower than one already applied.
        BalancerRefused
            If a weight is outside 0 to 256 (nothing is written then), the socket's level does
            not allow writing, or the algorithm has no use for weights.
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
            before = (await self.read()).servers
            self._applied_version = version
            changes = in_safe_order(wanted, {s.name: s.weight for s in before})
            refused = await self._write(changes, wanted)
            (text,) = await self._client.ask((f"show servers state {self._service}",))
            after = await self._servers(text)
        in_effect = {n: after[n].weight for n in wanted if n in after}
        for name in wanted.keys() - after.keys():
            refused.setdefault(name, "gone when the weights were read back")
        for name, weight in in_effect.items():
            if weight != wanted[name]:
                said = refused.get(name) or "accepted"
                refused[name] = f"{said}; weight in force is {weight}, not {wanted[name]}"
        return ApplyReport(
            version=version,
            at_s=self._now_s(),
            wanted=tuple(wanted.items()),
            in_effect=tuple(in_effect.items()),
            failures=tuple(refused.items()),
        )

    def requests(self) -> AsyncIterator[RequestBatch]:
        """Finished requests as they are logged, until :meth:`aclose` (see the protocol)."""
        return self._stream.batches()

    async def check(self) -> tuple[Finding, ...]:
        """What must change in haproxy.cfg for DIAL to work; never raises for what it finds."""
        return tuple(await find(self._service, self.options, self._client, self._stream))

    async def aclose(self) -> None:
        """Close the log and let ``requests()`` end; weights stay as they are."""
        await self._stream.close()

    def _show_stat(self) -> str:
        return f"show stat {self._stat_key} 6 -1"  # 6: backends and servers; -1: every server

    async def _servers(self, text: str) -> dict[str, state.Server]:
        try:
            return state.parse_servers(text, self._service)
        except UnknownService as error:
            (stats,) = await self._client.ask(("show stat -1 2 -1",))
            there = ", ".join(state.backend_names(stats)) or "none"
            raise UnknownService(f"{error}; there are: {there}") from None

    async def _write(self, changes: Iterable[str], wanted: Mapping[str, int]) -> dict[str, str]:
        """Send the changes; what HAProxy said of those it refused."""
        sendable = [name for name in changes if NAME.fullmatch(name)]
        refused = {n: "not a name HAProxy allows" for n in wanted if not NAME.fullmatch(n)}
        commands = [f"set weight {self._service}/{name} {wanted[name]}" for name in sendable]
        answers = await self._client.ask(commands) if commands else []
        if _DENIED in answers:
            raise BalancerRefused(
                f"runtime socket {self.options.socket}: permission denied; weights need "
                "'level admin' on the stats socket line"
            )
        refused.update({n: said for n, said in zip(sendable, answers, strict=True) if said})
        return refused


def in_safe_order(wanted: Mapping[str, int], present: Mapping[str, int]) -> list[str]:
    """Names of the weights that change, in the order in which writing them does least harm.

    Requests arrive between two writes, and see some weights old and some new.  So weights
    that rise come first, the largest first: the surplus goes where the plan wants most of
    the load anyway, and the total never falls to 0 (from 256, 0 to 0, 256 the other order
    would answer 503 in between).  Weights that fall come last, the smallest first: the
    backend the plan wants least of is relieved first.

    Examples
    --------
    >>> in_safe_order({"s1": 26, "s2": 115, "s3": 115}, {"s1": 100, "s2": 100, "s3": 100})
    ['s2', 's3', 's1']
    """
    changed = [name for name, weight in wanted.items() if weight != present.get(name)]
    rising = [name for name in changed if wanted[name] > present.get(name, 0)]
    falling = [name for name in changed if wanted[name] <= present.get(name, 0)]
    return sorted(rising, key=lambda n: -wanted[n]) + sorted(falling, key=lambda n: wanted[n])


def _checked(name: str, weight: int) -> int:
    try:
        number = index(weight)
    except TypeError:
        number = -1
    if not 0 <= number <= state.MAX_WEIGHT:
        raise BalancerRefused(
            f"weight of {name!r} = {weight!r}: allowed are whole numbers from 0 to "
            f"{state.MAX_WEIGHT}; nothing was written"
        )
    return number
