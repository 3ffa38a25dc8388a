"""``dial reader``: read one balancer of a fleet until it is told to stop."""

from __future__ import annotations

import asyncio

import typer

from dial.cli.logging import set_up_logging
from dial.cli.options import Config
from dial.errors import SettingError
from dial.settings import load_settings


def command(config: Config) -> None:
    """Beside a balancer of a fleet: publish what it does, and apply the leader's plans."""
    settings = load_settings(config)
    if not settings.fleet.servers:
        raise SettingError(
            f"{config}: fleet.servers: must be given; without a fleet `dial controller` reads the "
            "balancer itself"
        )
    # The package needs an extra, so it is imported when it is wanted.
    from dial.fleet import require_extra  # noqa: PLC0415

    require_extra()
    from dial.fleet import reader  # noqa: PLC0415

    set_up_logging(settings.log_format)
    try:
        asyncio.run(reader.run(settings))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
