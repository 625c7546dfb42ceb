"""The pipeline as it should go: tables and workspace in a bucket, a Dask cluster, triggered by REST."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.config import load_config
from tests.airflow.live.graphs import LiveGraph
from tests.airflow.live.runs import PipelineRun, grep, in_bucket, maps_in_bucket, objects_with, typed_in_bucket
from tests.airflow.live.services import LIVE, SECRET
from tests.conftest import REPOSITORY
from tests.typed_graphs import SIZES

pytestmark = [*LIVE, pytest.mark.exhaustive]


@pytest.fixture(scope="session")
def runs(live_on_sqlite, graph: LiveGraph, imdb: dict[str, Any], tmp_path_factory) -> dict[str, PipelineRun]:
    """The runs of these tests, ended. They go side by side: each mostly waits for a part of Airflow to hear another."""
    kept = {key: value for key, value in graph.conf.items() if "batch_size" not in key}
    whole = {**kept, "train.strategy": "global-batch", "partition.kind": "ldg"}
    confs = {
        "plain": in_bucket(graph.name, graph.tables, graph.conf),
        "typed": typed_in_bucket("typed", tmp_path_factory.mktemp("typed")),
        "whole": in_bucket(f"{graph.name}-whole", graph.tables, whole),
        "imdb": imdb,
    }
    begun = {name: PipelineRun(live_on_sqlite, conf) for name, conf in confs.items() if conf}
    live_on_sqlite.wait_until_healthy()
    for run in begun.values():
        run.trigger()
    for run in begun.values():
        run.wait(seconds=900)
    return begun


@pytest.fixture(scope="session")
def imdb(request: pytest.FixtureRequest, live_on_sqlite) -> dict[str, Any]:
    """The form's values for IMDB in a bucket, trained for a shorter time; nothing where it is not at hand."""
    try:
        folder = request.getfixturevalue("data_dir")
    except pytest.skip.Exception:
        return {}
    text = (REPOSITORY / "configs" / "imdb.yaml").read_text()
    graph = load_config(text, environment={"GNNFLOW_DATA": str(folder)}).model_dump(mode="json")["graph"]
    shorter = {"graph.partitions": 2, "model.kind": "rgcn", "model.hidden": 16, "train.epochs": 8, "train.threads": 1}
    return {**maps_in_bucket("imdb", graph), **shorter, "train.lr": 0.005, "train.batch_size": 400}


def test_a_run_triggered_by_rest_gives_the_predictions_of_the_command_line_and_no_secret(
    live, runs, graph: LiveGraph, tmp_path
):
    run = runs["plain"]
    assert run.state() == "success", run.tasks()
    assert graph.accuracy(run.predictions()) > graph.better_than
    assert run.made() == run.made_by_command_line(tmp_path)
    assert "rows per second" in run.log("ingest")
    assert grep(SECRET, live.home) == []  # logs, and the database with XCom, triggers and rendered templates
    assert objects_with(SECRET, f"live-{graph.name}") == []


def test_a_typed_graph_given_as_maps_by_type_gives_the_predictions_of_the_command_line(live, runs, tmp_path):
    run = runs["typed"]
    assert run.state() == "success", run.tasks()
    assert run.predictions().num_rows == SIZES["account"]
    assert run.made() == run.made_by_command_line(tmp_path)


@pytest.mark.usefixtures("data_dir", "live")
def test_imdb_gives_the_predictions_of_the_command_line(runs, tmp_path):
    run = runs["imdb"]
    assert run.state() == "success", run.tasks()
    assert run.predictions().num_rows == pq.read_table(run.conf["graph.nodes"]["movie"]).num_rows
    assert run.made() == run.made_by_command_line(tmp_path)


@pytest.mark.usefixtures("live")
def test_the_whole_graph_as_one_batch_over_other_partitions_gives_the_predictions_of_the_command_line(
    runs, graph: LiveGraph, tmp_path
):
    run = runs["whole"]
    assert run.state() == "success", run.tasks()
    states = run.tasks()
    assert (states["partition"], states["flat"]) == ("success", "skipped")
    assert graph.accuracy(run.predictions()) > graph.better_than
    assert run.made() == run.made_by_command_line(tmp_path)


def test_the_same_on_postgresql(postgres_live, graph: LiveGraph, tmp_path):
    run = PipelineRun(postgres_live, in_bucket(f"{graph.name}-postgres", graph.tables, graph.conf))
    run.trigger()
    assert run.wait(seconds=500) == "success", run.tasks()
    assert run.made() == run.made_by_command_line(tmp_path)
