"""A real browser on a live Airflow: its login, pictures of pages, and a report that would do harm."""

from __future__ import annotations

import contextlib
import io
import shutil
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow.live.services import EDITOR, PASSWORDS
from tests.airflow.pages import Answer, crawl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

    from tests.airflow.live.runs import LiveRun
    from tests.airflow.live.services import System
    from tests.airflow.pages import Crawl

# A browser that is neither root's own nor online: no sandbox of its own, and no look-ups at its maker's hosts.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60_000  # ms; the first page loads while everything else starts
_WIDE, _NARROW = {"width": 1280, "height": 760}, {"width": 390, "height": 844}
_HIGHEST, _MARGIN = 4000, 40
EVIL = """<!doctype html><meta charset="utf-8"><base href="http://127.0.0.1:9/">
<h1>A report</h1>
<script>window.ran = document.cookie</script>
<img src="x" onerror="window.ran = 1"><svg onload="window.ran = 1"></svg>
<img src="/gnnflow/beacon.png"><link rel="stylesheet" href="/gnnflow/beacon.css">
<iframe srcdoc="<script>parent.ran = 1; top.ran = 1</script>"></iframe>
<a id="script" href="javascript:window.ran = 1">script</a>
<a id="open" target="_blank" rel="opener" href="javascript:opener.ran = window.ran = 1">open</a>
<a id="leave" target="_top" href="/gnnflow/">leave</a>
<form method="post" action="/gnnflow/hostile/registry/small/rollback"><button id="send">send</button></form>
"""


@contextlib.contextmanager
def opened_browser() -> Iterator[Browser]:
    """Run Chromium; skips the test where it is not installed."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        yield browser
        browser.close()


def signed_in(browser: Browser, live: System, path: str, *, name: str = EDITOR) -> Page:
    """Return a page of a user: Airflow's login, which somebody unknown is led to, and from there to the path."""
    page: Page = browser.new_context(viewport=_WIDE).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{live.base}{path}")
    page.wait_for_url("**/auth/login**")
    page.locator('input[name="username"]').fill(name)
    page.locator('input[name="password"]').fill(PASSWORDS[name])
    page.locator('button[type="submit"]').click()
    page.wait_for_url(f"{live.base}{path}")
    return page


def page_of(browser: Browser, live: System) -> Page:
    """Return a page of somebody who has signed in before."""
    context = browser.new_context(viewport=_WIDE)
    context.add_cookies([{"name": "_token", "value": live.token, "url": live.base}])
    page: Page = context.new_page()
    page.set_default_timeout(PATIENCE)
    return page


def fit_height(page: Page, shown: Locator, *, width: int) -> None:
    """Give the window a width, and the height at which something it shows does not scroll."""
    page.set_viewport_size({"width": width, "height": _HIGHEST})
    bottom = shown.evaluate("each => Math.ceil(each.getBoundingClientRect().bottom)")
    page.set_viewport_size({"width": width, "height": bottom + _MARGIN})


def picture(page: Page, path: Path, *, whole: bool = False) -> None:
    """Write a picture of what is seen. whole: of all of the page."""
    from PIL import Image

    image = Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB")
    image.quantize(method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(path, optimize=True)


def both_widths(page: Page, path: Path, *, whole: bool = False) -> None:
    """Write a picture of a page on a desk and one on a telephone, where nothing may stick out at the side."""
    for size, where in ((_NARROW, path.with_stem(f"{path.stem}-390")), (_WIDE, path)):
        page.set_viewport_size(size)
        for frame in page.frames:  # a frame is another process, which hears of the size later
            frame.wait_for_function("width => innerWidth <= width", arg=size["width"])
            assert frame.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, where.name
            frame.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        picture(page, where, whole=whole)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection."""

    def redirect_request(self, *_: Any) -> None:
        return None


def crawl_from(live: System, *runs: LiveRun) -> Crawl:
    """Crawl from gnnflow's entry of Airflow's menu and from the buttons of all tasks of ended runs."""
    opener = urllib.request.build_opener(_Stay)

    def get(address: str) -> Answer:
        headers = {"Authorization": f"Bearer {live.token}"} if address.startswith(live.base) else {}
        answer: HTTPResponse | urllib.error.HTTPError
        try:
            answer = opener.open(urllib.request.Request(address, headers=headers), timeout=60)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            kind = answer.headers.get("Content-Type", "")
            text = answer.read().decode(errors="replace") if kind.startswith("text/html") else ""
            return Answer(answer.status or 0, kind, text, answer.headers.get("Location", ""))

    plugins = live.request("GET", "/api/v2/plugins")["plugins"]
    starts = [view["href"] for plugin in plugins if plugin["name"] == "gnnflow" for view in plugin["external_views"]]
    assert starts
    return crawl(get, [*starts, *(link for run in runs for link in buttons(run))])


def buttons(run: LiveRun) -> list[str]:
    """Return the addresses of the buttons of a run's tasks."""
    found = [run.live.request("GET", f"{run.path}/taskInstances/{task}/links")["extra_links"] for task in run.tasks()]
    return sorted({address for links in found for address in links.values() if address})
