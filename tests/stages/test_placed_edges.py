"""Edges that are computed elsewhere than at their targets: the store has them a second time, in that order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gnnflow.config import STAGES
from gnnflow.graph.book import edge_partitions
from gnnflow.graph.errors import ConfigError
from gnnflow.stages.base import StageContext
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.filesystem import join, read_json
from tests.conftest import ClusterOf
from tests.killing import KillAWorkerInEveryRound
from tests.small_graphs import graph_config, write_graph
from tests.stages.divided_graphs import (
    assert_same_on_workers,
    assert_same_tables,
    config_of,
    graph,
    predictions,
    store_of,
    stores,
)

__all__ = ["graph"]  # a fixture that pytest finds here

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.config import Config
    from gnnflow.graph.schema import Placement

PLACED: dict[str, tuple[dict[str, Any], Placement]] = {
    "edge_1d": ({"kind": "edge_1d", "by": "source"}, "source"),
    "vertex_cut": ({"kind": "vertex_cut"}, "grid"),
}


@pytest.fixture(params=list(PLACED))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def placed_config(folder: Path, graph: dict[str, Any], kind: str, **sections: Any) -> Config:
    return config_of(folder, graph, partition=PLACED[kind][0], neighbors={}, **sections)


@pytest.mark.table(3)
def test_nodes_and_in_edges_are_those_of_ingest(tmp_path: Path, graph: dict[str, Any], kind: str) -> None:
    first, second = stores(placed_config(tmp_path, graph, kind))
    assert_same_tables(first, second)
    assert store_of(second).facts.placement == PLACED[kind][1]


@pytest.mark.table(3)
def test_every_edge_is_placed_once_where_its_ends_say_and_sorted(
    tmp_path: Path, graph: dict[str, Any], kind: str
) -> None:
    store = store_of(stores(placed_config(tmp_path, graph, kind))[1])
    parts, book = range(store.num_partitions), store.book
    for number in range(store.schema.num_relations):
        columns = ["dst", "src", "edge_key", *store.edge_columns_of(number)]
        found = []
        for part in parts:
            rows = store.placed_edges(part, columns, relation=number)
            dst, src = to_numpy(rows["dst"]), to_numpy(rows["src"])
            at = edge_partitions(PLACED[kind][1], target=book.owner(dst), source=book.owner(src), partitions=4)
            assert np.all(at == part)
            assert np.all(np.diff(dst * book.num_nodes + src) >= 0)
            found += rows.to_pylist()
        held = [row for part in parts for row in store.edges(part, columns, relation=number).to_pylist()]
        found.sort(key=lambda row: row["edge_key"])
        held.sort(key=lambda row: row["edge_key"])
        assert found == held


def test_without_a_placement_placed_edges_are_the_in_edges(tmp_path: Path, graph: dict[str, Any]) -> None:
    store = store_of(stores(config_of(tmp_path, graph))[0])
    for number in range(store.schema.num_relations):
        columns = ["dst", "src"]
        assert store.placed_edges(1, columns, relation=number).equals(store.edges(1, columns, relation=number))


@pytest.mark.table(3)
def test_the_artifact_counts_copies_of_both_ends(tmp_path: Path, graph: dict[str, Any], kind: str) -> None:
    made = stores(placed_config(tmp_path, graph, kind))[1]
    store, told = store_of(made), read_json(join(made.artifact, "balance.json"))
    copies, edges = 0, []
    for part in range(4):
        relations = range(store.schema.num_relations)
        tables = [store.placed_edges(part, ["dst", "src"], relation=each) for each in relations]
        ends = {node for table in tables for name in ("dst", "src") for node in table[name].to_pylist()}
        copies += int(np.count_nonzero(store.book.owner(np.array(sorted(ends))) != part))
        edges.append(sum(table.num_rows for table in tables))
    assert told["replication"] == pytest.approx(1 + copies / store.facts.num_nodes, abs=1e-6)
    assert told["edges"] == edges
    assert told["edge_cut"] == told["before"]["edge_cut"]


@pytest.mark.table(4)
def test_predictions_by_id_are_those_of_hash_partitions(tmp_path: Path, graph: dict[str, Any], kind: str) -> None:
    hashed = predictions(config_of(tmp_path, graph, partition={"kind": "hash"}, neighbors={}))
    found = predictions(placed_config(tmp_path, graph, kind))
    assert hashed.keys() == found.keys()
    for key, score in hashed.items():
        np.testing.assert_allclose(found[key], score, atol=1e-4)


def test_edges_at_their_targets_need_no_stage(tmp_path: Path) -> None:
    write_graph(tmp_path)
    for partition in ({"kind": "edge_1d"}, {"kind": "edge_1d", "by": "target"}, {"kind": "hash"}):
        assert "partition" not in StageContext.of(graph_config(tmp_path, partition=partition)).run.stages
    by_source = graph_config(tmp_path, partition={"kind": "edge_1d", "by": "source"})
    assert "partition" in StageContext.of(by_source).run.stages
    assert STAGES["partition"].asked_for(by_source)


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [1, 2, 4], scope="session")
def test_worker_count_changes_no_byte(
    tmp_path: Path, graph: dict[str, Any], kind: str, workers: int, cluster_of: ClusterOf
) -> None:
    assert_same_on_workers(partial(placed_config, tmp_path, graph, kind), tmp_path, workers, cluster_of)


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("workers", [2], scope="session")
def test_killing_a_worker_in_every_round_changes_no_byte(
    tmp_path: Path, graph: dict[str, Any], kind: str, workers: int, cluster_of: ClusterOf
) -> None:
    configure = partial(placed_config, tmp_path, graph, kind)
    kills = assert_same_on_workers(configure, tmp_path, workers, cluster_of, watch=KillAWorkerInEveryRound)
    assert kills.killed == ["plan", "nodes_move", "nodes_write", "answer", "edges_move", "edges_write"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"partition": {"kind": "edge_1d", "by": "both"}}, "partition.by: 'both'"),
        (
            {"partition": {"kind": "vertex_cut"}, "neighbors": {"kind": "walks"}},
            "vertex_cut is not allowed where neighbours are walks",
        ),
        (
            {
                "partition": {"kind": "edge_1d", "by": "source"},
                "neighbors": {"sampling": {"kind": "uniform", "fanout": [3, 2]}},
            },
            r"edge_1d is not allowed where neighbours are sampled \(uniform\)",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        graph_config(tmp_path, **sections)
