"""A log file that is followed, through rotation and truncation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 65_536


class FollowedFile:
    """What is appended to a file, through rotation and truncation.

    Rotation is a new inode under the path: the old file is read to its end first.
    Truncation is a file shorter than what was read: reading begins anew.  (One that was
    truncated and has already outgrown the old position cannot be told from appending.)

    Parameters
    ----------
    path
        The file.  What it holds already is history and is skipped; one that appears later
        is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = self._open()
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def read_new(self) -> bytes:
        """Up to 64 KiB of what is new; empty when there is nothing yet."""
        if self._file is None:
            self._file = self._open()
        if self._file is None:
            return b""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            return b"\n"  # ends a line that was cut off, so that it joins no other
        data = self._file.read(CHUNK_BYTES)
        if not data and self._was_replaced():
            self.close()  # its successor, which may not be readable yet, is opened next time
            return b"\n"
        return data

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO | None:
        try:
            return self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return None

    def _was_replaced(self) -> bool:
        assert self._file is not None  # noqa: S101 - for the type checker
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # moved away, its successor not yet there
        mine = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)


class Follower:
    """Polls a followed file: inotify would need the directory, and misses network mounts.

    Parameters
    ----------
    file
        What is followed.
    poll_s
        Between two looks when there is nothing new.
    feed
        Takes what is new, in pieces of any length.
    """

    def __init__(self, file: FollowedFile, poll_s: float, feed: Callable[[bytes], None]) -> None:
        self._file = file
        self.running: asyncio.Future[None] = asyncio.create_task(self._follow(poll_s, feed))

    async def _follow(self, poll_s: float, feed: Callable[[bytes], None]) -> None:
        while True:
            try:
                data = self._file.read_new()
            except OSError:
                data = b""  # unreadable for now, as between a rotation and its chown
            if data:
                feed(data)
            await asyncio.sleep(0 if data else poll_s)

    async def close(self) -> None:
        """Stop, and give the file back."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self._file.close()
