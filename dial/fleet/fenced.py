"""A key of the store that only its last owner can write.

Problem
    A leader that was stopped for longer than its time to live (a starved VM, a long pause) does not
    know that another one leads.  What it writes next must not be taken.

Rule
    Whoever begins to lead *takes* the key: it reads it and writes the same content again, by
    compare-and-set.  All later writes are compare-and-set on one's own last revision, so that the
    first write of a former owner fails, whatever its clock says.

Source
    Fencing by a growing number: Burrows, "The Chubby lock service", OSDI 2006 (sequencers).
"""

from __future__ import annotations

from nats.errors import Error
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from dial.errors import BalancerUnreachable, Deposed

_TRIES = 5
"""A former owner can be in the way once for each write that it has under way."""


class FencedKey:
    """One key.  It is never deleted: nothing is empty content.

    Parameters
    ----------
    bucket : of the store.
    key : in it.

    Attributes
    ----------
    revision
        Of the last write; grows with every write to the bucket.
    """

    def __init__(self, bucket: KeyValue, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self.revision = 0

    async def take(self) -> bytes:
        """Own the key from now on; returns its content.

        Raises
        ------
        BalancerUnreachable
            If the store does not answer.
        Deposed
            If somebody else writes it all the time.
        """
        try:
            for _ in range(_TRIES):
                try:
                    entry = await self._bucket.get(self._key)
                    content, revision = entry.value or b"", entry.revision or 0
                except KeyNotFoundError:
                    content, revision = b"", 0
                try:
                    self.revision = await self._bucket.update(self._key, content, last=revision)
                except KeyWrongLastSequenceError:
                    continue
                return content
        except (Error, OSError) as error:
            raise _away(self._key, error) from error
        raise Deposed(f"{self._key}: somebody else writes it all the time")

    async def put(self, content: bytes) -> None:
        """Replace the content.

        Raises
        ------
        Deposed
            If somebody else has taken the key.
        BalancerUnreachable
            If the store does not answer; whether it was written is not known, and if it was, the
            next write says ``Deposed``, and who leads is found out anew.
        """
        try:
            self.revision = await self._bucket.update(self._key, content, last=self.revision)
        except KeyWrongLastSequenceError as error:
            raise Deposed(f"{self._key}: another controller has taken it") from error
        except (Error, OSError) as error:
            raise _away(self._key, error) from error


def _away(key: str, error: Exception) -> BalancerUnreachable:
    return BalancerUnreachable(f"NATS: {key}: {str(error) or type(error).__name__}")
