"""The pool that the options describe, and what becomes of it while the controller runs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path

from dial.errors import SettingError
from dial_envoy.endpoints import Pool, pool_of_file, pool_of_options
from dial_envoy.options import Options
from dial_envoy.snapshot import Snapshot

_log = logging.getLogger(__name__)


class PoolSource:
    """Where servers come from: a table that stays, or a file that is looked at.

    Parameters
    ----------
    resource
        Name of the assignment.
    options
        Checked options.
    events
        Counted here: files that could not be read.
    """

    def __init__(self, resource: str, options: Options, events: Counter[str]) -> None:
        self._resource = resource
        self._options = options
        self._events = events
        self._pool: Pool | None = None
        self._seen: tuple[int, ...] = ()

    @property
    def pool(self) -> Pool:
        """The servers there are now.

        Raises
        ------
        SettingError
            If the file cannot be read, and never could be.
        """
        if self._pool is None:
            path = self._options.endpoints_file
            if path is None:
                self._pool = pool_of_options(self._resource, self._options.endpoints)
            else:
                self._seen = stamp(path)
                self._pool = pool_of_file(path, self._resource)
        return self._pool

    def go_back(self, pool: Pool) -> None:
        """Take ``pool`` for what there is until the file changes again: Envoy refused the newer."""
        self._pool = pool

    async def changed(self) -> bool:
        """Whether the file has changed, and with it the pool.

        A file that cannot be read is counted, and the servers of before stay.
        """
        path = self._options.endpoints_file
        if path is None or (now := stamp(path)) == self._seen:
            return False
        self._seen = now
        try:
            # Tens of thousands of servers in YAML take seconds, and others share the event loop.
            self._pool = await asyncio.to_thread(pool_of_file, path, self._resource)
        except SettingError as error:
            self._events["endpoints_file_refused"] += 1
            _log.error("%s; the endpoints of before stay", error)
            return False
        return True

    def after(self, before: Snapshot) -> Snapshot:
        """The snapshot that follows from the pool.

        A server that stays keeps its weight in force, unless its configured weight was changed:
        then that is the administrator's word.
        """
        pool = self.pool
        was, now = before.pool.configured, pool.configured
        same = {
            name: weight
            for name, weight in before.weights.items()
            if was[name] == now.get(name) and (weight or pool.can_drain)
        }
        return Snapshot.of(pool, same)


def stamp(path: Path) -> tuple[int, ...]:
    """Changes when the file does; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
