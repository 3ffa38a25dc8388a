"""Debian's Chromium, driven from a test's own event loop."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, async_playwright

WITHIN_MS = 15_000
"""For anything that is awaited: far more than it takes, so that a busy machine passes too."""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser; skips the test where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium program here: install Debian's chromium")
    # Its sandbox is refused to root; what it opens is this test's own page.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=[*sandbox, "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            await browser.close()


def watch(page: Page) -> list[str]:
    """What the page complains of (errors, refused by its own policy) and what it asks others."""
    page.set_default_timeout(WITHIN_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on(
        "console",
        lambda message: (
            complaints.append(f"{message.type}: {message.text}")
            if message.type in ("error", "warning") and "status of 40" not in message.text
            else None
        ),
    )
    return complaints
