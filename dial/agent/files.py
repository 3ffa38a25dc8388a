"""Reading /proc and /sys, and saying in one place what it means that this failed.

A file there can be missing for three reasons that ask for three answers: the kernel does
not offer it, it may not be read, or the process or group it belonged to has just gone.
All three become :class:`Unavailable` here, with a message fit to be shown to an admin as
the reason of a :class:`dial.types.NoData`, so that no collector handles ``OSError``.

Files are read with bare system calls.  The agent opens one file for each thread of the
application every second, and ``Path.read_text`` costs several times what this does.
"""

from __future__ import annotations

import os

from dial.errors import DialError

_CHUNK_BYTES = 65_536
"""More than any file of /proc that is read here on a machine of a few hundred CPUs."""


class Unavailable(DialError):
    """A signal that cannot be had now; the message is the reason."""


class Vanished(Unavailable):
    """What was to be read is not there: never offered, or gone with its process or group."""


class Tree:
    """The file system below a root: ``/`` in life, a fixture in tests.

    Parameters
    ----------
    root
        Directory that takes the place of ``/``.  Messages name paths without it.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def read(self, path: str) -> str:
        """Return the whole text of ``path``; bytes that are no ASCII are replaced.

        Raises
        ------
        Vanished
            If there is no such file, or its process ended while it was read.
        Unavailable
            If it may not be read, or the kernel refuses.
        """
        try:
            descriptor = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                chunks = []
                while chunk := os.read(descriptor, _CHUNK_BYTES):
                    chunks.append(chunk)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _translated(path, error) from error
        return b"".join(chunks).decode("ascii", "replace")

    def names(self, path: str) -> list[str]:
        """Return the names in directory ``path``; raises as :meth:`read`."""
        try:
            with os.scandir(self._root + path) as entries:
                return [entry.name for entry in entries]
        except OSError as error:
            raise _translated(path, error) from error

    def directories(self, path: str) -> list[str]:
        """Return the names of the directories in ``path``; raises as :meth:`read`."""
        try:
            with os.scandir(self._root + path) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            raise _translated(path, error) from error

    def link(self, path: str) -> str:
        """Return what the symbolic link ``path`` points to; raises as :meth:`read`."""
        try:
            return os.readlink(self._root + path)  # noqa: PTH115 - as for reading
        except OSError as error:
            raise _translated(path, error) from error

    def exists(self, path: str) -> bool:
        """Whether there is something at ``path`` that may be looked at."""
        return os.access(self._root + path, os.F_OK)


def _translated(path: str, error: OSError) -> Unavailable:
    # ESRCH: a process that ends between open and read of one of its files.
    if isinstance(error, (FileNotFoundError, NotADirectoryError, ProcessLookupError)):
        return Vanished(f"{path}: not there")
    return Unavailable(f"{path}: {error.strerror}")
