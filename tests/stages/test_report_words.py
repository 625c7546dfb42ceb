"""A report says what is true of its run: of its sampling, its training, its splits and its labels."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.facts import GraphFacts
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from gnnflow.config import Config


def page_of(config: Config) -> str:
    """Run a config and return its report."""
    return unescape(Path(pipeline.run_quietly(config).report.removeprefix("file://")).read_text())


def test_without_sampling_it_says_how_many_in_edges_are_read(tmp_path: Path) -> None:
    write_graph(tmp_path, hub=3)
    config = graph_config(tmp_path, neighbors={"hub_threshold": 20}, train={"epochs": 1})
    page = page_of(config)
    most = StageContext.of(config).artifact("ingest").facts(GraphFacts).max_in_degree
    assert most > 20
    assert f"Nothing is sampled: all in-edges of a node are read, {most} at most." in page
    sampling = {"hub_threshold": 20, "sampling": {"kind": "uniform", "fanout": [3, 3]}}
    page = page_of(graph_config(tmp_path, neighbors=sampling, train={"epochs": 1}))
    assert "1 node has more than 20 in-edges" in page


def test_one_batch_that_is_kept_is_no_training_on_a_graph_in_files(tmp_path: Path) -> None:
    write_graph(tmp_path)
    assert "Its batches are kept in memory" in page_of(graph_config(tmp_path, train={"epochs": 3}))
    train = {"strategy": "global-batch", "memory": "100MiB", "epochs": 2}
    assert "Its one batch is the graph, which is read from files" in page_of(graph_config(tmp_path, train=train))


def test_predictions_are_checked_on_valid_where_no_test_target_was_scored(tmp_path: Path) -> None:
    write_graph(tmp_path)
    assert "test targets are predicted correctly" in page_of(graph_config(tmp_path, train={"epochs": 1}))
    page = page_of(graph_config(tmp_path, train={"epochs": 1}, infer={"targets": ["valid"]}))
    assert "of 15 sampled valid targets" in page


def test_numbers_to_predict_are_no_class(tmp_path: Path) -> None:
    write_graph(tmp_path)
    assert "<dt>classes</dt><dd>4</dd>" in page_of(graph_config(tmp_path, train={"epochs": 1}))
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    numbers = pa.array(np.linspace(0, 1, nodes.num_rows))
    pq.write_table(nodes.set_column(nodes.column_names.index("label"), "label", numbers), tmp_path / "nodes.parquet")
    assert "<dt>classes</dt>" not in page_of(graph_config(tmp_path, train={"epochs": 1, "metric": "mae"}))
