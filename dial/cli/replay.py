"""``dial replay``: whether a recording gives the same plans again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dial.controller.replay import replay

SHOWN = 20
"""Differences that are printed: the first ones tell, the rest follow from them."""

PROGRESS_TICKS = 1_000
"""Ticks between two updates of the progress line; a tick takes about a millisecond."""


def command(
    file: Annotated[Path, typer.Argument(help="Recording (JSON lines).", show_default=False)],
) -> None:
    """Run a recording through this build and compare every plan, bit for bit."""
    # Progress is on standard error, so that output can be piped; Rich leaves it out where
    # that is no terminal.
    with Console(stderr=True).status(f"replaying {file.name}") as status:

        def progress(ticks: int) -> None:
            if ticks % PROGRESS_TICKS == 0:
                status.update(f"replaying {file.name}: {ticks} ticks")

        result = replay(file, progress)
    for mismatch in result.mismatches[:SHOWN]:
        typer.echo(f"tick {mismatch.tick}: {mismatch.what}")
        typer.echo(f"  recorded {mismatch.recorded}")
        typer.echo(f"  replayed {mismatch.replayed}")
    if len(result.mismatches) > SHOWN:
        typer.echo(f"... and {len(result.mismatches) - SHOWN} more")
    if result.truncated:
        typer.echo("the last line is cut short, as after a crash; it was left out")
    if result.mismatches:
        typer.echo(f"{result.ticks} ticks replayed: {len(result.mismatches)} differ")
        raise typer.Exit(1)
    typer.echo(f"{result.ticks} ticks replayed: every plan is the same")
