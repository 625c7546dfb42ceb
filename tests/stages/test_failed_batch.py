"""A loss that is no number stops training with the batch kept, and a person can see what was wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gnnflow.config import Config
from gnnflow.graph.errors import StorageError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.layers.model import build_model
from gnnflow.stages import pipeline
from gnnflow.stages.train import model_inputs
from gnnflow.storage.filesystem import list_names
from gnnflow.train import failed_batch
from gnnflow.train.failed_batch import read_failed_batch
from tests.command_line import run_cli
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

EXPLODES = {"epochs": 9, "batch_size": 8, "lr": 1e30, "optimizer": "sgd"}


def config_in(folder: Path, **train: object) -> Config:
    return graph_config(folder, train={**EXPLODES, **train})


def failing(folder: Path) -> tuple[TrainingError, Path]:
    """Train until the loss explodes; return the error and the file it names."""
    write_graph(folder, string_ids=True)
    with pytest.raises(TrainingError, match="the training loss is") as caught:
        pipeline.run_quietly(config_in(folder))
    (kept,) = folder.glob("runs/failed/train/*/train.safetensors")
    return caught.value, kept


def test_the_error_names_the_file_and_how_to_look_at_it(tmp_path: Path) -> None:
    error, kept = failing(tmp_path)
    assert str(kept) in error.problem
    assert "gnnflow inspect FILE" in error.problem
    assert not any((tmp_path / "runs" / "work").rglob("*.safetensors"))


def test_the_batch_holds_ids_features_labels_step_and_the_weights_that_gave_the_loss(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    error, kept = failing(tmp_path)
    batch = read_failed_batch(str(kept))
    nodes = {row["id"]: row for row in pq.read_table(tmp_path / "nodes.parquet").to_pylist()}
    tensors = load_file(kept)
    assert len(batch.said["ids"]) == len(tensors["targets"]) <= 8
    for row, name in enumerate(batch.said["ids"]):
        assert nodes[name]["split"] == "train"
        assert nodes[name]["label"] == tensors["labels"][row]
        assert tensors["features/dense"][row].tolist() == pytest.approx(nodes[name]["x"])
    assert f"in epoch {batch.said['epoch']}, step {batch.said['step']}" in error.problem
    assert f"the training loss is {batch.said['loss']} " in error.problem
    assert not tensors["outputs"].isfinite().all()
    weights = {name.removeprefix("model/"): held for name, held in tensors.items() if name.startswith("model/")}
    config = config_in(tmp_path)
    graph = pipeline.StageContext.of(config).artifact("ingest")
    build_model(config.model, model_inputs(graph.facts(GraphFacts), config.task)).load_state_dict(weights)


def test_inspect_shows_what_is_not_finite_and_whose_outputs(tmp_path: Path) -> None:
    _, kept = failing(tmp_path)
    shown = run_cli(["inspect", str(kept), "--json"])
    assert shown.code == 0
    summary = json.loads(shown.out)
    assert summary["targets"] == len(read_failed_batch(str(kept)).said["ids"])
    assert summary["features_not_finite"] == 0
    assert float(summary["largest_weight"]) > 1e20 or summary["weights_not_finite"]
    assert summary["worst"][0]["id"].startswith("node-")
    told = run_cli(["inspect", str(kept)]).out
    assert f"id {summary['worst'][0]['id']}" in told
    assert "largest weight" in told


def test_what_is_no_kept_batch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"no such thing")
    shown = run_cli(["inspect", str(tmp_path / "other")])
    assert shown.code == 2
    assert "is not a batch that training saved" in shown.err
    assert run_cli(["inspect", str(tmp_path / "missing")]).code == 2


def test_a_success_under_the_same_name_removes_what_was_kept(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = config_in(tmp_path, lr=0.01, epochs=1)
    context = pipeline.StageContext.of(config)
    kept = Path(context.run.workspace.failed("train", context.run.fingerprints["train"]))
    kept.mkdir(parents=True)
    (kept / "train.safetensors").write_bytes(b"of an attempt on a machine with broken memory")
    pipeline.run(context)
    assert not kept.exists()


def test_a_batch_that_cannot_be_kept_does_not_hide_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StorageError("no space left", where="there")

    monkeypatch.setattr(failed_batch, "write_atomic", full)
    write_graph(tmp_path)
    with pytest.raises(TrainingError, match=r"the training loss is .* the batch could not be kept \(there: no space"):
        pipeline.run_quietly(config_in(tmp_path))


def test_what_is_kept_belongs_to_the_workspace_and_is_read_as_no_table(tmp_path: Path) -> None:
    _, kept = failing(tmp_path)
    workspace = pipeline.StageContext.of(config_in(tmp_path)).run.workspace
    assert workspace.owns(str(kept))
    assert list_names(str(kept.parent)) == ["train.safetensors"]
    assert torch.equal(load_file(kept)["targets"], read_failed_batch(str(kept)).tensors["targets"])


def test_of_a_typed_graph_the_batch_holds_the_targets_and_features_of_their_type(tmp_path: Path) -> None:
    tables = typed_tables()
    config = graph_config(tmp_path, graph=write_tables(tmp_path, tables), train=EXPLODES)
    with pytest.raises(TrainingError, match="the training loss is"):
        pipeline.run_quietly(config)
    (kept,) = tmp_path.glob("runs/failed/train/*/train.safetensors")
    batch = read_failed_batch(str(kept))
    accounts = {row["id"]: row for row in tables["account"].to_pylist()}
    for row, name in enumerate(batch.said["ids"]):
        assert accounts[name]["label"] == batch.tensors["labels"][row]
        assert batch.tensors["features/dense"][row].tolist() == pytest.approx(accounts[name]["x"])
