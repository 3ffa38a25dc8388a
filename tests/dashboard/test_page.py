"""The dashboard in a real browser: what it shows, how it stays calm, and what it never does."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from dial.types import Mode
from tests.browser import WITHIN_MS, watch

from .conftest import OPERATOR, Serve, Served
from .pools import Pool

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=WITHIN_MS)


async def opened(browser: Browser, served: Served, **context: object) -> tuple[Page, list[str]]:
    page = await (await browser.new_context(**context)).new_page()
    complaints = watch(page)
    await page.goto(served.url)
    await expect(page.locator("#link")).to_have_attribute("data-link", "live")
    await expect(page.locator(".backend").first).to_be_visible()
    return page, complaints


async def test_it_shows_each_backend_with_times_weight_verdict_and_evidence(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(3, slow=1)
    pool.run(120)
    (slow,) = pool.slow
    async with serving(pool) as served:
        page, complaints = await opened(browser, served)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.reload()
        await expect(page.locator("h1")).to_have_text(f"{slow}: a neighbour takes CPU, 55 %")
        await expect(page.locator("#subline")).to_contain_text(f"Load moves away from {slow} (cpu)")
        first = page.locator(".backend").first
        await expect(first.locator(".name")).to_have_text(slow)
        await expect(first.locator(".time small")).to_have_text(re.compile(r"^expected ≤ \d+ ms$"))
        await expect(first.locator(".weight small")).to_contain_text("weight 30 of 100")
        await first.locator("button.row").click()
        await expect(first.locator(".evidence li")).to_have_count(3)
        await expect(first.locator(".evidence")).to_contain_text("CPU wait above normal by 0.62")
        await expect(page.locator("#timeline li").first).to_contain_text("weights in force")
        await expect(page.locator("#model")).to_contain_text("Model ")
        assert asked
        assert {url for url in asked if not url.startswith(served.url)} == set()
        assert complaints == []


async def test_it_follows_the_stream_and_moves_trouble_to_the_top(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(3, slow=1)
    pool.run(60)
    (slow,) = pool.slow
    async with serving(pool) as served:
        page, complaints = await opened(browser, served)
        await expect(page.locator("h1")).to_have_text("All 3 backends are as fast as expected")
        served.tick(slow=True)
        await expect(page.locator(".backend").first.locator(".name")).to_have_text(slow)
        await expect(page.locator("#timeline li").first).to_be_visible()
        served.tick(slow=False)
        await expect(page.locator(".backend").first.locator(".name")).to_have_text("s1")
        await expect(page.locator("#timeline")).to_contain_text(f"{slow}: as expected again")
        assert complaints == []


async def test_of_500_backends_those_in_trouble_come_first_and_few_are_drawn(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(500, slow=4)
    pool.run(100)
    async with serving(pool) as served:
        page, complaints = await opened(browser, served)
        await expect(page.locator("h1")).to_have_text("4 of 500 backends are slow")
        names = await page.locator(".backend .name").all_inner_texts()
        assert set(names[:4]) == set(pool.slow)
        assert len(names) == 60
        # Those that are seen, as soon as the browser says which they are.
        drawn = "[...document.querySelectorAll('canvas.spark')].filter(c => c.width !== 300).length"
        await page.wait_for_function(f"{drawn} >= 4")
        assert await page.evaluate(drawn) < 30
        await expect(page.locator("#field")).to_have_attribute(
            "aria-label", "All 500 backends: 4 slow, 496 as expected, 0 learning, 0 out of service"
        )
        await page.locator("#search").fill("s499")
        await expect(page.locator(".backend")).to_have_count(1)
        await page.locator("#search").fill("")
        await page.locator("#more").click()
        await expect(page.locator(".backend")).to_have_count(240)
        assert complaints == []


async def test_a_row_opens_by_keyboard_and_keeps_focus_while_others_pass_it(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(3, slow=1)
    pool.run(60)
    (slow,) = pool.slow
    async with serving(pool) as served:
        page, _ = await opened(browser, served)
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.locator(f'[data-name="{slow}"] button.row').focus()
        await page.keyboard.press("Enter")
        row = page.locator(f'[data-name="{slow}"]')
        await expect(row.locator("button.row")).to_have_attribute("aria-expanded", "true")
        await expect(row.locator(".chart")).to_have_attribute("aria-label", re.compile("now .* ms"))
        served.tick(slow=True)
        await expect(page.locator(".backend").first.locator(".name")).to_have_text(slow)
        await expect(row.locator("button.row")).to_be_focused()
        unnamed = await page.evaluate(
            "[...document.querySelectorAll('button, input')].filter(e => e.checkVisibility())"
            ".filter(e => !e.innerText && !e.labels?.length && !e.ariaLabel).length"
        )
        assert unnamed == 0


async def test_freeze_asks_for_the_operators_token_once_and_keeps_it_in_this_tab_only(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(3, slow=1)
    pool.run(100)
    async with serving(pool) as served:
        page, complaints = await opened(browser, served)
        freeze = page.get_by_role("button", name="Freeze", exact=True)
        await freeze.click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("They stay as they are until you unfreeze them")
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await freeze.click()
        await page.get_by_label("Token", exact=True).fill("a-guess")
        await page.keyboard.press("Enter")
        await expect(dialog).to_contain_text("This token is not known.")
        assert not served.parts.orders.now().frozen
        await page.get_by_label("Token", exact=True).fill(OPERATOR)
        await page.keyboard.press("Enter")
        await expect(page.locator("#mode")).to_have_text("Frozen")
        assert served.parts.orders.now().frozen
        served.tick()
        await expect(page.locator("h1")).to_contain_text("Frozen. ")
        kept = await page.evaluate(
            "[Object.values(sessionStorage), localStorage.length, document.cookie]"
        )
        assert kept == [[OPERATOR], 0, ""]
        assert OPERATOR not in page.url
        await page.get_by_role("button", name="Unfreeze").click()
        await expect(page.locator("#mode")).to_have_text("Enforcing")
        assert not served.parts.orders.now().frozen
        assert complaints == []


async def test_a_weight_is_set_by_hand_and_ended(browser: Browser, serving: Serve) -> None:
    pool = Pool(3, slow=0)
    pool.run(100)
    async with serving(pool) as served:
        page, complaints = await opened(browser, served)
        row = page.locator('[data-name="s2"]')
        await row.locator("button.row").click()
        await row.get_by_label("Weight", exact=True).fill("20")
        await row.get_by_label("Minutes").fill("5")
        await row.get_by_role("button", name="Set", exact=True).click()
        await page.get_by_label("Token", exact=True).fill(OPERATOR)
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("s2 has weight 20")
        (order,) = served.parts.orders.now().overrides
        assert (order.backend, order.weight) == ("s2", 20)
        served.tick()
        await expect(row.locator(".verdict")).to_contain_text("Set by hand until")
        await row.get_by_role("button", name="End now").click()
        await expect(page.locator("#toast")).to_contain_text("s2 goes back")
        assert served.parts.orders.now().overrides == ()
        assert complaints == []


async def test_where_reading_needs_a_token_the_page_asks_for_it(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(3, slow=0)
    pool.run(20)
    async with serving(pool, read="the-readers-token") as served:
        page = await (await browser.new_context()).new_page()
        watch(page)
        await page.goto(served.url)
        await page.get_by_label("Token", exact=True).fill("the-readers-token")
        await page.keyboard.press("Enter")
        await expect(page.locator(".backend")).to_have_count(3)


async def test_a_controller_that_goes_and_comes_is_shown_as_such(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(3, slow=0)
    pool.run(20)
    async with serving(pool) as served:
        page, _ = await opened(browser, served)
        port = int(served.url.rsplit(":", 1)[1])
    await expect(page.locator("#link")).to_have_attribute("data-link", "lost")
    await expect(page.locator(".backend")).to_have_count(3)
    again = Pool(4, slow=0)
    again.run(20)
    async with serving(again, port=port):
        await expect(page.locator("#link")).to_have_attribute("data-link", "live")
        await expect(page.locator(".backend")).to_have_count(4)


async def test_what_a_backend_is_called_is_never_read_as_markup(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(2, slow=1, names="<img src=x onerror=alert({})>")
    pool.run(100)
    async with serving(pool) as served:
        page, complaints = await opened(browser, served)
        await expect(page.locator(".backend .name").first).to_contain_text("<img src=x")
        assert await page.locator("img").count() == 1  # the page's own
        assert complaints == []


async def test_in_shadow_mode_there_is_nothing_to_freeze_and_the_page_says_why(
    browser: Browser, serving: Serve
) -> None:
    pool = Pool(3, slow=1, mode=Mode.SHADOW)
    pool.run(100)
    async with serving(pool) as served:
        page, _ = await opened(browser, served)
        await expect(page.locator("#mode")).to_have_text("Shadow")
        await expect(page.locator("#freeze")).to_be_hidden()
        await expect(page.locator("#subline")).to_contain_text("nothing is written")
