"""Every execution sees the same numbers of features in fewer bytes: those that the store's rows widen to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.narrow import KINDS, ColumnRanges, NarrowRows
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.storage.columns import from_matrix, to_matrix
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.tables import read_table
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

MODEL = {"kind": "gcn", "hidden": 4, "dropout": 0.0}
DROPS = {"kind": "sage", "hidden": 4, "dropout": 0.5}
TRAIN = {"epochs": 2, "threads": 1}
EXECUTIONS: dict[str, dict[str, Any]] = {
    "shards": {"model": MODEL},
    "shards, dropout": {"model": DROPS},
    "inline shards": {"model": MODEL, "flat": {"hops": 2, "layout": "inline"}},
    "store": {"model": MODEL, "train": {"source": "store"}},
    "cluster-batch": {"model": MODEL, "train": {"strategy": "cluster-batch"}},
    "global-batch": {"model": MODEL, "train": {"strategy": "global-batch"}},
    "streamed": {"model": MODEL, "train": {"strategy": "global-batch", "memory": "1GiB"}},
    "streamed, dropout": {"model": DROPS, "train": {"strategy": "global-batch", "memory": "1GiB"}},
    "encoder": {"model": {"kind": "gat", "hidden": 4, "heads": 2, "encoder": "linear", "head": "linear"}},
    "partition": {"model": MODEL, "partition": {"kind": "ldg"}},
}
CASES = [
    pytest.param(kind, name, marks=[] if kind == "int4" or name == "shards" else [pytest.mark.exhaustive])
    for kind in KINDS[1:]
    for name in EXECUTIONS
]


def scores_of(folder: Path, name: str, kind: str) -> tuple[np.ndarray, StageContext]:
    sections = {key: dict(value) for key, value in EXECUTIONS[name].items()}
    train = {**TRAIN, **sections.pop("train", {})}
    graph = {} if kind == "float32" else {"storage": kind, "normalize": "standard"}
    config = graph_config(folder, graph=graph, train=train, **sections)
    context = StageContext.of(config)
    run = pipeline.run(context)
    assert run.metrics["infer.parity_max_difference"] < 1e-5
    parts = [read_table(join(run.predictions, each)) for each in sorted(list_names(run.predictions))]
    return to_matrix(pa.concat_tables(parts).combine_chunks()["probabilities"]), context


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_execution_computes_on_the_numbers_that_rows_widen_to(tmp_path: Path, kind, name):
    write_graph(tmp_path / "narrow")
    found, context = scores_of(tmp_path / "narrow", name, kind)
    facts = context.artifact("ingest").facts(GraphFacts)
    assert facts.features.storage == kind
    # the same graph with these numbers in its table, as float32
    write_graph(tmp_path / "wide")
    nodes = pq.read_table(tmp_path / "wide" / "nodes.parquet")
    scale = facts.scales["nodes"]
    x = ((to_matrix(nodes["x"], np.float64) - scale.mean) / scale.deviation).astype(np.float32)
    ranges = ColumnRanges(tuple(x.min(0).tolist()), tuple(x.max(0).tolist()))
    form = NarrowRows.of(kind, x.shape[1], ranges)
    column = from_matrix(form.decode(form.encode(x)))
    pq.write_table(nodes.set_column(nodes.column_names.index("x"), "x", column), tmp_path / "wide" / "nodes.parquet")
    expected, _ = scores_of(tmp_path / "wide", name, "float32")
    assert np.abs(found - expected).max() < 1e-5
