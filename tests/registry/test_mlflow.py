"""MLflow gets the same figures as the registry holds, once; without MLflow publishing goes on and says so."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from gnnflow import registry
from gnnflow.graph.errors import RegistryError
from gnnflow.registry.mlflow import MlflowCurves, log_version
from gnnflow.stages import pipeline, publish
from gnnflow.stages.base import StageContext
from tests.registry.test_registry import completed_run
from tests.small_graphs import graph_config, write_graph
from tests.stages.test_guards import CHEAP, Heard

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tracking_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tracking store in a folder: MLflow's client without a server."""
    pytest.importorskip("mlflow", reason="mlflow is an extra: pip install 'gnnflow[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file://{tmp_path}/mlruns"


@pytest.mark.filterwarnings("default")  # MLflow warns of its own plans
def test_a_version_is_logged_once_with_its_figures(tmp_path: Path, tracking_uri: str) -> None:
    from mlflow import MlflowClient

    version = registry.register(str(tmp_path), completed_run(str(tmp_path), 3), revision="abc")
    identity = log_version(version, tracking_uri=tracking_uri)
    assert log_version(version, tracking_uri=tracking_uri) == identity
    run = MlflowClient(tracking_uri=tracking_uri).get_run(identity)
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"test.accuracy": 0.3}
    assert run.data.params == {"name": "tiny", "graph.nodes": "nodes.parquet", "graph.edges": "edges.parquet"}
    assert run.data.tags["gnnflow.predictions"] == version.predictions
    assert run.data.tags["gnnflow.model"] == f"{version.uri}/model.safetensors"
    assert run.data.tags["mlflow.source.git.commit"] == "abc"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["it's", 'the "last"', "a%_`b"])
def test_a_version_is_logged_once_wherever_it_lies(tmp_path: Path, tracking_uri: str, name: str) -> None:
    workspace = str(tmp_path / name)
    first, second = (registry.register(workspace, completed_run(workspace, number)) for number in (1, 2))
    identities = [log_version(version, tracking_uri=tracking_uri) for version in (first, second, first)]
    assert identities[0] == identities[2] != identities[1]
    for _ in range(2):
        curves = MlflowCurves(f"{workspace}/train", name="tiny", config={"seed": 1}, tracking_uri=tracking_uri)
        curves.write([("train", {"epoch": 1.0, "loss": 0.5})])
        curves.close(finished=True)


@pytest.mark.table(5)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:9", "http://user:s3cr3t@127.0.0.1:9", "foo://x", "http://", "sqlite:////proc/none.db"]
)
def test_a_server_that_is_not_there_is_given_up_and_told_of(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="mlflow is an extra: pip install 'gnnflow[mlflow]'")
    for name in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    version = registry.register(str(tmp_path), completed_run(str(tmp_path), 3))
    with pytest.raises(RegistryError, match=r"did not take version 1 .*Check the address") as caught:
        log_version(version, tracking_uri=place)
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert os.environ.pop("MLFLOW_HTTP_REQUEST_TIMEOUT") == "10"
    assert os.environ.pop("MLFLOW_HTTP_REQUEST_MAX_RETRIES") == "2"


@pytest.mark.filterwarnings("default")
def test_how_long_mlflow_is_waited_for_is_what_the_user_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is an extra: pip install 'gnnflow[mlflow]'")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    version = registry.register(str(tmp_path), completed_run(str(tmp_path), 3))
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RegistryError, match=r"read timeout=1\)"):
        log_version(version, tracking_uri=f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_publishing_logs_where_the_address_is_set(
    tmp_path: Path, tracking_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri)
    write_graph(tmp_path)
    config = graph_config(tmp_path, **CHEAP)
    result = pipeline.run_quietly(config)
    logged = publish.run(StageContext.of(config)).mlflow_run
    run = MlflowClient(tracking_uri=tracking_uri).get_run(logged)
    assert run.data.metrics == pytest.approx(result.metrics)
    assert run.data.params["train.epochs"] == "1"
    assert run.data.params["neighbors.sampling.kind"] == "none"
    assert json.loads(run.data.params["graph.features"]) == ["x"]


@pytest.mark.filterwarnings("default")
def test_curves_are_logged_by_epoch_and_a_killed_training_goes_on_in_its_run(tracking_uri: str) -> None:
    from mlflow import MlflowClient

    rows = [{"epoch": epoch, "train_loss": 1 / (1 + epoch)} for epoch in range(5)]

    def curves() -> MlflowCurves:
        return MlflowCurves("file:///a", name="tiny", config={"train": {"lr": 0.1}}, tracking_uri=tracking_uri)

    curves().write([("train", row) for row in rows[:3]])  # killed here
    again = curves()
    again.write([("train", row) for row in rows[:2]])
    again.write([("train", row) for row in rows[2:]])
    again.write([("baseline", rows[0])])
    again.close(finished=True)
    client = MlflowClient(tracking_uri=tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params == {"train.lr": "0.1"}
    told = client.get_metric_history(run.info.run_id, "train_loss")
    assert sorted((each.step, each.value) for each in told) == [(row["epoch"], row["train_loss"]) for row in rows]
    assert run.data.metrics["baseline.train_loss"] == 1.0


@pytest.fixture
def no_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)


@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_without_mlflow_the_version_is_published_and_the_log_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://someone:secret@mlflow.example.org")
    write_graph(tmp_path)
    config = graph_config(tmp_path, **CHEAP)
    pipeline.run_quietly(config)
    heard = Heard()
    result = publish.run(StageContext.of(config, progress=heard))
    assert result.promoted
    assert result.mlflow_run == ""
    (told,) = [text for text in heard.messages if "MLflow" in text]
    assert "pip" not in told
    assert "gnnflow[mlflow]" in told
    assert "secret" not in " ".join(heard.messages)
    with pytest.raises(RegistryError, match="mlflow is not installed"):
        log_version(registry.read_version(config.workspace, "small", 1), tracking_uri="file:///nowhere")
