"""What the tables' schemas state reaches the manifest: the names of classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path


def name_classes(path: Path, stated: str) -> None:
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"label_classes": stated}), path)


def class_names(folder: Path, *, metric: str = "accuracy", **graph: object) -> list[str]:
    config = graph_config(folder, graph=graph, train={"metric": metric})
    result = make_artifact(StageContext.of(config), "ingest")
    return list(result.facts(GraphFacts).class_names)


@pytest.mark.parametrize("names", [["low", "high", "wide", "deep"], ["low"], list("abcdefgh")])
def test_class_names_are_those_of_the_node_table(tmp_path: Path, names: list[str]) -> None:
    write_graph(tmp_path)
    name_classes(tmp_path / "nodes.parquet", json.dumps(names))
    assert class_names(tmp_path) == names


def test_classes_without_names_have_none(tmp_path: Path) -> None:
    write_graph(tmp_path)
    assert class_names(tmp_path) == []


def test_numbers_have_no_class_names(tmp_path: Path) -> None:
    write_graph(tmp_path)
    table = pq.read_table(tmp_path / "nodes.parquet")
    label = table["label"].to_numpy().astype(np.float32)
    table = table.set_column(table.column_names.index("label"), "label", [label])
    pq.write_table(table, tmp_path / "nodes.parquet")
    name_classes(tmp_path / "nodes.parquet", '["low"]')
    assert class_names(tmp_path, metric="loss") == []


@pytest.mark.parametrize("stated", ["[low", '{"low": 0}', "[0, 1]", '"low"'])
def test_damaged_class_names_are_explained(tmp_path: Path, stated: str) -> None:
    write_graph(tmp_path)
    name_classes(tmp_path / "nodes.parquet", stated)
    with pytest.raises(TableError, match=r"nodes\.parquet, metadata label_classes: .*not a JSON list of names"):
        class_names(tmp_path)


def test_files_that_number_classes_differently_are_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    (tmp_path / "nodes").mkdir()
    table = pq.read_table(tmp_path / "nodes.parquet")
    for number, names in enumerate((["low", "high"], ["high", "low"])):
        path = tmp_path / "nodes" / f"{number}.parquet"
        pq.write_table(table.slice(30 * number, 30), path)
        name_classes(path, json.dumps(names))
    with pytest.raises(TableError, match=r"1\.parquet, metadata label_classes: states other class names"):
        class_names(tmp_path, nodes=str(tmp_path / "nodes"))


@pytest.mark.slow
def test_the_report_of_a_run_names_the_classes(tmp_path: Path) -> None:
    write_graph(tmp_path)
    name_classes(tmp_path / "nodes.parquet", json.dumps(["Riverbank", "Meadow", "Hillside", "Forest"]))
    result = pipeline.run_quietly(graph_config(tmp_path, train={"epochs": 2, "batch_size": 16}))
    page = (tmp_path / result.report).read_text()
    assert all(name in page for name in ("Riverbank", "Meadow", "Hillside", "Forest"))
