"""What a leader leaves to the next one, in the store: lease, orders and state.

The controller writes as it does to files, without waiting; :meth:`StoredHandover.flush` then sends
the newest of each.  A plan is written after that only, so that the next leader always knows whose
the weights in force are.  Between two flushes one content of each document is held, whatever
happens.

A state may be larger than a message (10,000 backends: 20 MB of JSON, a tenth of it compressed).  It
is compressed, cut into parts that are stored under a key of their own, and made the newest by one
fenced write of their names.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable

from nats.errors import Error
from nats.js.errors import NotFoundError
from nats.js.kv import KeyValue
from pydantic import TypeAdapter, ValidationError

from dial.errors import BalancerUnreachable, DialError
from dial.fleet.fenced import FencedKey
from dial.fleet.link import Link
from dial.handover import Handover
from dial.lease import Lease
from dial.settings import describe
from dial.subjects import token

PART_BYTES = 512 * 1024
"""Half of what NATS takes in a message by default."""

MAX_STATE_BYTES = 512 * 1024 * 1024
"""Unpacked: more than that is no state of ours."""

LEASE = TypeAdapter(Lease)


class _Document:
    """The newest content, and whether it has been sent; a :class:`~dial.handover.Kept`."""

    def __init__(self, where: str, content: bytes, changed: Callable[[], None]) -> None:
        self._where = where
        self.content = content
        self._changed = changed
        self.unsent = False

    def __str__(self) -> str:
        return self._where

    def read(self) -> bytes | None:
        return self.content or None

    def write(self, content: bytes) -> None:
        self.content = content
        self.unsent = True
        self._changed()

    def remove(self) -> None:
        if self.content:
            self.write(b"")


class _StoredLease:
    """A lease in a document; a :class:`~dial.lease.LeaseStore`."""

    def __init__(self, document: _Document) -> None:
        self._document = document

    def read(self) -> Lease | None:
        content = self._document.read()
        try:
            return None if content is None else LEASE.validate_json(content)
        except ValidationError as error:
            raise DialError(f"{self._document}: not a lease: {describe(error)}") from error

    def write(self, lease: Lease) -> None:
        self._document.write(LEASE.dump_json(lease))

    def remove(self) -> None:
        self._document.remove()


class StoredHandover:
    """The documents of one service, while one leads it; made by :meth:`take`.

    Attributes
    ----------
    documents
        For the controller.
    """

    def __init__(self, parts: KeyValue, service: str, term: int, keys: list[FencedKey]) -> None:
        self._parts = parts
        self._prefix = f"{token(service)}.{term}"
        self._keys = dict(zip(("lease", "orders", "state"), keys, strict=True))
        self._documents: dict[str, _Document] = {}
        self._stored: list[str] = []
        self._changed = asyncio.Event()
        self._flushing = asyncio.Lock()

    @classmethod
    async def take(cls, link: Link, service: str, term: int) -> StoredHandover:
        """Own the documents from now on, and read them.

        Raises
        ------
        BalancerError
            If the store does not answer, or somebody else takes them at the same time.
        """
        names = ("lease", "orders", "state")
        keys = [FencedKey(link.documents, f"{token(service)}.{name}") for name in names]
        self = cls(link.parts, service, term, keys)
        for name, key in self._keys.items():
            content = await key.take()
            if name == "state":
                content = await self._unpack(content)
            self._documents[name] = _Document(f"NATS: {service}.{name}", content, self._changed.set)
        return self

    @property
    def documents(self) -> Handover:
        """What the controller reads and writes."""
        of = self._documents
        return Handover(_StoredLease(of["lease"]), of["state"], of["orders"])

    async def flush(self) -> None:
        """Send what has changed since the last time, the state first.

        Raises
        ------
        Deposed
            If another controller leads.
        BalancerUnreachable
            If the store does not answer.
        """
        async with self._flushing:
            for name in ("state", "orders", "lease"):
                document = self._documents[name]
                if not document.unsent:
                    continue
                document.unsent = False
                try:
                    if name == "state":
                        await self._store_state(document.content)
                    else:
                        await self._keys[name].put(document.content)
                except BaseException:
                    document.unsent = True
                    raise

    async def keep_flushing(self) -> None:
        """Send whatever changes, until another controller leads; the store may be away.

        Raises
        ------
        Deposed
            When that is so.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.flush()
            except BalancerUnreachable:
                await asyncio.sleep(0.25)
                self._changed.set()

    async def _store_state(self, content: bytes) -> None:
        """Store the parts, then make them the newest, then forget those before."""
        packed = await asyncio.to_thread(zlib.compress, content, 1)
        key, former = self._keys["state"], self._stored
        # The revision is of this leader's last write: no other part ever has the same name.
        begin = f"{self._prefix}.{key.revision}"
        starts = range(0, len(packed), PART_BYTES)
        self._stored = [f"{begin}.{start // PART_BYTES}" for start in starts]
        try:
            for name, start in zip(self._stored, starts, strict=True):
                await self._parts.put(name, packed[start : start + PART_BYTES])
            await key.put(json.dumps({"parts": self._stored}).encode())
            for name in former:
                await self._parts.purge(name)
        except (Error, OSError) as error:
            raise BalancerUnreachable(f"NATS: state: {error}") from error

    async def _unpack(self, content: bytes) -> bytes:
        """The state that a fenced write has named; nothing where it is not whole any more."""
        if not content:
            return b""
        try:
            keys = json.loads(content)["parts"]
            packed = b"".join([(await self._parts.get(key)).value or b"" for key in keys])
            self._stored = keys
            unpacking = zlib.decompressobj()
            state = await asyncio.to_thread(unpacking.decompress, packed, MAX_STATE_BYTES)
        except (ValueError, KeyError, TypeError, zlib.error, NotFoundError):
            # What cannot be taken is learnt anew, as from a damaged file.
            return b"damaged"
        except (Error, OSError) as error:
            raise BalancerUnreachable(f"NATS: state: {error}") from error
        return state if unpacking.eof else b"damaged"
