"""The command ``dial``: one file per subcommand.

What a command answers by its exit code is written in :mod:`dial.cli.app` and shown by
``dial --help``.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run ``dial`` with the process's arguments; returns the exit code."""
    argv = sys.argv[1:]
    if argv[:1] == ["agent"]:
        # Before anything else is imported: the agent lives on every VM of the tenant and
        # is measured there.  Typer, Rich and numpy would cost it 50 MiB and a second of
        # CPU at each start; it needs the standard library alone.
        from dial.agent import main as agent_main  # noqa: PLC0415 - see above

        return agent_main(argv[1:])
    from dial.cli.app import run  # noqa: PLC0415 - see above

    return run(argv)
