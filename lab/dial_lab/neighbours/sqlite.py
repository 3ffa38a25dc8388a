"""A neighbour that fills a database: rows in bulk, and a commit after each mebibyte.

A commit waits until its rows are on the disk.  When the file is large enough it begins anew.

Standard library only, and runs as a file.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import time
from pathlib import Path

ROW_BYTES = 16_384
ROWS_PER_COMMIT = 64
COMMITS_PER_FILE = 64
"""64 MiB, a third of the neighbour's disk."""


def fill(file: Path, end_s: float, commits: int = COMMITS_PER_FILE) -> None:
    """Make a new database, and go on until it has had its commits or the time is over.

    Parameters
    ----------
    file
        Removed first, if it is there.
    end_s
        By :func:`time.monotonic`.
    commits
        So many at most.
    """
    file.unlink(missing_ok=True)
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, content BLOB)")
    for _ in range(commits):
        if time.monotonic() >= end_s:
            break
        rows = [(os.urandom(ROW_BYTES),) for _ in range(ROWS_PER_COMMIT)]
        with database:
            database.executemany("INSERT INTO rows (content) VALUES (?)", rows)
    database.close()


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    while time.monotonic() < end_s:
        fill(options.file, end_s)


if __name__ == "__main__":
    main()
