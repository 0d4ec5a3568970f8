"""The page in a real headless Chromium: it loads without errors, draws, switches, filters, and fits a phone.

Skipped where no Chromium and chromedriver are installed. Cannot prove that it looks good; SCREENSHOTS=folder
writes pictures to look at.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adrbench.paths import ROOT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="no chromium with chromedriver is installed"),
    pytest.mark.timeout(300),
]
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--hide-scrollbars", "--window-size=1280,900",
)  # fmt: skip
# From disk, the best of three: others on the machine may disturb one of them.
LONGEST_LOAD_MS = 2_000
LARGEST_PAGE = 5_000_000
# The page of a run in this folder, where there was one.
REAL = ROOT / "reports/index.html"
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
# What reaches beyond the screen without a scroller of its own.
BEYOND = """
const scrolls = (e) => e && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
return [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5
  && !scrolls(e.parentElement)).map((e) => e.outerHTML.slice(0, 120))
"""
# Heights of the words in figures, and colours of those that are shown.
WORDS = """
return [...document.querySelectorAll("[data-figure] svg text")].filter((e) => e.textContent.trim()
  && getComputedStyle(e).opacity > 0 && !/[◀▶]/.test(e.textContent))
  .map((e) => [e.textContent, e.getBoundingClientRect().height, getComputedStyle(e).fill])
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """A function that opens the page and waits until every figure is drawn; console messages fail the test."""
    browser.get_log("browser")

    def go(query: str = "?lang=en&theme=light") -> Any:
        browser.get(page.as_uri() + query)
        draw_all(browser)
        return browser

    yield go
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    messages = [f"{entry['level']}: {entry['message']}" for entry in browser.get_log("browser")]
    assert messages == []


def wait(browser: Any, condition: str, seconds: float = 60) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, seconds).until(lambda b: b.execute_script(f"return {condition}"), condition)


def draw_all(browser: Any) -> None:
    """Scroll every figure into view and wait for it."""
    count = browser.execute_script("return document.querySelectorAll('[data-figure]').length")
    for index in range(count):
        element = f"document.querySelectorAll('[data-figure]')[{index}]"
        browser.execute_script(f"{element}.scrollIntoView({{block: 'center'}})")
        wait(browser, f"!!{element}.dataset.drawn")
    browser.execute_script("scrollTo(0, 0)")


def shoot(browser: Any, name: str) -> None:
    """A picture of the whole page, where the environment asks for one."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        width, height = browser.execute_script("return [innerWidth, document.documentElement.scrollHeight]")
        for top in range(0, height, 1500):
            clip = {"x": 0, "y": top, "width": width, "height": min(1500, height - top), "scale": 1}
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
            Path(folder, f"{name}-{top // 1500}.png").write_bytes(base64.b64decode(shot["data"]))


def shown(browser: Any, selector: str) -> int:
    """Elements that take up room."""
    script = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.getClientRects().length).length"
    return int(browser.execute_script(script, selector))


def test_it_opens_fast_and_draws_every_figure(opened: Any) -> None:
    browser = opened()
    marks = browser.execute_script(
        "return [...document.querySelectorAll('[data-figure]')].map((e) => [e.dataset.figure, "
        "e.querySelectorAll('.role-mark path, .role-mark line, .role-mark rect, canvas').length])"
    )
    assert len(marks) == 10
    assert [name for name, number in marks if number == 0] == []
    shoot(browser, "light")


@pytest.mark.parametrize("which", ["example", "real"])
def test_the_page_is_small_and_opens_within_two_seconds(which: str, browser: Any, page: Path) -> None:
    path = page if which == "example" else REAL
    if not path.is_file():
        pytest.skip(f"{path} does not exist: no run of this folder has made a page")
    assert path.stat().st_size <= LARGEST_PAGE
    loads = []
    for _ in range(3):
        browser.get("about:blank")
        browser.get(path.as_uri() + "?lang=en")
        wait(browser, "performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
        loads.append(browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(loads) <= LONGEST_LOAD_MS, loads


def test_both_languages_on_one_page(opened: Any) -> None:
    browser = opened()
    english = browser.execute_script("return document.body.innerText")
    assert not re.search(r"[\u4e00-\u9fff]", english.replace("中文", ""))
    browser.execute_script("document.querySelector('[data-set-lang=zh]').click()")
    wait(browser, "document.documentElement.lang === 'zh-CN'")
    chinese = browser.execute_script("return document.body.innerText")
    assert "在该平台上采用哪种 KV-cache 方案?" in chinese
    assert "Which KV-cache scheme" not in chinese
    assert "决策" in browser.title
    wait(browser, "[...document.querySelectorAll('[data-figure]')].every((e) => e.dataset.drawn.startsWith('zh'))")
    assert browser.execute_script("return document.querySelector('[data-claim=text]').placeholder") == "陈述中的词"
    shoot(browser, "zh")


def luminance(browser: Any, selector: str, name: str) -> float:
    script = f"return getComputedStyle(document.querySelector(arguments[0])).{name}"
    return luminance_of(browser.execute_script(script, selector))


def luminance_of(colour: str) -> float:
    channels = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: float, second: float) -> float:
    low, high = sorted((first, second))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast_in_both_colour_schemes(opened: Any, theme: str) -> None:
    browser = opened(f"?lang=en&theme={theme}")
    ground = luminance(browser, "body", "backgroundColor")
    assert (ground < 0.1) == (theme == "dark")
    for selector in ("body", ".quiet", "main a:not(.num)"):
        assert contrast(luminance(browser, selector, "color"), ground) >= 4.5, selector
    for chip in (".chip.passed", ".chip.undecided", ".chip.false", ".chip.unverified", ".chip.blocked"):
        text, own = luminance(browser, chip, "color"), luminance(browser, chip, "backgroundColor")
        assert contrast(text, own) >= 4.5, chip
    assert browser.execute_script(
        f"return [...document.querySelectorAll('[data-figure]')].every((e) => e.dataset.drawn.includes('{theme}'))"
    )
    words = browser.execute_script(WORDS)
    assert "920%" in {word for word, _, _ in words}  # the example's decode lies above its roof
    assert [word for word, _, colour in words if contrast(luminance_of(colour), ground) < 4.5] == []
    shoot(browser, f"theme-{theme}")


@pytest.mark.parametrize("width", [PHONE["width"], 390])
def test_a_phone_needs_no_sideways_scroll(opened: Any, browser: Any, width: int) -> None:
    """Tables scroll inside themselves, and what a row is about leaves room for its first number."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE | {"width": width})
    for language in ("en", "zh"):
        opened(f"?lang={language}&theme=light")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script(BEYOND) == []
        assert min(height for _, height, _ in browser.execute_script(WORDS)) >= 11
        heads = "[...document.querySelectorAll('main th[scope=row]')].filter((e) => e.getClientRects().length)"
        assert max(browser.execute_script(f"return {heads}.map((e) => e.clientWidth)")) <= width / 2
        shoot(browser, f"phone-{language}")


