"""An operator at the dashboard, in a real browser, in front of a real HAProxy under load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from playwright.async_api import expect

from tests.browser import WITHIN_MS, chromium, watch

from .application import until
from .product import OPERATOR_TOKEN
from .stack import Stack, start_stack


async def until_held(stack: Stack, look: Callable[[], Awaitable[bool]], what: str) -> None:
    """As ``until``, and what is held instead, of each backend, where it fails."""
    try:
        await until(look, what)
    except AssertionError as error:
        rows = (await stack.controller.state())["backends"]
        shown = ("name", "cause", "t_x_ms", "expected_t_x_ms", "evidence")
        instead = [", ".join(f"{key} {row[key]}" for key in shown) for row in rows]
        raise AssertionError("\n".join([f"{error}; instead", *instead])) from None


async def test_freezing_from_the_page_keeps_the_weights_and_unfreezing_lets_it_go_on() -> None:
    async with start_stack() as stack, chromium() as browser:
        page = await browser.new_page()
        complaints = watch(page)
        await page.goto(stack.controller.url)
        await stack.learnt()
        await expect(page.locator(".backend")).to_have_count(3, timeout=WITHIN_MS)
        stack.neighbour("s1", there=True)
        await stack.moved_away_from("s1")
        await expect(page.locator("#subline")).to_contain_text("away from s1", timeout=WITHIN_MS)

        await page.get_by_role("button", name="Freeze", exact=True).click()
        await page.get_by_label("Token", exact=True).fill(OPERATOR_TOKEN)
        await page.keyboard.press("Enter")
        await expect(page.locator("#mode")).to_have_text("Frozen", timeout=WITHIN_MS)
        weights = await stack.proxy.weights()
        assert weights["s1"] < weights["s2"] / 2

        # The neighbour leaves and one comes elsewhere: twice a reason to write, and nothing is.
        stack.neighbour("s1", there=False)
        stack.neighbour("s3", there=True)

        async def found() -> bool:
            s1, s3 = await stack.controller.backend("s1"), await stack.controller.backend("s3")
            return bool(s1 and s1["cause"] == "none" and s3["cause"] not in ("none", "load"))

        await until_held(stack, found, "verdicts that would move the load")
        await stack.controller.ticks(4)
        assert await stack.proxy.weights() == weights
        state = await stack.controller.state()
        assert (state["mode"], state["action"], state["changes"]) == ("frozen", "freeze", [])
        assert (await stack.controller.get("/readyz")).status_code == 200

        stack.neighbour("s3", there=False)

        async def calm() -> bool:
            rows = (await stack.controller.state())["backends"]
            return len(rows) == 3 and all(row["cause"] == "none" for row in rows)

        await until_held(stack, calm, "verdicts that would move nothing")
        assert await stack.proxy.weights() == weights
        await page.get_by_role("button", name="Unfreeze").click()
        await expect(page.locator("#mode")).to_have_text("Enforcing", timeout=WITHIN_MS)
        await stack.configured()
        await expect(page.locator("#timeline")).to_contain_text(
            "no longer frozen", timeout=WITHIN_MS
        )
        assert complaints == []
