"""``dial watchdog``: put the configured weights back when the controller has died."""

from __future__ import annotations

import asyncio
import signal

from dial.adapter import load_adapter
from dial.cli.logging import set_up_logging
from dial.cli.options import Config
from dial.errors import SettingError
from dial.lease import LeaseFile
from dial.settings import Settings, load_settings
from dial.watchdog import Watchdog, log, watch


def command(config: Config) -> None:
    """Put the configured weights back when the controller has died; runs until SIGTERM."""
    settings = load_settings(config)
    file = LeaseFile.of(settings)
    if file is None:
        raise SettingError(
            f"{config}: lease.path: must be given; a watchdog looks at the controller's lease"
        )
    set_up_logging(settings.log_format)
    asyncio.run(_run(settings, file))


async def _run(settings: Settings, file: LeaseFile) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    adapter = load_adapter(settings.adapter.name)(settings.service, settings.adapter.options)
    log.info("watches", lease=str(file.path), expires_s=settings.lease_expires_s)
    try:
        await watch(Watchdog(file, adapter), stop)
    finally:
        await adapter.aclose()
        log.info("stopped")
