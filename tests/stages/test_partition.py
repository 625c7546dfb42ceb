"""The partition stage: the same graph in partitions that cost about the same."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.config import STAGES
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import GraphFacts
from gnnflow.ingest.job import IngestJob
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import id_keys, to_numpy
from gnnflow.storage.filesystem import join, read_json
from tests.command_line import printed, run_cli
from tests.conftest import ClusterOf
from tests.killing import KillAWorkerInEveryRound
from tests.small_graphs import graph_config, write_graph
from tests.stages.divided_graphs import (
    BALANCED,
    assert_edges_lie_at_their_targets,
    assert_same_on_workers,
    assert_same_tables,
    config_of,
    edge_rows,
    graph,
    node_rows,
    predictions,
    selected,
    store_of,
    stores,
)
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["graph"]  # a fixture that pytest finds here


def test_the_graph_is_the_same_in_other_partitions(tmp_path: Path, graph: dict[str, Any]) -> None:
    first, second = map(store_of, stores(config_of(tmp_path, graph)))
    assert first.facts.offsets != second.facts.offsets
    for number in range(first.schema.num_types):
        assert node_rows(first, number).equals(node_rows(second, number))
    for number in range(first.schema.num_relations):
        assert edge_rows(first, number).equals(edge_rows(second, number))


def test_a_node_lies_where_the_book_says_and_edges_at_their_targets_in_order(
    tmp_path: Path, graph: dict[str, Any]
) -> None:
    store = store_of(stores(config_of(tmp_path, graph))[1])
    book = store.book
    assert book.num_nodes == store.facts.num_nodes
    for partition in range(store.num_partitions):
        for number in range(store.schema.num_types):
            nodes = store.nodes(partition, ["node", "id"], node_type=number)
            rows = book.rows(partition, number)
            expected = book.start(partition) + np.arange(rows.start, rows.stop)
            np.testing.assert_array_equal(to_numpy(nodes["node"]), expected)
            assert nodes["id"].to_pylist() == sorted(nodes["id"].to_pylist())
    assert_edges_lie_at_their_targets(store)


def test_the_store_is_what_ingest_writes_where_it_deals_nodes_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph(tmp_path, num_nodes=90, num_edges=1200, hub=7)
    graph = {"edge_features": ["amount", "hour"], "partitions": 4}
    made = stores(config_of(tmp_path, graph))[1]
    store = store_of(made)
    held = [to_numpy(store.nodes(number, ["key"])["key"]) for number in range(4)]
    keys = np.concatenate(held)
    home = np.repeat(np.arange(4), [len(each) for each in held])[np.argsort(keys)]

    def dealt(_: IngestJob, ids: pa.Array) -> Any:
        return home[np.searchsorted(np.sort(keys), id_keys(ids))]

    monkeypatch.setattr(IngestJob, "home_of", dealt)
    again = config_of(tmp_path, graph, workspace=str(tmp_path / "again"))
    ingested = make_artifact(StageContext.of(again), "ingest")
    assert_same_tables(made, ingested)
    assert store.facts.offsets == ingested.facts(GraphFacts).offsets


def test_where_nothing_moves_the_rows_are_those_of_ingest(tmp_path: Path, graph: dict[str, Any]) -> None:
    first, second = stores(config_of(tmp_path, graph, partition={"kind": "balanced", "threshold": 100}))
    assert_same_tables(first, second)
    assert second.facts(GraphFacts) == first.facts(GraphFacts)


def test_costs_are_even_and_the_artifact_says_how_even(tmp_path: Path, graph: dict[str, Any]) -> None:
    made = stores(config_of(tmp_path, graph, partition={**BALANCED, "threshold": 1.1, "per_root": 0.5}, neighbors={}))[
        1
    ]
    store = store_of(made)
    told = read_json(join(made.artifact, "balance.json"))
    of_nodes = [store.degrees(p).in_degree.reshape(store.book.size(p), -1).sum(1) + 0.5 for p in range(4)]
    loads = np.array([each.sum() for each in of_nodes])
    assert told["factor"] == pytest.approx(loads.max() / loads.mean())
    assert told["factor"] < told["factor_before"]
    largest = max(each.max() for each in of_nodes)
    assert told["factor"] <= max(1.1, (largest + 1) / loads.mean())
    assert told["costs"]["per_root"] == 0.5


def test_paths_along_metapaths_are_what_costs_where_they_are_aggregated(tmp_path: Path) -> None:
    graph = {**write_tables(tmp_path, typed_tables(num_edges=300)), "partitions": 4}
    paths = [["merchant", "account", "account"], ["account", "account"]]
    neighbors = {"kind": "metapaths", "paths": paths, "max_instances": 30}
    name = "account__merchant-account-account__merchant"
    partition = {**BALANCED, "relations": {name: [0, 0, 0.1]}}
    config = config_of(tmp_path, graph, neighbors=neighbors, partition=partition)
    told = read_json(join(stores(config)[1].artifact, "balance.json"))
    assert told["costs"]["relations"] == {name: [0, 0, 0.1], "account__account-account__account": [0, 1, 0]}
    assert told["factor"] < min(told["factor_before"], 1.2)


@pytest.mark.table(4)
def test_predictions_by_id_do_not_depend_on_the_partitions(tmp_path: Path, graph: dict[str, Any]) -> None:
    hashed = predictions(config_of(tmp_path, graph, partition={"kind": "hash"}))
    balanced = predictions(config_of(tmp_path, graph))
    assert hashed.keys() == balanced.keys()
    for key, score in hashed.items():
        np.testing.assert_allclose(balanced[key], score, atol=1e-4)


def test_samples_do_not_depend_on_the_partitions(tmp_path: Path, graph: dict[str, Any]) -> None:
    assert selected(config_of(tmp_path, graph)) == selected(config_of(tmp_path, graph, partition={"kind": "hash"}))


def test_the_later_stages_compute_on_the_new_store(tmp_path: Path, graph: dict[str, Any]) -> None:
    config = config_of(tmp_path, graph)
    run = StageContext.of(config).run
    assert run.stages == ("ingest", "partition", "select", "flat", "train", "infer")
    assert run.store_stage == "partition"
    assert {stage: run.needs(stage)[0] for stage in ("partition", "select", "flat")} == {
        "partition": "ingest",
        "select": "partition",
        "flat": "partition",
    }


def test_the_command_line_partitions(tmp_path: Path, graph: dict[str, Any]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config_of(tmp_path, graph).model_dump_json(exclude_none=True))
    printed(["ingest", str(file)])
    shown = run_cli(["partition", str(file), "--json"])
    assert json.loads(shown.out)["stage"] == "partition"
    assert "balance factor" in shown.err


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [1, 2, 4], scope="session")
def test_worker_count_changes_no_byte(
    tmp_path: Path, graph: dict[str, Any], workers: int, cluster_of: ClusterOf
) -> None:
    assert_same_on_workers(partial(config_of, tmp_path, graph), tmp_path, workers, cluster_of)


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("workers", [2], scope="session")
def test_killing_a_worker_in_every_round_changes_no_byte(
    tmp_path: Path, graph: dict[str, Any], workers: int, cluster_of: ClusterOf
) -> None:
    configure = partial(config_of, tmp_path, graph)
    kills = assert_same_on_workers(configure, tmp_path, workers, cluster_of, watch=KillAWorkerInEveryRound)
    assert kills.killed == ["plan", "nodes_move", "nodes_write", "answer", "edges_move", "edges_write"]


def test_keys_name_what_decides_the_partitions(tmp_path: Path) -> None:
    write_graph(tmp_path)

    def keys(**sections: Any) -> Any:
        return STAGES["partition"].keys(graph_config(tmp_path, **sections))  # type: ignore[misc]

    balanced = keys(partition=BALANCED)
    assert keys(partition={**BALANCED, "threshold": 1.2}) != balanced
    assert keys(partition={**BALANCED, "per_root": 2}) != balanced
    assert keys(partition=BALANCED, seed=1) != balanced
    assert keys(partition=BALANCED, neighbors={"sampling": {"kind": "uniform", "fanout": [3, 2]}}) != balanced
    assert keys(partition=BALANCED, model={"hidden": 8}) == balanced


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"neighbors": {"kind": "walks"}}, "balanced is not allowed where neighbors.kind is walks"),
        (
            {"partition": {**BALANCED, "relations": {"a__to__b": [1, 0, 0]}}},
            "'a__to__b' is not an aggregated relation.*node__edge__node",
        ),
        ({"partition": {**BALANCED, "threshold": 1}}, "partition.threshold: 1"),
        ({"partition": {"kind": "even"}}, "partition.kind: 'even'"),
        ({"partition": {**BALANCED, "relations": {"node__edge__node": [1, -1, 0]}}}, "-1"),
    ],
)
def test_what_cannot_be_balanced_is_refused(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        graph_config(tmp_path, **{"partition": BALANCED, **sections})
