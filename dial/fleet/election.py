"""One leader per service: a key that ends by itself unless its owner renews it.

Rule
    Who creates the key leads.  It renews it four times within its time to live, by compare-and-set
    on its own revision; whoever finds it renewed by somebody else, or has not been able to renew it
    for its whole time, leads no longer.  Who does not lead tries to create it eight times within
    that time.

    A leader counts its time from before its last renewal was sent, the store from when it came, so
    by their clocks' rates the leader gives up first.  It need not: no write is taken from a former
    leader in any case (:mod:`dial.fleet.fenced`).

Figures
    With 2 s a killed leader is followed after 2.25 s at most, and what the store needs to notice.
"""

from __future__ import annotations

import asyncio

import structlog
from nats.errors import Error
from nats.js.errors import KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from dial.clock import Clock
from dial.subjects import token

RENEWALS = 4
TRIES = 8

log = structlog.get_logger("dial.fleet")


class Election:
    """One candidate for one service.

    Parameters
    ----------
    bucket : whose keys end by themselves.
    ttl_s : after how long.
    service, name : what is led, and who would.
    clock : of which monotonic time is used.

    Attributes
    ----------
    leader
        Name of who was last seen to lead.
    """

    def __init__(
        self, bucket: KeyValue, ttl_s: float, *, service: str, name: str, clock: Clock
    ) -> None:
        self._bucket = bucket
        self._ttl_s = ttl_s
        self._key = token(service)
        self._name = name
        self._clock = clock
        self._revision = 0
        self._renewed_s = 0.0
        self.leader = ""

    async def win(self) -> int:
        """Wait until this candidate leads; returns its term, which grows with every leader."""
        while True:
            if await self._create():
                self.leader = self._name
                return self._revision
            await asyncio.sleep(self._ttl_s / TRIES)

    async def _create(self) -> bool:

        sent_s = self._clock.monotonic_s()
        try:
            self._revision = await self._bucket.create(self._key, self._name.encode())
        except KeyWrongLastSequenceError:
            await self._look()
            return False
        except (Error, OSError):
            return False
        self._renewed_s = sent_s
        return True

    async def _look(self) -> None:

        try:
            entry = await self._bucket.get(self._key)
        except (Error, OSError):
            return
        self.leader = (entry.value or b"").decode(errors="replace")

    async def hold(self) -> None:
        """Renew until this candidate leads no longer."""
        while True:
            await asyncio.sleep(self._ttl_s / RENEWALS)
            sent_s = self._clock.monotonic_s()
            left_s = self._renewed_s + self._ttl_s - sent_s
            if left_s <= 0.0:
                log.warning("leads no longer: could not renew in time")
                return
            try:
                async with asyncio.timeout(left_s):
                    self._revision = await self._bucket.update(
                        self._key, self._name.encode(), last=self._revision
                    )
            except KeyWrongLastSequenceError:
                log.warning("leads no longer: another controller does")
                return
            except (Error, OSError):  # TimeoutError is an OSError
                continue
            self._renewed_s = sent_s

    async def resign(self) -> None:
        """Let another one lead at once, if this one still does."""
        try:
            await self._bucket.delete(self._key, last=self._revision)
        except (Error, OSError) as error:
            log.info("did not resign", error=str(error))
