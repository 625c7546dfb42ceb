"""Pages of workspaces in a real browser: who moves models, hostile reports, links, and pictures."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")
pytest.importorskip("playwright", reason="needs playwright: pip install -r tests/airflow/requirements.txt")

from playwright.sync_api import Locator, Page, expect

from gnnflow import registry
from gnnflow.storage.documents import read_document, write_document
from tests.airflow.live.browser import EVIL, both_widths, crawl_from, page_of, signed_in
from tests.airflow.live.journeys import MODEL
from tests.airflow.live.services import EDITOR, LIVE, VIEWER

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [*LIVE, pytest.mark.browser]


def heading(page: Page, *, framed: bool) -> Locator:
    return (page.frame_locator("iframe") if framed else page).get_by_role("heading").first


def comparison_of(folder: Path) -> str:
    return str(next(folder.glob("runs/comparisons/*/*/comparison.html")).relative_to(folder / "runs"))


def test_an_admin_moves_the_champion_and_a_viewer_does_not(live, hostile, browser):
    workspace, path = f"{hostile}/runs", "/gnnflow/hostile/registry"
    registry.promote(workspace, "small", 1)
    page = signed_in(browser, live, path)
    token = page.locator('input[name="token"]').first.get_attribute("value")
    second = page.get_by_role("row").filter(has=page.get_by_role("link", name="version 2", exact=True))
    second.get_by_role("button", name="Promote").click()
    back = page.get_by_role("button", name="Roll back to version 1")
    expect(back).to_be_visible()
    expect(second.get_by_text("champion")).to_be_visible()
    assert registry.read_aliases(workspace, "small").champion == 2
    back.click()
    expect(second.get_by_role("button", name="Promote")).to_be_visible()
    before = registry.read_aliases(workspace, "small")
    assert before.champion == 1
    assert [move["reason"] for move in before.history[-2:]] == [
        f"promoted in Airflow by {EDITOR}",
        f"put back in service in Airflow by {EDITOR}",
    ]

    viewer = signed_in(browser, live, path, name=VIEWER)
    expect(viewer.get_by_role("link", name="version 2", exact=True)).to_be_visible()
    expect(viewer.get_by_role("button")).to_have_count(0)
    for action in ("promote", "rollback"):
        form = {"token": token, "seen": "1", "version": "2"}
        refused = viewer.context.request.post(f"{live.base}{path}/small/{action}", form=form)
        assert refused.status == 403
        assert "You may not change this" in refused.text()
    assert registry.read_aliases(workspace, "small") == before


def replace_report(run, text):
    """Replace a run's report as somebody would who writes to the workspace: the run's record too."""
    (run / "report.html").write_text(text)
    record, content = read_document(f"{run}/run.json", fix=""), text.encode()
    (entry,) = [each for each in record["files"] if each["name"] == "report.html"]
    entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_document(f"{run}/run.json", {**record, "run": run.name})


def test_a_hostile_report_reaches_nothing_of_airflow(live, hostile, browser):
    run = next(each.parent for each in hostile.glob("runs/runs/small/?????????*/run.json"))
    control = browser.new_page()
    control.set_content(EVIL)
    assert control.evaluate("window.ran") == 1  # where nothing guards, it does what it wants
    page = page_of(browser, live)
    comparison = comparison_of(hostile)
    paths = (f"runs/small/{run.name}/predictions", f"runs/small/{run.name}/report.html", comparison, "registry/small/1")
    for path in paths:
        page.goto(f"{live.base}/gnnflow/hostile/{path}")
        expect(heading(page, framed=path.endswith("html"))).to_be_visible()
        assert {frame.evaluate("typeof window.ran") for frame in page.frames} == {"undefined"}

    shutil.copytree(run, run.with_name("evil"))
    replace_report(run.with_name("evil"), EVIL)
    before, path, loaded = registry.read_aliases(f"{hostile}/runs", "small"), "runs/small/evil/report.html", set[str]()
    page.on("requestfinished", lambda request: loaded.add(request.url.removeprefix(f"{live.base}/gnnflow/hostile/")))
    try:
        page.goto(f"{live.base}/gnnflow/hostile/{path}")
        expect(heading(page, framed=True)).to_be_visible()
        for dangerous in ("#script", "#open", "#leave", "#send"):
            page.frame_locator("iframe").locator(dangerous).click()
        evil = page.frames[1]
        assert evil.evaluate("self.origin") == "null"
        for reach in ("document.cookie", "parent.document.cookie", "localStorage.length"):
            assert (
                evil.evaluate(f"(() => {{ try {{ return {reach} }} catch (e) {{ return e.name }} }})()")
                == "SecurityError"
            )
        frames = [frame for each in page.context.pages for frame in each.frames]
        assert {frame.evaluate("typeof window.ran") for frame in frames} == {"undefined"}
        assert page.url == f"{live.base}/gnnflow/hostile/{path}"
        assert loaded == {path, f"sealed/{path}"}
        assert registry.read_aliases(f"{hostile}/runs", "small") == before
    finally:
        shutil.rmtree(run.with_name("evil"))


def test_a_link_in_a_frame_opens_the_page_that_has_the_frame(live, hostile, browser):
    page = page_of(browser, live)
    page.goto(f"{live.base}/gnnflow/hostile/{comparison_of(hostile)}")
    shown = page.frame_locator("iframe")
    shown.get_by_text("Each run, its report, and where it lies").click()
    with page.expect_popup() as opened:
        shown.get_by_role("link", name="report").first.click()
    expect(heading(opened.value, framed=True)).to_be_visible()
    assert opened.value.url.startswith(f"{live.base}/gnnflow/hostile/runs/small/")


def test_no_link_of_our_pages_and_tasks_is_dead(live, retraining, experiment, browser, screenshots):
    experiment.wait()
    runs = [retraining.better.result(), experiment]
    found = crawl_from(live, *runs)
    assert found.dead == ()
    paths = {each.removeprefix(f"{live.base}/gnnflow/") for each in found.seen}
    page = page_of(browser, live)
    shown = {
        "models": "retrain/registry",
        "version": f"retrain/registry/{MODEL[1]}/2",
        "scoring": max(each for each in paths if each.startswith(f"retrain/registry/{MODEL[1]}/scores/")),
        "comparison": max(each for each in paths if each.startswith("layers/comparisons/")),
    }
    assert set(shown.values()) <= paths
    for name, path in shown.items():
        page.goto(f"{live.base}/gnnflow/{path}")
        expect(heading(page, framed=name in {"comparison", "scoring"})).to_be_visible()
        both_widths(page, screenshots / f"airflow-{name}.png", whole=name == "version")
