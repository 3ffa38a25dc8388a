"""What a controller leaves to the next one: its lease, what it has learnt, operators' orders.

On one machine these are files, the lease where ``lease.path`` says and the others beside it.  In a
fleet they are keys of a store that all controllers reach (:mod:`dial.fleet.handover`).  Whoever
writes them does not know which.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dial.lease import LeaseFile, LeaseStore, write_in_place
from dial.settings import Settings


class Kept(Protocol):
    """One document that outlives its writer; ``str()`` of it says where it is."""

    def read(self) -> bytes | None:
        """The whole of it, or ``None`` where there is none.

        Raises
        ------
        OSError
            If it is there and cannot be read.
        """

    def write(self, content: bytes) -> None:
        """Put ``content`` in place of what is there.

        Raises
        ------
        OSError
            If it cannot be written; what was there still is.
        """

    def remove(self) -> None:
        """Remove it, if it is there.

        Raises
        ------
        OSError
            If it cannot be removed.
        """


class KeptFile:
    """A document in a file that only its owner can read.

    Parameters
    ----------
    path : of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> bytes | None:
        """The file's content."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Replace the file; readers see it whole, or what was there before."""
        write_in_place(self._path, content)

    def remove(self) -> None:
        """Unlink the file."""
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Handover:
    """The three documents of one service."""

    lease: LeaseStore
    state: Kept
    orders: Kept

    @classmethod
    def files(cls, settings: Settings) -> Handover | None:
        """Those on this machine, if a path is configured."""
        file = LeaseFile.of(settings)
        if file is None:
            return None
        return cls(file, KeptFile(file.beside("state")), KeptFile(file.beside("orders")))
