"""The partition as a part of the agent: begun and ended with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from dial.agent.files import Tree
from dial.errors import LimitError, SettingError
from dial.limits.guardian import guarded
from dial.limits.periodic import acting
from dial.partition.build import manager
from dial.partition.manager import INTERVAL_S, Manager
from dial.partition.settings import read_settings


@contextmanager
def partitioning(path: str, tree: Tree, *, dry_run: bool) -> Iterator[Manager]:
    """Partition by a file while the context lasts; every limit is put back at its end.

    Parameters
    ----------
    path
        Of the settings.
    tree
        Where to read.
    dry_run
        Say what would be done, and write nothing.

    Raises
    ------
    SettingError
        If the file, a group or the journal cannot be used.
    """
    settings = read_settings(path)
    try:
        managed = manager(settings, tree, dry_run=dry_run)
    except LimitError as error:
        raise SettingError(f"--partition: {error}") from error
    guard = nullcontext() if dry_run else guarded(settings.journal)
    with guard, acting("partition", managed, INTERVAL_S, time.monotonic):
        yield managed
