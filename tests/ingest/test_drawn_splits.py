"""Splits of nodes that no column says: shares of the labelled ones, a function of id and seed alone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config
from gnnflow.graph.errors import TableError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.resolve import resolve
from gnnflow.stages.running import make_artifact
from gnnflow.stages.target_checks import check_held_out
from tests.command_line import run_cli
from tests.hearing import Heard
from tests.robustness.inputs import valid
from tests.small_graphs import graph_config, write_graph

QUARTERS = {"kind": "random", "valid": 0.25, "test": 0.25}


def write(folder: Path, *, num_nodes: int = 400, column: bool = False, unlabelled: int = 0) -> None:
    write_graph(folder, num_nodes=num_nodes, num_edges=4 * num_nodes, string_ids=True)
    table = pq.read_table(folder / "nodes.parquet")
    if unlabelled:
        label = pa.array(table["label"].to_numpy(), mask=np.arange(num_nodes) < unlabelled)
        table = table.set_column(table.column_names.index("label"), "label", label)
    pq.write_table(table if column else table.drop_columns(["split"]), folder / "nodes.parquet")


def config_of(folder: Path, *, split: Any = QUARTERS, seed: int = 0, **graph: Any) -> Config:
    return graph_config(folder, task={"kind": "node", "split": split}, seed=seed, graph=graph)


def splits(config: Config) -> dict[str, int]:
    """Return the split code of each node by its id, as the graph store holds it."""
    artifact = make_artifact(StageContext.of(config), "ingest")
    tables = [pq.read_table(file, columns=["id", "split"]) for file in Path(artifact.artifact).glob("nodes-*.parquet")]
    table = pa.concat_tables(tables)
    return dict(zip(table["id"].to_pylist(), table["split"].to_pylist(), strict=True))


def test_every_labelled_node_is_in_a_split_and_shares_are_those_asked_for(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=4000, unlabelled=1000)
    facts = make_artifact(StageContext.of(config_of(tmp_path)), "ingest").facts(GraphFacts)
    assert facts.splits["none"] == 1000
    assert sum(facts.splits.values()) == 4000
    # three deviations of a binomial share of 3,000
    assert facts.splits["valid"] == pytest.approx(750, abs=71)
    assert facts.splits["test"] == pytest.approx(750, abs=71)


def test_a_split_is_a_function_of_id_and_seed(tmp_path: Path) -> None:
    write(tmp_path)
    first = splits(config_of(tmp_path))
    assert splits(config_of(tmp_path, partitions=5)) == first
    assert splits(config_of(tmp_path, seed=1)) != first
    table = pq.read_table(tmp_path / "nodes.parquet")
    pq.write_table(table.take(np.random.default_rng(0).permutation(400)), tmp_path / "nodes.parquet", row_group_size=90)
    assert splits(config_of(tmp_path)) == first


def test_a_node_stays_in_its_split_when_the_tables_grow(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=400)
    table, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    whole = splits(config_of(tmp_path))
    kept = table.slice(0, 300)
    inside = np.isin(edges["src"].to_pylist(), kept["id"]) & np.isin(edges["dst"].to_pylist(), kept["id"])
    pq.write_table(kept, tmp_path / "nodes.parquet")
    pq.write_table(edges.filter(inside), tmp_path / "edges.parquet")
    assert splits(config_of(tmp_path)).items() <= whole.items()


def test_the_column_is_not_read_and_the_log_says_so(tmp_path: Path) -> None:
    write(tmp_path)
    without = splits(config_of(tmp_path))
    write(tmp_path, column=True)
    heard, config = Heard(), config_of(tmp_path)
    make_artifact(StageContext.of(config, progress=heard), "ingest")
    assert splits(config) == without
    assert any("25% of labelled nodes for valid and 25% for test; no column is read" in each for each in heard.messages)


def test_a_run_trains_and_scores_on_them(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=200)
    config = config_of(tmp_path)
    config = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 2})})
    assert {"train.accuracy", "valid.accuracy", "test.accuracy"} <= pipeline.run_quietly(config).metrics.keys()


def test_what_is_drawn_for_nobody_is_refused(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=60)
    with pytest.raises(TableError, match=r"no labelled node was drawn for split 'valid' .* see task\.split"):
        make_artifact(StageContext.of(config_of(tmp_path, split={"kind": "random", "valid": 0.0001})), "ingest")


@pytest.mark.parametrize(
    ("task", "graph", "refused"),
    [
        ({"split": {"kind": "random", "valid": 0}}, {}, True),
        ({"split": {"kind": "random", "valid": 0}}, {"label": None}, False),
        ({"split": {"kind": "random", "test": 0}}, {}, False),
        ({"kind": "link", "split": {"kind": "random", "valid": 0}}, {"label": None}, True),
        ({"kind": "edge", "split": {"kind": "time", "valid": 0}}, {}, True),
        ({"kind": "edge", "split": {"kind": "time", "valid": 0}}, {"label": None}, False),
    ],
)
def test_training_is_refused_that_holds_out_no_target_of_valid(
    tmp_path: Path, task: dict[str, Any], graph: dict[str, Any], refused: bool
) -> None:
    train = {"metric": "mrr"} if task.get("kind") == "link" else {}
    config = graph_config(tmp_path, task=task, graph=graph, train=train)
    with pytest.raises(TrainingError, match=r"task\.split\.valid: 0 is not allowed") if refused else nullcontext():
        check_held_out(config)


def test_shares_leave_some_to_train_on(tmp_path: Path) -> None:
    inputs = valid(tmp_path)
    inputs.config["task"] = {"kind": "node", "split": {"kind": "random", "valid": 0.5, "test": 0.5}}
    inputs.write()
    assert "task.split.test: valid and test are 1 of all, and none is left" in run_cli(inputs.arguments()).message


@pytest.mark.parametrize("asked", [{"graph": {"split": "part"}}, {"task": {"split": {"kind": "column"}}}])
def test_a_column_that_is_named_and_missing_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    inputs = valid(tmp_path)
    del inputs.nodes["split"]
    inputs.command = ["run"]
    inputs.config |= {**asked, "graph": inputs.config["graph"] | asked.get("graph", {})}
    inputs.write()
    assert "or set task.split to {kind: random}" in run_cli(inputs.arguments()).message


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_missing_split_is_drawn_told_and_recorded(tmp_path: Path, form: str) -> None:
    inputs = valid(tmp_path)
    del inputs.nodes["split"], inputs.nodes["x"]
    inputs.nodes_format, inputs.command = form, ["run"]
    inputs.config["graph"]["features"] = ["age"]
    inputs.config["train"] = {"epochs": 1}
    inputs.write()
    shown = run_cli(inputs.arguments())
    assert shown.code == 0, shown.err
    assert "splits: drawn by id, 10% of labelled nodes for valid and 20% for test; no column" in shown.err
    (record,) = inputs.workspace.glob("runs/*/*/run.json")
    assert json.loads(record.read_text())["config"]["task"]["split"] == {"kind": "random", "valid": 0.1, "test": 0.2}
    inputs.config["task"] = {"split": {"kind": "random"}}
    inputs.config_file.write_text(json.dumps(inputs.config))
    assert "ingest: started" not in run_cli(inputs.arguments()).err


def test_a_split_of_a_column_or_of_no_label_is_as_before(tmp_path: Path) -> None:
    write(tmp_path, column=True)
    left, column = (config_of(tmp_path, split={"kind": kind}) for kind in ("auto", "column"))
    assert resolve(left) == resolve(column)
    write(tmp_path)
    unlabelled = config_of(tmp_path, split={"kind": "auto"}, label=None)
    assert resolve(unlabelled).config.task.split.kind == "column"
    assert resolve(config_of(tmp_path, split={"kind": "auto"})).config.task.split.kind == "random"
