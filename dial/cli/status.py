"""``dial status``: a running controller at a glance."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dial.cli.client import fetch_state, show
from dial.cli.options import DEFAULT_URL, Url
from dial.service.views import State
from dial.types import Cause


def command(
    url: Url = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as it is.")] = False,
) -> None:
    """Show each backend's rate, T_x, verdict, rho_bg, weight and share."""
    state, raw = fetch_state(url)
    if json:
        typer.echo(raw)
        return
    _print(state)


def _print(state: State) -> None:
    # Names come from outside: as Text they are shown, never read as Rich's markup.
    console = Console(highlight=False)
    console.print(Text(f"{state.service} ({state.adapter}), {state.mode}, tick {state.tick}"))
    if state.trouble:
        console.print(Text(f"trouble: {state.trouble}", style="red"))
    if state.action:
        console.print(Text(f"{state.action}: {state.reason}"))
    if not state.backends:
        console.print("no backend has been read from the load balancer yet")
        return
    table = Table(box=None, header_style="bold")
    table.add_column("backend")
    for heading in ("rate/s", f"T{state.percentile:g} ms", "expected ms"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for heading in ("rho_bg", "weight", "share"):
        table.add_column(heading, justify="right")
    for backend in state.backends:
        cause = backend.cause
        slow = cause is not None and cause not in (Cause.NONE, Cause.LOAD)
        cells = (
            backend.name,
            f"{backend.rate_per_s:.1f}",
            show(backend.t_x_ms, 1),
            show(backend.expected_t_x_ms, 1),
            cause or "-",
            show(backend.rho_bg),
            f"{backend.weight}",
            show(backend.share, 3),
        )
        table.add_row(*map(Text, cells), style="yellow" if slow else "")
    console.print(table)
