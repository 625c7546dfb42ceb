"""Lineage and metrics of tasks, as Airflow's own listeners would send them."""

from __future__ import annotations

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from tests.airflow.running import TRAIN, Quiet, form_of
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def sent():
    """Metrics that reach Airflow's backend, in its place."""
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk.observability import stats

    heard = []

    class Backend:
        def incr(self, name, count=1, tags=None):
            heard.append((name, count, tags))

        def timing(self, name, dt, tags=None):
            heard.append((name, dt.total_seconds(), tags))

    stats.initialize(factory=Backend, export_legacy_names=True)
    yield heard
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def names(datasets):
    return [f"{each.namespace}:{each.name}" for each in datasets]


def ingest(file, **options):
    from gnnflow_airflow.stages import IngestOperator

    task = IngestOperator(task_id="ingest", config=str(file), **options)
    return task, lambda: task.execute({"outlet_events": {}, "ti": Quiet()})


def test_a_stage_sends_its_seconds_rows_and_failures_once_each(tmp_path, sent):
    from airflow.sdk.exceptions import AirflowFailException

    from gnnflow_airflow.reading import keep_config

    write_graph(tmp_path)
    file = keep_config(graph_config(tmp_path, train=TRAIN))
    outcome = ingest(file)[1]()
    assert sent == [
        ("gnnflow.stage.seconds", outcome["seconds"], {"stage": "ingest", "reused": "false"}),
        ("gnnflow.stage.rows", outcome["rows_out"], {"stage": "ingest"}),
    ]
    sent.clear()
    ingest(file)[1]()
    ((name, _, tags),) = sent
    assert (name, tags) == ("gnnflow.stage.seconds", {"stage": "ingest", "reused": "true"})
    sent.clear()
    with pytest.raises(AirflowFailException):
        ingest(file, overrides=["graph.partitions=-1"])[1]()
    assert sent == [("gnnflow.stage.failures", 1, {"stage": "ingest", "hopeless": "true"})]


def test_lineage_leads_from_tables_through_the_config_and_the_cluster_to_the_comparison(tmp_path, monkeypatch):
    pytest.importorskip("airflow.providers.openlineage")
    from gnnflow_airflow import local_cluster
    from gnnflow_airflow.cluster import StartClusterOperator, StopClusterOperator
    from gnnflow_airflow.prepare import PrepareOperator

    write_graph(tmp_path)
    prepare = PrepareOperator(task_id="prepare")
    assert prepare.get_openlineage_facets_on_complete(None) is None
    kept = prepare.execute({"params": form_of(graph_config(tmp_path, train=TRAIN)), "ti": Quiet()})
    told = prepare.get_openlineage_facets_on_complete(None)
    assert names(told.inputs) == [f"file:{tmp_path}/nodes.parquet", f"file:{tmp_path}/edges.parquet"]
    assert told.inputs[1].inputFacets["dataQualityMetrics"].rowCount == 400
    assert names(told.outputs) == [f"file:{kept}"]

    monkeypatch.setattr(local_cluster, "start", lambda **_: "tcp://10.0.0.7:8786")
    start, stop = StartClusterOperator(task_id="start"), StopClusterOperator(task_id="stop", address="")
    start.execute({})
    assert names(start.get_openlineage_facets_on_complete(None).outputs) == ["tcp://10.0.0.7:8786:/"]
    assert stop.get_openlineage_facets_on_complete(None) is None
    stop.address = "tcp://10.0.0.7:8786"
    assert names(stop.get_openlineage_facets_on_complete(None).inputs) == ["tcp://10.0.0.7:8786:/"]
