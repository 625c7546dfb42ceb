"""A run from the trigger form in a real browser, and pictures of what a person sees: the form, the grid, the report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")
pytest.importorskip("playwright", reason="needs playwright: pip install -r tests/airflow/requirements.txt")

from playwright.sync_api import Page, expect

from gnnflow_airflow.form import SETTINGS, form_params, nested
from tests.airflow.live.browser import both_widths, fit_height, picture, signed_in
from tests.airflow.live.runs import PIPELINE, PipelineRun, grep, in_bucket, objects_with
from tests.airflow.live.services import LIVE, SECRET, System, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.airflow.live.graphs import LiveGraph

pytestmark = [*LIVE, pytest.mark.browser]


def fill_form(page: Page, values: dict[str, object], *, picture_at: Path) -> None:
    """Open the trigger form and type values into its fields, those of other keys as YAML into the settings."""
    page.get_by_test_id("trigger-dag-button").click()
    expect(page.locator('[name="element_name"]')).to_be_visible()
    shown = form_params()
    others = nested({key: value for key, value in values.items() if key not in shown})
    typed = {key: value for key, value in values.items() if key in shown} | {SETTINGS: json.dumps(others)}
    for key, value in typed.items():
        field = page.locator(f'[name="element_{key}"]')
        field.clear()
        field.press_sequentially(str(value))
        field.press("Tab")
    for width, path in ((1280, picture_at), (390, picture_at.with_stem(f"{picture_at.stem}-390"))):
        fit_height(page, page.get_by_role("dialog"), width=width)
        picture(page, path)
    page.set_viewport_size({"width": 1280, "height": 1000})


def latest_run(live: System, name: str) -> str | None:
    found = live.request("GET", f"/api/v2/dags/{PIPELINE}/dagRuns?order_by=-run_after&limit=10")["dag_runs"]
    return next((run["dag_run_id"] for run in found if run["conf"].get("name") == name), None)


def test_a_person_runs_the_pipeline_from_the_form(live, browser, graph: LiveGraph, tmp_path, screenshots):
    values = in_bucket(f"{graph.name}-by-form", graph.tables, graph.conf)
    # Dropdowns keep their defaults; what is typed are the places, the columns and how long to train.
    typed = {key: value for key, value in values.items() if key in {"name", "workspace"}}
    typed |= {key: values[key] for key in ("graph.nodes", "graph.edges", "graph.features")}
    typed |= {key: value for key, value in values.items() if key.startswith("train.")}
    typed["train.lr"] = "5e-2" if "train.lr" in typed else "1e-2"  # Airflow's own field for numbers makes 12 of 1e-2
    run = PipelineRun(live, typed)
    wait_for("the DAG", lambda: live.request("GET", f"/api/v2/dags/{PIPELINE}"))
    page = signed_in(browser, live, f"/dags/{PIPELINE}")
    fill_form(page, typed, picture_at=screenshots / "trigger-form.png")
    page.get_by_test_id("trigger-dag-submit").click()
    run.run_id = wait_for("the triggered run", lambda: latest_run(live, typed["name"]))
    page.goto("about:blank")  # a page left open asks for news all the time
    assert run.wait(seconds=500) == "success", run.tasks()
    assert graph.accuracy(run.predictions()) > graph.better_than
    assert run.made() == run.made_by_command_line(tmp_path)
    assert grep(SECRET, live.home) == []  # logs, and the database with XCom, triggers and rendered templates
    assert objects_with(SECRET, f"live-{graph.name}-by-form") == []

    page.goto(f"{live.base}/dags/{PIPELINE}/runs/{run.run_id}")
    expect(page.get_by_text("Success").first).to_be_visible()
    expect(page.get_by_text("infer").first).to_be_visible()
    picture(page, screenshots / "grid.png")
    page.goto(f"{live.base}/dags/{PIPELINE}/runs/{run.run_id}/tasks/run/details")
    expect(page.get_by_role("link", name="Dask dashboard")).to_be_visible()
    button = page.get_by_role("link", name="Report")
    button.scroll_into_view_if_needed()
    picture(page, screenshots / "links.png")
    below = run.xcom("run")["run"].removeprefix(f"{values['workspace']}/")
    pages = f"{live.base}/gnnflow/{graph.name}"
    assert button.get_attribute("href") == f"{pages}/{below}/report.html"
    training = run.xcom("train")["artifact"].removeprefix(f"{values['workspace']}/")
    page.goto(f"{live.base}/dags/{PIPELINE}/runs/{run.run_id}/tasks/train/details")
    expect(page.get_by_role("link", name="Curves")).to_have_attribute("href", f"{pages}/{training}")
    paths = {"report": f"{below}/report.html", "predictions": f"{below}/predictions", "curves": training, "runs": ""}
    for name, path in paths.items():
        page.goto(f"{pages}/{path}")
        shown = page.frame_locator("iframe") if name == "report" else page
        expect(shown.get_by_role("heading").first).to_be_visible()
        both_widths(page, screenshots / f"airflow-{name}.png")
    with page.expect_download() as download:
        page.goto(f"{pages}/{below}/predictions")
        page.get_by_text("Download as Parquet").click()
    assert pq.read_table(download.value.path()).equals(run.predictions())
