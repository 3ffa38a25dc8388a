"""``dial controller``: run the control loop until it is told to stop."""

from __future__ import annotations

import asyncio

import typer

from dial.cli.logging import set_up_logging
from dial.cli.options import Config
from dial.controller import runtime
from dial.service.token import Tokens
from dial.settings import load_settings


def command(config: Config) -> None:
    """Look after one service: read, infer, plan, and in enforce mode write weights."""
    settings = load_settings(config)
    tokens = Tokens.load(settings.api)
    run = runtime.run
    if settings.fleet.servers:
        # The package needs an extra, so it is imported when it is wanted.
        from dial.fleet import require_extra  # noqa: PLC0415

        require_extra()
        from dial.fleet.member import run  # noqa: PLC0415

    set_up_logging(settings.log_format, secrets=tokens.secrets)
    try:
        asyncio.run(run(settings))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
