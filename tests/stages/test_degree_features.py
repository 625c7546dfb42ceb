"""Degrees as features: what learns from them, which stages keep them, and what they are in later tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import RegistryError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.run_facts import InferFacts
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.table_columns import names_of_numbers
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph
from tests.stages.test_known_columns import GRAPH, heard, write_columns
from tests.stages.test_known_columns import TRAIN as SHORT

if TYPE_CHECKING:
    from pathlib import Path

ON: dict[str, Any] = {"degree_features": True}
MODEL = {"kind": "sage", "hidden": 16, "dropout": 0.0, "layers": 1}
TRAIN = {"epochs": 150, "lr": 0.05}


@pytest.mark.parametrize("strategy", ["mini-batch", "global-batch"])
def test_a_label_of_degrees_is_learned_from_them_whatever_the_partitions(tmp_path: Path, strategy: str) -> None:
    # by rows of another partition than ingest's, for GraphInfer too
    write_graph(tmp_path, num_nodes=400, num_edges=2000)
    nodes, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    into = np.isin(nodes["id"].to_numpy(), [*edges["dst"].to_pylist()])
    listed = np.sort(edges["dst"].to_numpy())
    degree = np.diff([np.searchsorted(listed, nodes["id"].to_numpy() + side) for side in (0, 1)], axis=0)[0]
    assert (into == (degree > 0)).all()
    label = pa.array((degree > 4).astype(np.int64))
    pq.write_table(nodes.set_column(nodes.column_names.index("label"), "label", label), tmp_path / "nodes.parquet")
    result = pipeline.run_quietly(
        graph_config(
            tmp_path,
            graph=ON,
            model=MODEL,
            train={**TRAIN, "strategy": strategy},
            partition={"kind": "ldg"},
            infer={"parity_samples": 10},
        )
    )
    assert result.metrics["test.accuracy"] > 0.8  # of which 0.56 are of the larger class
    facts = result.stages["infer"].facts(InferFacts)
    assert facts.parity.max_difference is not None
    assert facts.parity.max_difference < 1e-5
    assert facts.columns is not None
    first, *others = (each.column for each in facts.columns.columns)
    assert first == "log1p(in_degree)"
    assert "log1p(out_degree)" in others
    # `explain` names what each feature comes from
    graph = result.stages["ingest"].facts(GraphFacts)
    names = ["x[0]", "x[1]", "x[2]", "x[3]", "x[4]", "log1p(in_degree)", "log1p(out_degree)"]
    assert names_of_numbers(graph, 0) == (names, names)


def context_of(folder: Path, **graph: Any) -> StageContext:
    return StageContext.of(graph_config(folder, graph={**GRAPH, **graph}, train=SHORT), progress=Heard())


def test_later_tables_are_scored_by_their_own_degrees(tmp_path: Path) -> None:
    write_columns(tmp_path)
    nodes, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    # text, whose encoding a version keeps
    nodes = nodes.append_column("kind", pa.array(["red", "blue", "green"] * (nodes.num_rows // 3)))
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    asked = {"features": ["[a-d]", "kind"], "normalize": "standard", **ON}
    context = context_of(tmp_path, **asked)
    pipeline.run(context)
    first = pq.read_table(publish.run(context).predictions).sort_by("id")
    # one more column that the pattern matches: a version asks for the columns that it knows, and degrees are none
    pq.write_table(nodes.append_column("d", nodes["noise"]), tmp_path / "nodes.parquet")
    again = context_of(tmp_path, **asked)
    assert pq.read_table(score.run(again).predictions).sort_by("id").equals(first), heard(again)
    # each edge twice: the mean of neighbours stays, and degrees alone differ
    pq.write_table(pa.concat_tables([edges, edges]), tmp_path / "edges.parquet")
    assert not pq.read_table(score.run(context_of(tmp_path, **asked)).predictions).sort_by("id").equals(first)
    with pytest.raises(RegistryError, match="feature width is"):
        score.run(context_of(tmp_path, **{**asked, "degree_features": False}))