def test_filters_by_arm_and_tier_reach_gates_tables_and_figures(opened: Any) -> None:
    browser = opened()
    rows = "return document.querySelector('[data-figure=latency_ttft]').dataset.drawn"
    before = browser.execute_script(rows)
    assert shown(browser, "#serving tbody tr[data-arm='fp8-e5m2']") == 3
    browser.execute_script("document.querySelector('[data-filter=arm] input[value=\"fp8-e5m2\"]').click()")
    wait(browser, f"document.querySelector('[data-figure=latency_ttft]').dataset.drawn !== '{before}'")
    assert browser.execute_script(rows) == "en light 144"  # 9 of 12 rounds and tiers, 16 requests each
    assert shown(browser, "main [data-arm='fp8-e5m2']") == 0
    browser.execute_script("document.querySelector('[data-filter=tier] input[value=long]').click()")
    assert shown(browser, "main [data-tier=long]") == 0
    assert shown(browser, "#serving tbody tr[data-arm=auto]") == 2
    browser.execute_script("document.querySelector('[data-filter-all]').click()")
    wait(browser, f"document.querySelector('[data-figure=latency_ttft]').dataset.drawn === '{before}'")
    assert shown(browser, "#serving tbody tr[data-arm='fp8-e5m2']") == 3


def test_claims_filter_by_document_kind_verdict_and_text(opened: Any) -> None:
    browser = opened()
    whole = shown(browser, ".claims tbody tr")
    assert whole == 40

    def choose(name: str, value: str) -> int:
        browser.execute_script(
            "const e = document.querySelector(`[data-claim=${arguments[0]}]`); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}))", name, value,
        )  # fmt: skip
        return shown(browser, ".claims tbody tr")

    assert choose("verdict", "false") == 8
    name = browser.execute_script(
        "return document.querySelector('.claims tr[data-verdict=false] .id').textContent.split(' ')[0]"
    )
    assert choose("text", f"corrected {name.upper()}") == 1  # every word, in any case
    assert "1 of 40" in browser.execute_script("return document.getElementById('claims-shown').textContent")
    assert choose("text", "") == 8
    assert choose("kind", "source") < 8
    browser.execute_script("document.querySelector('.claimfilter').reset()")
    wait(browser, "[...document.querySelectorAll('.claims tbody tr')].every((row) => !row.hidden)")
    documents = browser.execute_script("return [...document.querySelector('[data-claim=document]').options].length")
    assert documents == 2  # all, and the one of the example
    value = browser.execute_script("return document.querySelector('[data-claim=document]').options[1].value")
    assert choose("document", value) == 40


def test_a_number_opens_its_evidence_by_keyboard(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = opened()
    link = browser.find_element("css selector", "#serving td a.num")
    link.send_keys(Keys.ENTER)
    wait(browser, "document.getElementById('drawer').open")
    text = browser.execute_script("return document.getElementById('drawer').innerText")
    assert "results/cpu/serve/auto/r1/short.json" in text
    assert "measured.output_tokens_per_s" in text
    links = browser.execute_script(
        "return [...document.querySelectorAll('#drawer-rows a')]"
        ".map((a) => decodeURIComponent(new URL(a.href).pathname))"
    )
    assert links
    assert all(Path(path).is_file() for path in links)
    browser.find_element("css selector", "#drawer-close").send_keys(Keys.ESCAPE)
    wait(browser, "!document.getElementById('drawer').open")


def test_every_control_can_be_reached_and_has_a_name(opened: Any) -> None:
    browser = opened()
    nameless = browser.execute_script(
        "return [...document.querySelectorAll('button, a[href], input, select, summary')]"
        ".filter((e) => !(e.innerText || '').trim() && !e.getAttribute('aria-label') && !(e.labels && e.labels.length)"
        " && e.getClientRects().length).map((e) => e.outerHTML.slice(0, 120))"
    )
    assert nameless == []
    unreachable = browser.execute_script(
        "return [...document.querySelectorAll('button, a[href], input, select, .scroll')]"
        ".filter((e) => e.tabIndex < 0).length"
    )
    assert unreachable == 0


def test_without_scripts_the_page_still_says_what_was_decided(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        text = browser.find_element("css selector", "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "Which KV-cache scheme serves this model on this platform?" in text
    assert "Without JavaScript" in text
