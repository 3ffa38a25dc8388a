"""What the page looks like: pictures for people in out/dashboard, and what a test can tell."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser import WITHIN_MS, watch

from .conftest import Serve
from .pools import Pool

PICTURES = Path(__file__).resolve().parents[2] / "out" / "dashboard"
SIZES = {"phone": (390, 844), "desktop": (1440, 900)}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("backends", [3, 500])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
async def test_it_fits_the_screen(
    browser: Browser, serving: Serve, size: str, scheme: str, backends: int
) -> None:
    pool = Pool(backends, slow=1 if backends == 3 else 7)
    pool.run(150)
    width, height = SIZES[size]
    async with serving(pool) as served:
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            device_scale_factor=2,
            reduced_motion="reduce",
        )
        page = await context.new_page()
        complaints = watch(page)
        await page.goto(served.url)
        await expect(page.locator(".backend").first).to_be_visible(timeout=WITHIN_MS)
        await expect(page.locator("#timeline li").first).to_be_visible(timeout=WITHIN_MS)
        PICTURES.mkdir(parents=True, exist_ok=True)
        await page.screenshot(path=PICTURES / f"{size}-{scheme}-{backends}.png")
        await page.locator("button.row").first.click()
        await page.screenshot(path=PICTURES / f"{size}-{scheme}-{backends}-open.png")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert complaints == []
        await context.close()


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(scheme: int) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 for text."""
    style = (files("dial.service") / "dashboard" / "page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", blocks[scheme]))
    for ink in ("ink", "soft", "accent", "warm", "bad", "frozen", "good"):
        for paper in ("bg", "surface"):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
    assert contrast(colours["warm"], colours["warm-bg"]) >= 4.5
    assert contrast(colours["frozen"], colours["frozen-bg"]) >= 4.5


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
