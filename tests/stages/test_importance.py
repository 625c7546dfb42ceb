"""The importance of columns finds the planted one, on nodes and on edges, and costs no other run."""

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

MODEL = {"kind": "sage", "hidden": 16, "dropout": 0.0, "layers": 1}
TRAIN = {"epochs": 30, "batch_size": 32, "lr": 0.02}


def of_run(folder: Path, **sections: Any) -> ColumnFacts:
    """Run a config on a graph whose label is the sign of the first column, and return the importance of columns."""
    write_graph(folder, num_nodes=300, num_edges=400)
    table = pq.read_table(folder / "nodes.parquet")
    label = pa.array((to_matrix(table["x"])[:, 0] > 0).astype(np.int64))
    place = table.column_names.index("label")
    pq.write_table(table.set_column(place, "label", label), folder / "nodes.parquet")
    config = graph_config(folder, model=MODEL, train=TRAIN, **{"infer": {"parity_samples": 4}, **sections})
    result = pipeline.run_quietly(config)
    scores = result.stages["train"].facts(TrainFacts).scores
    assert scores is not None
    assert sum(each.targets for each in scores.groups) == scores.targets == 75
    found = result.stages["infer"].facts(InferFacts).columns
    assert found is not None
    return found


def test_the_column_that_makes_the_label_comes_first(tmp_path: Path) -> None:
    found = of_run(tmp_path, graph={"edge_features": ["amount", "hour"]})
    first, *others = found.columns
    assert first.column == "x[0]"
    assert first.drop > 0.3
    assert all(each.drop < 0.15 for each in others)
    # GraphSAGE does not read edge attributes
    assert [each.drop for each in others if each.column.startswith("edge: ")] == [0.0, 0.0]
    assert (found.targets, found.metric, found.left_out) == (75, "accuracy", 0)


def test_neighbourhoods_beyond_the_bound_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "_MOST_VALUES", 10)
    assert "too large" in of_run(tmp_path).why
