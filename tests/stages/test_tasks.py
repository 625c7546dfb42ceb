"""Whole runs of the tasks other than one class per node, a user's own layer, and what a run leaves behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import LayerError
from gnnflow.graph.run_facts import InferFacts
from gnnflow.stages import pipeline
from gnnflow.stages.report import report_of
from gnnflow.storage.columns import from_matrix, to_matrix
from tests.command_line import printed
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = {"epochs": 30, "batch_size": 16, "lr": 0.02, "metric": "loss"}


def relabel(folder: Path, make: Any) -> None:
    """Replace the labels by a function of the features."""
    table = pq.read_table(folder / "nodes.parquet")
    table = table.set_column(table.column_names.index("label"), "label", make(to_matrix(table["x"])))
    pq.write_table(table, folder / "nodes.parquet")


def predictions(result: pipeline.RunResult) -> pa.Table:
    return pq.read_table(result.predictions)


@pytest.mark.slow
def test_several_labels_per_node(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=200, num_edges=300)
    relabel(tmp_path, lambda x: from_matrix((x[:, :3] > 0).astype(np.int64)))
    model = {"kind": "sage", "hidden": 16, "dropout": 0.0, "layers": 1}
    train = {**TRAIN, "metric": "micro_f1"}
    result = pipeline.run_quietly(graph_config(tmp_path, model=model, train=train))
    assert result.metrics["test.micro_f1"] > 0.8
    table = predictions(result)
    scores = to_matrix(table["probabilities"])
    assert scores.shape == (200, 3)
    assert np.array_equal(to_matrix(table["prediction"]), scores >= 0.5)
    given = pq.read_table(tmp_path / "nodes.parquet").sort_by("id")
    assert table.sort_by("id")["label"].to_pylist() == given["label"].to_pylist()
    assert np.array_equal(table["probability_2"].to_numpy(), scores[:, 2])


@pytest.mark.slow
def test_a_number_per_node(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=200, num_edges=300)
    relabel(tmp_path, lambda x: pa.array(2 * x[:, 0] - x[:, 1]))
    model = {"kind": "sage", "hidden": 16, "dropout": 0.0, "layers": 1}
    result = pipeline.run_quietly(graph_config(tmp_path, model=model, train={**TRAIN, "epochs": 100}))
    assert result.metrics["test.rmse"] < 0.7
    found = predictions(result).sort_by("id")
    assert found.column_names == ["id", "label", "split", "value"]
    assert found["value"].type == pa.float32()
    given = pq.read_table(tmp_path / "nodes.parquet").sort_by("id")["label"]
    assert np.allclose(found["label"].to_numpy(), given.to_numpy())


def test_classes_are_predicted_by_the_names_that_labels_have(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=200, num_edges=300)
    names = np.array(["low", "high"])
    relabel(tmp_path, lambda x: pa.array(names[(x[:, 0] > 0).astype(np.int64)]))
    config = graph_config(
        tmp_path, graph={"classes": names.tolist()}, model={"kind": "sage", "layers": 1, "dropout": 0.0}, train=TRAIN
    )
    given = pq.read_table(tmp_path / "nodes.parquet").sort_by("id")
    given = given.set_column(2, "label", pa.array([None, *given["label"].to_pylist()[1:]]))
    pq.write_table(given, tmp_path / "nodes.parquet")
    found = predictions(pipeline.run_quietly(config)).sort_by("id")
    assert found["label"].to_pylist() == given["label"].to_pylist()
    assert found["split"].to_pylist() == ["none", *(each or "none" for each in given["split"].to_pylist()[1:])]
    table = found.slice(1)
    assert table.num_rows == 199
    assert np.array_equal(np.stack(table["probabilities"].to_numpy())[:, 1], table["probability_high"].to_numpy())
    assert np.mean(table["class"].to_numpy() == table["label"].to_numpy()) > 0.9
    assert np.array_equal(names[table["prediction"].to_numpy()], table["class"].to_numpy())


def test_a_layer_of_ones_own_is_named_in_the_config(tmp_path: Path) -> None:
    write_graph(tmp_path)
    model = {"kind": "tests.contracts.own_layers:Gated", "head": "linear", "hidden": 8}
    result = pipeline.run_quietly(graph_config(tmp_path, model=model, train={"epochs": 2}))
    parity = result.stages["infer"].facts(InferFacts).parity
    assert parity.samples == 60
    assert parity.max_difference < 1e-4


def test_a_layer_that_an_execution_cannot_run_is_refused_before_training(tmp_path: Path) -> None:
    write_graph(tmp_path)
    model = {"kind": "tests.contracts.own_layers:MedianWithSelf", "head": "linear", "hidden": 8}
    with pytest.raises(
        LayerError, match=r"layer 1, MedianWithSelf, cannot run on the execution minibatch: .* do not merge"
    ):
        pipeline.run_quietly(graph_config(tmp_path, model=model, train={"epochs": 10_000}))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["shared", "inline"])
def test_training_is_the_same_in_both_layouts(tmp_path: Path, layout: str) -> None:
    write_graph(tmp_path)
    sections: dict[str, Any] = {"model": {"kind": "gcn", "hidden": 8}, "train": {"epochs": 3}}
    sampling = {"kind": "uniform", "fanout": [3, 2]}
    shared = pipeline.run_quietly(graph_config(tmp_path, neighbors={"sampling": sampling}, **sections))
    other = pipeline.run_quietly(
        graph_config(tmp_path, neighbors={"sampling": sampling}, flat={"layout": layout}, **sections)
    )
    assert other.metrics["test.accuracy"] == shared.metrics["test.accuracy"]
    assert np.allclose(
        to_matrix(predictions(other)["probabilities"]), to_matrix(predictions(shared)["probabilities"]), atol=1e-5
    )


def test_a_run_holds_what_the_contract_says(tmp_path: Path) -> None:
    write_graph(tmp_path, string_ids=True)
    config = tmp_path / "config.yaml"
    config.write_text(graph_config(tmp_path, train={"epochs": 1}, infer={"embeddings": True}).model_dump_json())
    argv = ["run", str(config), "--json"]
    for attempt in range(2):
        out = json.loads(printed(argv))
        assert set(out) == {"run", "metrics", "judgement", "cautions", "predictions", "report", "stages"}
        assert [stage["reused"] for stage in out["stages"].values()] == [attempt == 1] * 5
    table = pq.read_table(out["predictions"])
    assert sorted(table["id"].to_pylist()) == sorted(pq.read_table(tmp_path / "nodes.parquet")["id"].to_pylist())
    assert np.allclose(to_matrix(table["probabilities"]).sum(1), 1, atol=1e-5)
    assert json.loads((tmp_path / "runs/runs/small/latest.json").read_text()) == {"run": out["run"]}
    assert report_of("small", workspace=str(tmp_path / "runs")) == out["report"]
    assert printed(["report", out["run"]]).strip() == out["report"]


def test_agls_own_form_runs(tmp_path: Path) -> None:
    write_graph(tmp_path)
    tables = ["-n", str(tmp_path / "nodes.parquet"), "-e", str(tmp_path / "edges.parquet")]
    options = ["--hops", "2", "--sampling", "uniform:4,2", "--workspace", str(tmp_path / "runs"), "--json"]
    assert json.loads(printed(["flat", *tables, *options, "--set", "cluster.kind=synchronous"]))["rows_out"] == 45
