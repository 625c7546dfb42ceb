"""A run's learning curves: a file while it trains, and what train.log names."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gnnflow.graph.errors import ConfigError
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.train import curves, fit
from tests.small_graphs import graph_config, write_graph

TRAIN = {"epochs": 30, "patience": 0, "batch_size": 8}


class Reading(Silent):
    """Reads the history file of a training under way at each of its reports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[dict[str, float]] = []

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        for file in self.folder.glob("runs/work/train/*/history.jsonl"):
            self.found = [json.loads(line) for line in file.read_text().splitlines()]


def test_the_history_can_be_read_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(curves, "_SHARE", 0)
    monkeypatch.setattr(fit, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(fit, "CHECKPOINT_SECONDS", 0.0)
    write_graph(tmp_path)
    config, reading = graph_config(tmp_path, train=TRAIN), Reading(tmp_path)
    result = pipeline.run(StageContext.of(config, progress=reading))
    history = result.stages["train"].facts(TrainFacts).history
    assert len(reading.found) > 5
    assert reading.found == [{"fit": "train", **row} for row in history[: len(reading.found)]]
    assert not list(tmp_path.rglob("history.jsonl"))


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_extra_is_refused_with_the_line_that_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"train\.log.*{name} is not installed") as caught:
        graph_config(tmp_path, train={"log": [name]})
    assert f"pip install 'gnnflow[{name}]'" in str(caught.value)


def test_mlflow_without_an_address_is_refused_before_the_first_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="mlflow is an extra: pip install 'gnnflow[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    write_graph(tmp_path)
    with pytest.raises(ConfigError, match=r"train\.log: mlflow needs its address in the environment variable MLFLOW"):
        pipeline.run_quietly(graph_config(tmp_path, train={"log": ["mlflow"]}))
    assert not (tmp_path / "runs").exists()


@pytest.mark.filterwarnings("default")
def test_a_run_shows_its_curves_where_the_config_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is an extra: pip install 'gnnflow[mlflow]'")
    pytest.importorskip("tensorboard", reason="tensorboard is an extra: pip install 'gnnflow[tensorboard]'")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    write_graph(tmp_path)
    result = pipeline.run_quietly(graph_config(tmp_path, train={**TRAIN, "log": ["tensorboard", "mlflow"]}))
    plain = pipeline.run_quietly(graph_config(tmp_path, train=TRAIN))
    assert plain.stages["train"].reused
    assert list(tmp_path.glob("runs/logs/small/*/train/events.out.tfevents.*"))
    client = MlflowClient()
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    history = result.stages["train"].facts(TrainFacts).history
    assert run.data.metrics["valid_accuracy"] == pytest.approx(history[-1]["valid_accuracy"])
    assert len(client.get_metric_history(run.info.run_id, "train_loss")) == len(history)
