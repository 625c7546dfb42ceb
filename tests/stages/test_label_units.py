"""Numbers to predict, in whatever unit: a model learns the same from them, and its scores are in their unit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.facts import GraphFacts
from gnnflow.stages import pipeline, publish
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix, to_numpy
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from gnnflow.config import Config

MODEL = {"kind": "sage", "hidden": 8, "dropout": 0.0}
TRAIN = {"epochs": 8, "lr": 0.02, "metric": "rmse"}
STRATEGIES: dict[str, dict[str, Any]] = {
    "mini-batch": {"strategy": "mini-batch", "batch_size": 16},
    "huber, by gradient descent, clipped": {
        "strategy": "mini-batch",
        "optimizer": "sgd",
        "lr": 0.5,
        "loss": {"kind": "huber", "delta": 0.5},
        "clip_norm": 1.0,
    },
    "global-batch": {"strategy": "global-batch"},
    "streamed": {"strategy": "global-batch", "memory": "200MiB"},
}


def write(folder: Path, *, mean: float, deviation: float, of_edges: bool = False) -> pa.Table:
    """Write a graph whose nodes, or edges, have numbers; return the table that holds them."""
    write_graph(folder, num_nodes=120)
    name = "edges" if of_edges else "nodes"
    table = pq.read_table(folder / f"{name}.parquet")
    number = to_numpy(table["amount"]) if of_edges else to_matrix(table["x"])[:, 0]
    labels = pa.array(number.astype(np.float64) * deviation + mean)
    if of_edges:
        split = np.array(["train", "valid", "test", None], object)[np.arange(len(number)) % 4]
        table = table.append_column("label", labels).append_column("split", pa.array(split, pa.string()))
    else:
        table = table.set_column(table.column_names.index("label"), "label", labels)
    pq.write_table(table, folder / f"{name}.parquet")
    return table


def run(folder: Path, *, mean: float, deviation: float, of_edges: bool = False, **sections: Any) -> pipeline.RunResult:
    write(folder, mean=mean, deviation=deviation, of_edges=of_edges)
    return pipeline.run_quietly(graph_config(folder, model=MODEL, **sections))


def values(result: pipeline.RunResult) -> np.ndarray:
    table = pq.read_table(result.predictions)
    return to_numpy(table["value"]).astype(np.float64)


@pytest.mark.table(4)
@pytest.mark.parametrize("train", STRATEGIES.values(), ids=STRATEGIES)
def test_a_model_learns_the_same_in_every_unit(tmp_path: Path, train: dict[str, Any]) -> None:
    near_one, prices = (
        run(tmp_path / name, mean=mean, deviation=deviation, train={**TRAIN, **train})
        for name, mean, deviation in (("near one", 0.0, 1.0), ("prices", 300_000.0, 50_000.0))
    )
    assert near_one.metrics["test.rmse"] < 0.95
    assert prices.metrics["test.rmse"] == pytest.approx(near_one.metrics["test.rmse"] * 50_000, rel=1e-2)
    assert prices.metrics["train.loss"] == pytest.approx(near_one.metrics["train.loss"], rel=1e-2)
    np.testing.assert_allclose((values(prices) - 300_000) / 50_000, values(near_one), atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("messages", [True, False])
def test_so_does_a_model_of_the_numbers_of_edges(tmp_path: Path, messages: bool) -> None:
    task = {"kind": "edge", "width": 8, "messages": messages}
    sections: dict[str, Any] = {"task": task, "graph": {"edge_features": ["amount"]}, "train": {**TRAIN, "epochs": 15}}
    near_one, prices = (
        run(tmp_path / name, mean=mean, deviation=deviation, of_edges=True, **sections)
        for name, mean, deviation in (("near one", 0.0, 1.0), ("prices", -3000.0, 500.0))
    )
    assert near_one.metrics["test.rmse"] < 0.95
    assert prices.metrics["test.rmse"] == pytest.approx(near_one.metrics["test.rmse"] * 500, rel=2e-2)


@pytest.mark.parametrize("of_edges", [False, True])
@pytest.mark.parametrize("partitions", [1, 5])
def test_the_unit_is_that_of_the_training_labels(tmp_path: Path, of_edges: bool, partitions: int) -> None:
    table = write(tmp_path, mean=3e5, deviation=20.0, of_edges=of_edges)
    sections: dict[str, Any] = {"task": {"kind": "edge"}} if of_edges else {}
    config = graph_config(tmp_path, graph={"partitions": partitions}, train=TRAIN, **sections)
    unit = make_artifact(StageContext.of(config), "ingest").facts(GraphFacts).label_unit
    labels = to_numpy(table["label"]).astype(np.float32)[np.asarray(table["split"].to_pylist()) == "train"]
    assert unit is not None
    assert unit.mean == np.float32(labels.mean(dtype=np.float64))
    assert unit.deviation == pytest.approx(labels.std(dtype=np.float64), rel=1e-6)


def test_classes_have_no_unit(tmp_path: Path) -> None:
    write_graph(tmp_path)
    assert make_artifact(StageContext.of(graph_config(tmp_path)), "ingest").facts(GraphFacts).label_unit is None


def test_one_number_for_all_is_learned(tmp_path: Path) -> None:
    result = run(tmp_path, mean=7.25, deviation=0.0, train={**TRAIN, "epochs": 20})
    assert np.abs(values(result) - 7.25).mean() < 0.5


def config_of(folder: Path, **train: Any) -> Config:
    return graph_config(folder, name="prices", model=MODEL, train={**TRAIN, "epochs": 20, **train})


@pytest.mark.slow
def test_a_model_goes_on_from_one_of_another_unit(tmp_path: Path) -> None:
    write(tmp_path, mean=300_000.0, deviation=50_000.0)
    config = config_of(tmp_path)
    first = pipeline.run_quietly(config)
    publish.run(StageContext.of(config))
    write(tmp_path, mean=310_000.0, deviation=52_000.0)
    again = pipeline.run_quietly(config_of(tmp_path, epochs=1, start="prices"))
    assert again.metrics["test.rmse"] < first.metrics["test.rmse"] * 1.1
