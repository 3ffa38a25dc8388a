"""Operators' orders: freeze the weights, or give one backend its weight for a time.

They come in over the service and go into the next tick's Observation, so that a replay has them
too.  Both outlive the controller, beside the lease: who starts it again, a service
manager at night, did not ask for load to be moved.  What they mean when something dies is in
``docs/adr/0033-frozen-is-hands-off.md``.

An override ends by a clock that nobody can set; the wall clock is what people are shown, and what
is left of it after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import structlog
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from dial.clock import Clock
from dial.errors import IntakeError, SettingError
from dial.handover import Handover, Kept
from dial.settings import Settings, describe
from dial.types import BalancerState, Mode, Orders, Override

MAX_OVERRIDE_S = 86_400.0
"""A day: who wants a weight for longer wants it in the balancer's own configuration."""

log = structlog.get_logger("dial.controller")


class _File(BaseModel):
    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    service: str
    frozen_since_s: FiniteFloat | None = None
    overrides: tuple[Override, ...] = ()


@dataclass(frozen=True, slots=True)
class _Timed:
    """An override, and when it ends by the clock that never steps."""

    order: Override
    ends_s: float


class OrderBook:
    """The orders that hold now.

    One event loop calls all methods.

    Parameters
    ----------
    settings : service, mode, and where the lease is.
    clock : wall time for people, monotonic time for ends.

    Raises
    ------
    SettingError
        If the orders that were kept are those of another service.

    Attributes
    ----------
    writing
        Held while weights are written: an order to freeze is given when no write is under way,
        so none follows its answer.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.writing = asyncio.Lock()
        self._settings = settings
        self._clock = clock
        self._pool: BalancerState | None = None
        self._frozen_since_s: float | None = None
        self._overrides: dict[str, _Timed] = {}
        self._standby = False
        handover = Handover.files(settings)
        self._kept: Kept | None = handover.orders if handover else None
        if self._kept is not None and settings.mode is Mode.ENFORCE:
            self._load(self._kept)

    def stand_by(self) -> None:
        """Take no orders, and know of none: another controller of the fleet has them."""
        self._standby = True
        self._kept = self._pool = self._frozen_since_s = None
        self._overrides.clear()

    def take_over(self, kept: Kept) -> None:
        """Go on from the orders that another controller has kept, and keep them there.

        Raises
        ------
        SettingError
            If they are those of another service.
        """
        self._standby = False
        self._kept = kept
        self._load(kept)

    def set_pool(self, balancer: BalancerState) -> None:
        """What orders are checked against."""
        self._pool = balancer

    def now(self) -> Orders:
        """The orders that hold; what has ended is forgotten."""
        now_s = self._clock.monotonic_s()
        ended = [name for name, timed in self._overrides.items() if timed.ends_s <= now_s]
        for name in ended:
            del self._overrides[name]
            log.info("override ended", backend=name)
        if ended:
            self._keep()
        return Orders(
            self._frozen_since_s,
            tuple(self._overrides[name].order for name in sorted(self._overrides)),
        )

    @property
    def outlives_restart(self) -> bool:
        """Whether orders are kept for the controller that is started next."""
        return self._kept is not None

    async def freeze(self) -> Orders:
        """Write nothing from now on; doing it again is harmless.

        Raises
        ------
        IntakeError
            ``not_enforcing`` in shadow mode.
        """
        self._require_enforcing("there is nothing to freeze")
        async with self.writing:
            if self._frozen_since_s is None:
                self._frozen_since_s = self._clock.now_s()
                self._keep()
        return self.now()

    def unfreeze(self) -> Orders:
        """Let the controller write again, from its next tick on."""
        if self._frozen_since_s is not None:
            self._frozen_since_s = None
            self._keep()
        return self.now()

    def override(self, backend: str, weight: int, for_s: float) -> Override:
        """Give a backend its weight for ``for_s`` seconds, in place of an earlier order.

        Raises
        ------
        IntakeError
            ``not_enforcing`` in shadow mode, ``frozen``, ``not_ready`` before the balancer was
            read, ``not_found`` for a backend that it does not have, ``out_of_range`` for a weight
            or a time that is not allowed.
        """
        self._require_enforcing("no weight can be set")
        if self._frozen_since_s is not None:
            raise IntakeError("frozen", "weights are frozen, so none can be set; unfreeze first")
        if self._pool is None:
            raise IntakeError("not_ready", "the load balancer has not been read yet; ask again")
        there = [server.name for server in self._pool.servers]
        if backend not in there:
            raise unknown_backend(backend, there)
        meaning = self._pool.meaning
        if not meaning.minimum <= weight <= meaning.maximum:
            raise IntakeError(
                "out_of_range",
                f"weight = {weight}: this load balancer takes {meaning.minimum} to "
                f"{meaning.maximum}; to take a backend out, drain it there",
                "weight",
            )
        if not 1.0 <= for_s <= MAX_OVERRIDE_S:
            raise IntakeError(
                "out_of_range", f"for_s = {for_s}: 1 to {MAX_OVERRIDE_S:g} s are allowed", "for_s"
            )
        order = Override(backend, weight, until_s=self._clock.now_s() + for_s)
        self._overrides[backend] = _Timed(order, self._clock.monotonic_s() + for_s)
        self._keep()
        return order

    def end_override(self, backend: str) -> None:
        """End an override before its time.

        Raises
        ------
        IntakeError
            ``not_found`` if there is none.
        """
        self.now()
        if backend not in self._overrides:
            raise IntakeError("not_found", f"backend {backend!r}: has no override", "backend")
        del self._overrides[backend]
        self._keep()

    def _require_enforcing(self, so: str) -> None:
        if self._standby:
            raise IntakeError(
                "not_leader", "another controller of the fleet leads this service; order it there"
            )
        if self._settings.mode is not Mode.ENFORCE:
            raise IntakeError(
                "not_enforcing",
                f"mode = {self._settings.mode.value}: nothing is written, so {so}; "
                'set mode = "enforce" in the configuration first',
            )

    def _keep(self) -> None:
        """Write the orders for the next controller; an order holds though the disk be full."""
        if self._kept is None:
            return
        orders = tuple(timed.order for timed in self._overrides.values())
        try:
            if self._frozen_since_s is None and not orders:
                self._kept.remove()
                return
            content = _File(
                service=self._settings.service,
                frozen_since_s=self._frozen_since_s,
                overrides=orders,
            )
            self._kept.write(content.model_dump_json().encode())
        except OSError as error:
            log.error("orders not kept", path=str(self._kept), error=error.strerror)

    def _load(self, kept: Kept) -> None:
        try:
            content = kept.read()
            if content is None:
                return
            found = _File.model_validate_json(content)
        except (OSError, ValidationError) as error:
            # Somebody ordered something that cannot be read: the one safe guess is to do nothing.
            why = describe(error) if isinstance(error, ValidationError) else str(error.strerror)
            log.warning("orders not read, so frozen", path=str(kept), error=why[:200])
            self._frozen_since_s = self._clock.now_s()
            return
        if found.service != self._settings.service:
            raise SettingError(
                f"{kept}: holds the orders of service {found.service!r}; service "
                f"{self._settings.service!r} needs a lease.path of its own"
            )
        self._frozen_since_s = found.frozen_since_s
        wall_s, now_s = self._clock.now_s(), self._clock.monotonic_s()
        for order in found.overrides:
            left_s = order.until_s - wall_s
            if 0.0 < left_s <= MAX_OVERRIDE_S:
                self._overrides[order.backend] = _Timed(order, now_s + left_s)
        log.info("orders go on", frozen=self._frozen_since_s is not None, path=str(kept))


def unknown_backend(backend: str, there: Iterable[str]) -> IntakeError:
    """The one error for a name that the load balancer does not have."""
    names = ", ".join(there)
    shown = names if len(names) <= 200 else f"{names[:200]} ..."
    return IntakeError(
        "not_found",
        f"backend {backend[:80]!r}: the load balancer has no such backend; it has: {shown}",
        "backend",
    )
