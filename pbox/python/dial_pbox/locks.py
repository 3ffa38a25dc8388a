"""Virtual resources, and a lock that tells of itself."""

from __future__ import annotations

import itertools
import threading

from dial_pbox.library import Event, library

_keys = itertools.count(0x7079_0000_0000_0001)
"""Keys are numbers that nothing else has: these begin with "py" where no address does."""


class Resource:
    """Something that activities wait for and hold, whatever it is.

    Parameters
    ----------
    name
        As the statistics page shows it; at most 23 bytes are kept.

    Attributes
    ----------
    key
        Its number in the domain.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = next(_keys)
        library().name_pbox_key(self.key, name.encode())


class Lock:
    """A lock whose waiting and holding are told for the activity of the thread.

    Outside of an activity it is a plain lock.  A penalty, where the domain takes them, falls
    after it has been released.

    Parameters
    ----------
    name
        Of the resource.
    lock
        What does the locking; a new :class:`threading.Lock` unless given.
    """

    def __init__(self, name: str, lock: threading.Lock | None = None) -> None:
        self.resource = Resource(name)
        self._lock = lock or threading.Lock()

    def acquire(self, timeout_s: float = -1.0) -> bool:
        """Get the lock, waiting for ``timeout_s`` at most; below 0 for ever."""
        key, update = self.resource.key, library().update_pbox
        got = self._lock.acquire(blocking=False)
        if not got:
            update(key, Event.PREPARE)
            try:
                got = self._lock.acquire(timeout=timeout_s)
            finally:
                update(key, Event.ENTER)
        if got:
            update(key, Event.HOLD)
        return got

    def release(self) -> None:
        """Give it back."""
        self._lock.release()
        library().update_pbox(self.resource.key, Event.UNHOLD)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
