"""Vectors by id tell nodes without columns apart, on each way to train and to score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import ConfigError, LayerError, RegistryError, TableError
from gnnflow.graph.made_features import embedding_rows
from gnnflow.graph.run_facts import InferFacts
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.model_size import check_trained_size
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import id_keys, to_numpy, to_ragged
from gnnflow.storage.graph_store import GraphStore
from tests.small_graphs import graph_config
from tests.small_links import TASK, config_of, write_groups
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 200


def graph_of(folder: Path, **keys: Any) -> dict[str, Any]:
    """The groups' graph without their columns, as one of a type."""
    return {
        "nodes": {"node": str(folder / "nodes.parquet")},
        "edges": {"node__joins__node": str(folder / "edges.parquet")},
        "features": {"node": []},
        **keys,
    }


@pytest.mark.parametrize("strategy", ["mini-batch", "global-batch"])
def test_groups_that_no_column_shows_are_learned_by_id(tmp_path: Path, strategy: str) -> None:
    # a table of ids alone against one of degrees alone: both without any column that says the group
    write_groups(tmp_path)
    found = {}
    for name, keys in (("ids", {"id_embeddings": {"node": ROWS}}), ("degrees", {"degree_features": True})):
        train = {"strategy": strategy, "epochs": 40, "lr": 0.05}
        result = pipeline.run_quietly(
            graph_config(
                tmp_path,
                graph=graph_of(tmp_path, **keys),
                task={**TASK, "negatives": {"kind": "uniform", "pool": 64, "evaluation": 30}},
                model={"kind": "sage", "hidden": 12, "dropout": 0.0},
                train={**train, "metric": "mrr"},
                infer={"parity_samples": 10},
            )
        )
        found[name] = result.metrics["test.roc_auc"]
        facts = result.stages["infer"].facts(InferFacts)
        assert facts.parity.max_difference is not None
        assert facts.parity.max_difference < 1e-5
        if name == "ids":
            assert facts.columns is not None
            assert [each.column for each in facts.columns.columns] == ["id"]
            assert facts.columns.columns[0].drop > 0.02
    assert found["ids"] > 0.75
    assert found["degrees"] < 0.65


def test_an_id_reads_the_same_two_rows_wherever_it_lies(tmp_path: Path) -> None:
    write_groups(tmp_path)
    held = []
    for partitions in (1, 4):
        graph = graph_of(tmp_path, id_embeddings={"node": ROWS}, partitions=partitions)
        made = make_artifact(StageContext.of(config_of(tmp_path, graph=graph)), "ingest")
        store = GraphStore.of(made.artifact, made.manifest)
        rows: dict[str, tuple[int, int]] = {}
        for part in range(store.num_partitions):
            table = store.nodes(part, ["id", "x_index"])
            offsets, index = to_ragged(table["x_index"])
            assert (np.diff(offsets) == 2).all()
            rows |= dict(zip(table["id"].to_pylist(), map(tuple, index.reshape(-1, 2).tolist()), strict=True))
        features = store.facts.features
        assert (features.kind, features.width, features.has_value) == ("sparse", ROWS, False)
        held.append(rows)
    assert held[0] == held[1]
    first, second = np.array([*held[0].values()]).T
    assert first.max() < ROWS // 2 <= second.min()
    assert len(held[0]) == 90
    assert len({*held[0].values()}) > 85


def test_ids_beyond_the_rows_of_a_table_are_told_apart_by_both() -> None:
    pairs = embedding_rows(np.arange(10_000, dtype=np.uint64), 10_000)
    shared = 10_000 - len(np.unique(pairs, axis=0))
    assert shared < 10
    assert {*np.unique(pairs[:, 1] // 5_000)} == {1}
    assert np.bincount(pairs[:, 0], minlength=5_000).max() < 15


def test_later_tables_keep_the_vectors_of_ids_and_another_table_of_them_is_refused(tmp_path: Path) -> None:
    write_groups(tmp_path)
    context = StageContext.of(config_of(tmp_path, graph=graph_of(tmp_path, id_embeddings={"node": ROWS})))
    pipeline.run(context)
    first = pq.read_table(publish.run(context).predictions)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    pq.write_table(nodes.slice(1), tmp_path / "nodes.parquet")  # without n0, and in other places
    edges = pq.read_table(tmp_path / "edges.parquet")
    kept = [i for i, pair in enumerate(zip(*edges.to_pydict().values(), strict=True)) if "n0" not in pair]
    pq.write_table(edges.take(kept), tmp_path / "edges.parquet")
    later = StageContext.of(config_of(tmp_path, graph=graph_of(tmp_path, id_embeddings={"node": ROWS})))
    assert pq.read_table(score.run(later).predictions).num_rows == first.num_rows - 1
    other = StageContext.of(config_of(tmp_path, graph=graph_of(tmp_path, id_embeddings={"node": ROWS + 1})))
    with pytest.raises(RegistryError, match="201"):
        score.run(other)


def test_a_table_of_vectors_beyond_the_memory_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    graph = write_tables(tmp_path, typed_tables())
    graph["nodes"]["device"] = None
    config = graph_config(tmp_path, graph={**graph, "id_embeddings": {"device": 2**31 - 1}}, model={"hidden": 4096})
    with pytest.raises(LayerError, match=r"2,147,483,647 rows of graph\.id_embeddings"):
        check_trained_size(config)


def test_a_type_of_edge_tables_has_them_and_one_with_columns_has_not(tmp_path: Path) -> None:
    graph = write_tables(tmp_path, typed_tables())
    graph["nodes"]["device"] = None
    config = graph_config(tmp_path, graph={**graph, "id_embeddings": {"device": 40}})
    made = make_artifact(StageContext.of(config), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    table = store.nodes(0, ["id", "x_index"], node_type=1)
    expected = embedding_rows(id_keys(table["id"]), 40)
    np.testing.assert_array_equal(to_numpy(table["x_index"].combine_chunks().flatten()).reshape(-1, 2), expected)
    with pytest.raises(TableError, match="has the feature column 'x'"):
        make_artifact(
            StageContext.of(graph_config(tmp_path, graph={**graph, "id_embeddings": {"account": 40}})), "ingest"
        )
    for keys in ({"features": {"account": ["x"]}}, {"degree_features": {"account": True}}):
        with pytest.raises(ConfigError, match="the type has columns of graph"):
            graph_config(tmp_path, graph={**graph, **keys, "id_embeddings": {"account": 40}})
