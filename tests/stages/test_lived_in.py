"""A workspace that was used for a while: what was lost, rewritten or tried twice."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.config.experiments import read_experiment
from gnnflow.config.matrix import RunRow
from gnnflow.graph.errors import ConfigError, RegistryError, StorageError
from gnnflow.layers.start import differences
from gnnflow.registry.signature import Signature, misfits
from gnnflow.stages.base import StageContext
from gnnflow.stages.comparison import compare_runs
from gnnflow.stages.resolve import stamps_of
from gnnflow.stages.running import run_stage
from gnnflow.storage.run_folder import latest_run
from gnnflow.storage.workspace import Workspace
from tests.small_graphs import graph_config, write_graph

MATRIX = {"name": "small", "graph": {"nodes": "n", "edges": "e"}}


def test_a_table_rewritten_with_the_same_size_and_time_is_another(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config, nodes = graph_config(tmp_path).graph, tmp_path / "nodes.parquet"
    before, held = stamps_of(config), nodes.stat()
    content = bytearray(nodes.read_bytes())
    content[100] ^= 1
    nodes.write_bytes(content)
    os.utime(nodes, ns=(held.st_atime_ns, held.st_mtime_ns))
    assert nodes.stat().st_mtime_ns == held.st_mtime_ns
    assert stamps_of(config)["nodes"] != before["nodes"]
    assert stamps_of(config)["edges"] == before["edges"]


def test_a_stage_that_ran_before_a_table_was_rewritten_is_to_run_again(tmp_path: Path) -> None:
    write_graph(tmp_path, seed=0)
    with pytest.raises(StorageError, match=r"stage ingest has not run for this config\. Run `gnnflow ingest CONFIG`"):
        run_stage(StageContext.of(graph_config(tmp_path)), "flat")
    run_stage(StageContext.of(graph_config(tmp_path)), "ingest")
    write_graph(tmp_path, seed=1)
    changed = r"has run in this workspace, but not .* its current tables\. .*run it again: `gnnflow ingest CONFIG`"
    with pytest.raises(StorageError, match=changed):
        run_stage(StageContext.of(graph_config(tmp_path)), "flat")


def test_a_damaged_pointer_does_not_ask_to_delete_all_runs(tmp_path: Path) -> None:
    workspace = Workspace.at(str(tmp_path))
    where = tmp_path / "runs" / "small" / "latest.json"
    where.parent.mkdir(parents=True)
    where.write_text('{"run": ')
    assert str(where) == workspace.latest("small")
    with pytest.raises(StorageError, match=r"latest\.json: not valid JSON .*`gnnflow run CONFIG` writes it again"):
        latest_run(workspace, "small")


def test_a_model_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="no model 'nope'"):
        registry.rollback(str(tmp_path), "nope")


def test_two_axes_of_one_key_are_refused() -> None:
    matrix = {"train": [{"lr": 0.1}, {"lr": 0.2}], "train.lr": [0.1]}
    with pytest.raises(ConfigError, match=r"train and train\.lr both set train\.lr"):
        read_experiment({**MATRIX, "matrix": matrix}, source="sweep.yaml")


def test_a_comparison_says_why_a_run_failed_and_is_not_written_over_by_another(tmp_path: Path) -> None:
    write_graph(tmp_path)
    from gnnflow.stages import pipeline

    context = StageContext.of(graph_config(tmp_path, train={"epochs": 1, "threads": 1}))
    uri, where = pipeline.run(context).uri, {"name": "small", "workspace": str(tmp_path / "runs")}
    one, two = (RunRow(f"lr={value}", f"lr={value}", {"lr": value}, 0) for value in "12")
    first = compare_runs([one, two], {"lr=1": uri}, failed={"lr=2": "the loss is not finite"}, **where)
    other = compare_runs([one], {"lr=1": uri}, **where)
    assert first.table != other.table
    rows = list(csv.DictReader(Path(first.runs_table).read_text().splitlines()))
    assert [(row["run"], row["failed"]) for row in rows] == [("lr=1", ""), ("lr=2", "the loss is not finite")]


def test_a_class_that_died_out_is_told_how_to_keep() -> None:
    known: dict[str, Any] = {
        "feature_kind": "dense",
        "feature_width": 3,
        "id_type": "int64",
        "edge_attributes": 0,
        "edge_weights": False,
        "label_kind": "single",
    }
    model, graph = Signature(**known, num_classes=3), Signature(**known, num_classes=2)
    assert any("set graph.num_classes: 3" in phrase for phrase in misfits(model, graph))
    assert not any("graph.num_classes" in phrase for phrase in misfits(graph, model))


def test_other_types_are_told_as_such() -> None:
    from gnnflow.layers.model import ModelInputs, ModelSpec
    from gnnflow.layers.typed import TypedInputs, TypeInputs

    account, device = TypeInputs("account", 3, sparse=False), TypeInputs("device", 2, sparse=True)
    pays, uses = "account__pays__account", "account__uses__device"

    def inputs(*types: TypeInputs, relations: tuple[str, ...]) -> ModelInputs:
        return ModelInputs(feature_width=3, num_outputs=2, sparse=False, typed=TypedInputs(types, relations))

    config = graph_config_of_model()
    saved = ModelSpec(config, inputs(account, relations=(pays,)))
    assert differences(config, saved, inputs=inputs(account, device, relations=(pays, uses))) == (
        f"only this graph has {uses}, device (2 sparse columns)",
    )


def graph_config_of_model() -> Any:
    from gnnflow.config import config_from_dict

    return config_from_dict({**MATRIX, "model": {"kind": "sage"}}).model


def test_predictions_that_are_gone_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    from gnnflow.cli.models import promote
    from gnnflow.stages import pipeline, publish

    write_graph(tmp_path)
    context = StageContext.of(graph_config(tmp_path, train={"epochs": 1, "threads": 1}))
    pipeline.run(context)
    found = publish.run(context)
    assert pq.read_table(found.predictions).num_rows == 60
    shutil.rmtree(context.run.uri)
    promote("small", 1, context.config.workspace)
    assert "gone, with its run: `gnnflow score CONFIG` makes them again" in capsys.readouterr().out
