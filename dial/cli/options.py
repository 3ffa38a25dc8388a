"""Options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path, typer.Option("--config", "-c", help="Configuration file (TOML).", show_default=False)
]

Url = Annotated[
    str, typer.Option("--url", envvar="DIAL_URL", help="Address of the controller's API.")
]

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="DIAL_TOKEN_FILE",
        help="File with the token, where the controller asks readers for one.",
        show_default=False,
    ),
]

CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", help="Certificates to trust for https.", show_default=False),
]

CertFile = Annotated[
    Path | None,
    typer.Option(
        "--cert-file",
        help="Own certificate, where the controller asks for one.",
        show_default=False,
    ),
]

KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="The key of --cert-file.", show_default=False),
]

DEFAULT_URL = "http://127.0.0.1:9180"
