"""``dial status``: a running controller at a glance."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from dial.cli.client import Reach, fetch_state
from dial.cli.options import DEFAULT_URL, CaFile, CertFile, KeyFile, TokenFile, Url
from dial.cli.table import doubt, heading, table
from dial.service.views import State

LEARNT = "learnt: quiet time behind it; what was there from the start is part of it"


def command(
    *,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as it is.")] = False,
) -> None:
    """Show each backend's rate, T_x, what that rests on, verdict, rho_bg, weight and share."""
    state, raw = fetch_state(Reach(url, token_file, ca_file, cert_file, key_file))
    if json:
        typer.echo(raw)
        return
    _print(state)


def _print(state: State) -> None:
    console = Console(highlight=False)
    console.print(heading(state))
    if state.trouble:
        console.print(Text(f"trouble: {state.trouble}", style="red"))
    if state.action:
        console.print(Text(f"{state.action}: {state.reason}"))
    if not state.backends:
        console.print("no backend has been read from the load balancer yet")
        return
    console.print(table(state, state.backends, console.width, learnt=True))
    console.print(Text(LEARNT, style="dim"))
    for backend in state.backends:
        if backend.baseline is not None and backend.baseline.doubtful:
            console.print(Text(f"{backend.name}: {doubt(backend.baseline)}", style="yellow"))
