"""The importance of columns finds the planted ones, of nodes, edges and both ends of pairs, and costs no other run.

Only runs find that a column is exchanged where the model reads it: a label of edges is read by the decoder, its ends'
columns by the layers, and sparse rows by an encoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.run_facts import InferFacts, TrainFacts
from gnnflow.stages import importance, pipeline
from gnnflow.storage.columns import to_matrix
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from gnnflow.graph.score_facts import ColumnFacts
    from gnnflow.stages.pipeline import RunResult

MODEL = {"kind": "sage", "hidden": 16, "dropout": 0.0, "layers": 1}
TRAIN = {"epochs": 30, "batch_size": 32, "lr": 0.02}


def columns_of(result: RunResult) -> ColumnFacts:
    found = result.stages["infer"].facts(InferFacts).columns
    assert found is not None
    return found


def of_run(folder: Path, *, sparse: bool = False, **sections: Any) -> ColumnFacts:
    """Run a config on a graph whose label is the sign of the first column, and return the importance of columns.

    sparse: the columns are the numbers of the positive ones, in a list.
    """
    write_graph(folder, num_nodes=300, num_edges=400)
    table = pq.read_table(folder / "nodes.parquet")
    x = to_matrix(table["x"])
    label = pa.array((x[:, 0] > 0).astype(np.int64))
    table = table.set_column(table.column_names.index("label"), "label", label)
    if sparse:
        index = pa.array([np.flatnonzero(row > 0) for row in x], pa.list_(pa.int32()))
        table = table.set_column(table.column_names.index("x"), "x_index", index)
    pq.write_table(table, folder / "nodes.parquet")
    config = graph_config(folder, model=MODEL, train=TRAIN, **{"infer": {"parity_samples": 4}, **sections})
    result = pipeline.run_quietly(config)
    scores = result.stages["train"].facts(TrainFacts).scores
    assert scores is not None
    assert sum(each.targets for each in scores.groups) == scores.targets == 75
    return columns_of(result)


def test_the_column_that_makes_the_label_comes_first(tmp_path: Path) -> None:
    found = of_run(tmp_path, graph={"edge_features": ["amount", "hour"]})
    first, *others = found.columns
    assert first.column == "x[0]"
    assert first.drop > 0.3
    assert all(each.drop < 0.15 for each in others)
    # GraphSAGE does not read edge attributes
    assert [each.drop for each in others if each.column.startswith("edge: ")] == [0.0, 0.0]
    assert (found.targets, found.metric, found.left_out) == (75, "accuracy", 0)


def test_a_sparse_column_is_exchanged_whole(tmp_path: Path) -> None:
    found = of_run(tmp_path, sparse=True)
    assert [each.column for each in found.columns] == ["x"]
    assert found.columns[0].drop > 0.3


def test_labels_of_edges_come_from_the_edge_and_from_both_ends(tmp_path: Path) -> None:
    """One of three columns each: of the edge itself, of its source and of its target."""
    write_graph(tmp_path, num_nodes=300, num_edges=3000)
    nodes, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    x = dict(zip(nodes["id"].to_pylist(), to_matrix(nodes["x"]), strict=True))
    source, target = (np.array([x[each] for each in edges[name].to_pylist()]) for name in ("src", "dst"))
    label = edges["amount"].to_numpy() + source[:, 0] - target[:, 1] > 0
    pq.write_table(edges.append_column("label", pa.array(label.astype(np.int64))), tmp_path / "edges.parquet")
    split = {"kind": "random", "valid": 0.2, "test": 0.2}
    result = pipeline.run_quietly(
        graph_config(
            tmp_path,
            graph={"edge_features": ["amount", "hour"]},
            task={"kind": "edge", "width": 16, "decoder": {"kind": "mlp", "hidden": 16}, "split": split},
            model=MODEL,
            train={**TRAIN, "batch_size": 256, "metric": "accuracy"},
            infer={"parity_samples": 4},
        )
    )
    found = columns_of(result)
    planted = {"edge: amount", "x[0]", "x[1]"}
    assert {each.column for each in found.columns[:3]} == planted
    assert all(each.drop > 0.08 for each in found.columns[:3])
    assert all(each.drop < 0.04 for each in found.columns[3:])
    assert (len(found.columns), found.targets) == (7, importance.MOST_TARGETS)
    # what is exchanged is the score of valid, on some of it
    assert abs(found.score - result.metrics["valid.accuracy"]) < 0.05


def test_neighbourhoods_beyond_the_bound_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "_MOST_VALUES", 10)
    assert "too large" in of_run(tmp_path).why
