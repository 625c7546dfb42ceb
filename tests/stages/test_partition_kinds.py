"""What holds for every kind of partitioning, and what each promises beside."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import STAGES
from gnnflow.config.partition_section import PARTITIONERS
from gnnflow.graph.errors import ConfigError
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.check import check_run
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.filesystem import join, read_json
from tests.command_line import run_cli
from tests.conftest import ClusterOf
from tests.killing import KillAWorkerInEveryRound
from tests.small_graphs import graph_config, write_graph
from tests.stages.divided_graphs import (
    assert_edges_lie_at_their_targets,
    assert_same_on_workers,
    config_of,
    edge_rows,
    graph,
    node_rows,
    predictions,
    selected,
    store_of,
    stores,
)
from tests.stages.test_edge_labels import config_of as edges_config
from tests.stages.test_edge_labels import write_labelled
from tests.stages.test_links import config_of as links_config
from tests.stages.test_links import write_groups

__all__ = ["graph"]  # a fixture that pytest finds here

if TYPE_CHECKING:
    from gnnflow.storage.graph_store import GraphStore

PARTITIONS: dict[str, dict[str, Any]] = {
    "metis": {"kind": "metis", "clusters": 12, "imbalance": 1.2},
    "metis, no clusters": {"kind": "metis"},
    "louvain": {"kind": "louvain", "clusters": 8, "resolution": 1.5},
    "louvain, no clusters": {"kind": "louvain"},
    "ldg": {"kind": "ldg", "even": ["nodes", "edges", "targets"]},
    "range": {"kind": "range"},
}
LINKS = {"task": {"kind": "link"}, "train": {"metric": "mrr"}}
TRAIN = {"epochs": 3, "batch_size": 1000, "lr": 0.05}


@pytest.fixture(params=list(PARTITIONS))
def partition(request: pytest.FixtureRequest) -> dict[str, Any]:
    return installed(PARTITIONS[request.param])


def installed(partition: dict[str, Any]) -> dict[str, Any]:
    kind = partition["kind"]
    if kind in PARTITIONERS:
        pytest.importorskip(PARTITIONERS[kind], reason=f"it is an extra: pip install 'gnnflow[{kind}]'")
    return partition


def ends_of(store: GraphStore) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return targets and sources of all edges, relation by relation."""
    found = []
    for number in range(store.schema.num_relations):
        tables = [store.edges(part, ["dst", "src"], relation=number) for part in range(store.num_partitions)]
        found.append(tuple(np.concatenate([to_numpy(each[name]) for each in tables]) for name in ("dst", "src")))
    return found


@pytest.mark.table(10)
def test_the_graph_is_the_same_and_every_node_has_one_owner(
    tmp_path: Path, graph: dict[str, Any], partition: dict[str, Any]
) -> None:
    first, second = map(store_of, stores(config_of(tmp_path, graph, partition=partition)))
    assert first.facts.num_nodes == second.book.num_nodes
    assert first.num_partitions == second.num_partitions
    for number in range(first.schema.num_types):
        assert node_rows(first, number).equals(node_rows(second, number))
    for number in range(first.schema.num_relations):
        assert edge_rows(first, number).equals(edge_rows(second, number))


@pytest.mark.table(9)
def test_nodes_are_ordered_by_cluster_and_id_and_edges_by_their_ends(
    tmp_path: Path, graph: dict[str, Any], partition: dict[str, Any]
) -> None:
    store = store_of(stores(config_of(tmp_path, graph, partition=partition))[1])
    clusters, book = store.facts.cluster_book, store.book
    assert clusters.num_clusters == partition.get("clusters", 4)
    for part in range(store.num_partitions):
        for number in range(store.schema.num_types):
            nodes = store.nodes(part, ["node", "id"], node_type=number)
            rows = book.rows(part, number)
            dense = book.start(part) + np.arange(rows.start, rows.stop)
            np.testing.assert_array_equal(to_numpy(nodes["node"]), dense)
            held = list(zip(clusters.number(dense).tolist(), nodes["id"].to_pylist(), strict=True))
            assert held == sorted(held)
    assert_edges_lie_at_their_targets(store)


@pytest.mark.table(9)
def test_ranges_of_clusters_hold_each_node_once_in_its_partition(
    tmp_path: Path, graph: dict[str, Any], partition: dict[str, Any]
) -> None:
    store = store_of(stores(config_of(tmp_path, graph, partition=partition))[1])
    clusters, seen = store.facts.cluster_book, list[int]()
    for number in range(clusters.num_clusters):
        for node_type, (start, length) in enumerate(zip(*clusters.runs(np.array([number])), strict=True)):
            own = np.arange(start, start + length)
            seen += own.tolist()
            assert np.all(clusters.number(own) == number)
            assert np.all(store.book.owner(own) == number * 4 // clusters.num_clusters)
            assert np.all(store.book.type_of(own) == node_type)
    assert sorted(seen) == list(range(store.facts.num_nodes))


@pytest.mark.table(10)
def test_the_artifact_says_what_is_cut_and_how_even_partitions_are(
    tmp_path: Path, graph: dict[str, Any], partition: dict[str, Any]
) -> None:
    first, second = stores(config_of(tmp_path, graph, partition=partition))
    told = read_json(join(second.artifact, "balance.json"))
    for made, figures in ((first, told["before"]), (second, told)):
        store = store_of(made)
        book, ends = store.book, ends_of(store)
        owners = [(book.owner(dst), book.owner(src), src) for dst, src in ends]
        cut = sum(np.count_nonzero(target != source) for target, source, _ in owners)
        mirrors = {
            pair
            for target, source, src in owners
            for pair in zip(target[target != source].tolist(), src[target != source].tolist(), strict=True)
        }
        assert figures["edges_cut"] == cut
        assert figures["edge_cut"] == pytest.approx(cut / store.facts.num_edges, abs=1e-6)
        assert figures["replication"] == pytest.approx(1 + len(mirrors) / store.facts.num_nodes, abs=1e-6)
        edges = np.bincount(np.concatenate([target for target, _, _ in owners]), minlength=4)
        assert figures["balance_edges"] == pytest.approx(edges.max() / edges.mean(), abs=1e-6)
        nodes = np.array([book.size(part) for part in range(4)])
        assert figures["balance_nodes"] == pytest.approx(nodes.max() / nodes.mean(), abs=1e-6)
        of_type = store.facts.target_type
        split = [to_numpy(store.nodes(part, ["split"], node_type=of_type)["split"]) for part in range(4)]
        train = np.array([np.count_nonzero(each == 0) for each in split])
        assert figures["balance_targets"] == pytest.approx(train.max() / train.mean(), abs=1e-6)
    assert told["targets"] == train.tolist()


@pytest.mark.table(12)
def test_predictions_by_id_are_those_of_hash_partitions(
    tmp_path: Path, graph: dict[str, Any], partition: dict[str, Any]
) -> None:
    hashed = predictions(config_of(tmp_path, graph, partition={"kind": "hash"}))
    found = predictions(config_of(tmp_path, graph, partition=partition))
    assert hashed.keys() == found.keys()
    for key, score in hashed.items():
        np.testing.assert_allclose(found[key], score, atol=1e-4)


@pytest.mark.table(14)
def test_samples_are_those_of_hash_partitions(tmp_path: Path, graph: dict[str, Any], partition: dict[str, Any]) -> None:
    config = config_of(tmp_path, graph, partition=partition)
    assert selected(config) == selected(config_of(tmp_path, graph, partition={"kind": "hash"}))


@pytest.mark.table(6)
def test_other_neighbors_are_selected_in_such_partitions(tmp_path: Path, partition: dict[str, Any]) -> None:
    write_graph(tmp_path, num_nodes=90, num_edges=1200, hub=7)
    sections = {
        "neighbors": {"kind": "walks", "walks": 4, "length": 2, "top_k": 4},
        "model": {"kind": "pinsage", "dropout": 0.0},
    }
    hashed = predictions(graph_config(tmp_path, **sections, train=TRAIN, graph={"partitions": 4}))
    found = predictions(graph_config(tmp_path, **sections, train=TRAIN, graph={"partitions": 4}, partition=partition))
    assert hashed.keys() == found.keys()
    for key, score in hashed.items():
        np.testing.assert_allclose(found[key], score, atol=1e-4)


def pair_rows(store: GraphStore) -> pa.Table:
    """Return the pairs that are predicted in the order of their keys, ends as the nodes' keys."""
    parts = range(store.num_partitions)
    keys = np.concatenate([to_numpy(store.nodes(part, ["key"])["key"]) for part in parts])
    columns = ("src", "dst", "key", "split", *store.pair_columns)
    tables = [store.pairs(part, columns) for part in parts]
    for part, table in enumerate(tables):
        dst, src = (to_numpy(table[name]) for name in ("dst", "src"))
        assert np.all(store.book.owner(dst) == part)
        assert np.all(np.diff(dst * store.book.num_nodes + src) >= 0)
    table = pa.concat_tables(tables).combine_chunks()
    for number, name in enumerate(("src", "dst")):
        table = table.set_column(number, name, pa.array(keys[to_numpy(table[name])]))
    return table.sort_by("key")


@pytest.mark.table(5)
@pytest.mark.parametrize("kind", ["balanced", "metis", "louvain", "ldg", "range"])
def test_pairs_that_are_predicted_move_with_their_nodes(tmp_path: Path, kind: str) -> None:
    partition = installed({"kind": kind})
    write_groups(tmp_path)
    config = links_config(tmp_path, partition=partition, graph={"partitions": 4})
    first, second = map(store_of, stores(config))
    assert pair_rows(first).equals(pair_rows(second))
    assert pipeline.run_quietly(config).metrics["infer.parity_max_difference"] < 1e-4


@pytest.mark.table(5)
@pytest.mark.parametrize("kind", ["balanced", "metis", "louvain", "ldg", "range"])
def test_labels_of_edges_by_id_are_those_of_hash_partitions(tmp_path: Path, kind: str) -> None:
    partition = installed({"kind": kind})
    write_labelled(tmp_path)
    rows = []
    for held in ({"kind": "hash"}, partition):
        config = edges_config(tmp_path, partition=held, train={"batch_size": 5000}, flat={"shard_size": 5000})
        table = pq.read_table(pipeline.run_quietly(config).predictions)
        rows.append(table.sort_by([("src", "ascending"), ("dst", "ascending")]))
    # edges of the same ends come in any order, so each pair's rows are compared as sums
    for name in ("src", "dst"):
        assert rows[0][name].equals(rows[1][name])
    ends = [rows[0][name].to_pylist() for name in ("src", "dst")]
    _, pair = np.unique(np.array(ends), axis=1, return_inverse=True)
    first, second = (np.bincount(pair, np.stack(each["probabilities"].to_numpy())[:, 0]) for each in rows)
    np.testing.assert_allclose(first, second, atol=1e-3)


@pytest.mark.parametrize("string_ids", [False, True])
def test_ranges_follow_one_another_and_are_even(tmp_path: Path, string_ids: bool) -> None:
    write_graph(tmp_path, num_nodes=90, string_ids=string_ids)
    store = store_of(stores(graph_config(tmp_path, graph={"partitions": 4}, partition={"kind": "range"}))[1])
    ids = [store.nodes(part, ["id"])["id"].to_pylist() for part in range(4)]
    assert [*chain(*ids)] == sorted(chain(*ids))
    assert {len(each) for each in ids} == {22, 23}


def test_streaming_cuts_fewer_edges_than_hash_within_its_bound(tmp_path: Path) -> None:
    write_groups(tmp_path, num_nodes=300)
    config = graph_config(tmp_path, graph={"partitions": 3, "reverse_edges": True}, partition={"kind": "ldg"}, **LINKS)
    told = read_json(join(stores(config)[1].artifact, "balance.json"))
    assert told["edge_cut"] < 0.5 * told["before"]["edge_cut"]
    assert told["balance_nodes"] <= 1.05


def test_the_report_and_progress_say_how_good_partitions_are(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, partition={"kind": "ldg"}, train=TRAIN)
    file = tmp_path / "config.yaml"
    file.write_text(config.model_dump_json(exclude_none=True))
    shown = run_cli(["run", str(file), "--json"])
    page = Path(json.loads(shown.out)["report"]).read_text()
    said = re.search(
        r"edges between partitions [0-9.]+%, now [0-9.]+%; replication [0-9.]+, now [0-9.]+",
        " ".join(shown.err.split()),
    )
    assert said
    assert f"ldg: {said[0]}" in page


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [1, 2, 4], scope="session")
def test_worker_count_changes_no_byte(
    tmp_path: Path, partition: dict[str, Any], workers: int, cluster_of: ClusterOf
) -> None:
    write_graph(tmp_path, num_nodes=90, num_edges=1200, hub=7)
    graph = {"edge_features": ["amount", "hour"], "partitions": 4}
    configure = partial(config_of, tmp_path, graph, partition=partition)
    assert_same_on_workers(configure, tmp_path, workers, cluster_of)


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["metis", "louvain", "ldg", "range"])
@pytest.mark.parametrize("workers", [2], scope="session")
def test_killing_a_worker_while_clusters_are_planned_changes_no_byte(
    tmp_path: Path, graph: dict[str, Any], kind: str, workers: int, cluster_of: ClusterOf
) -> None:
    configure = partial(config_of, tmp_path, graph, partition=installed(PARTITIONS[kind]))
    # the other rounds are those of every kind, see test_partition.py
    watch = partial(KillAWorkerInEveryRound, only="plan")
    assert assert_same_on_workers(configure, tmp_path, workers, cluster_of, watch=watch).killed == ["plan"]


def test_keys_name_what_decides_the_partitions(tmp_path: Path, partition: dict[str, Any]) -> None:
    write_graph(tmp_path)

    def keys(**sections: Any) -> Any:
        config = graph_config(tmp_path, graph={"partitions": 4}, **{"partition": partition, **sections})
        return STAGES["partition"].keys(config)  # type: ignore[misc]

    assert keys(seed=1) != keys()
    assert keys(neighbors={"sampling": {"kind": "uniform", "fanout": [3, 2]}}) == keys()
    assert keys(model={"hidden": 8}) == keys()


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ({"kind": "metis", "clusters": 6}, "6 is not a multiple of graph.partitions, which is 4. Set it to 8"),
        ({"kind": "louvain", "clusters": 1}, "1 is not a multiple of graph.partitions, which is 4. Set it to 4"),
        ({"kind": "metis", "clusters": 0}, "partition.clusters: 0"),
        ({"kind": "metis", "imbalance": 1}, "partition.imbalance: 1"),
        ({"kind": "louvain", "resolution": 0}, "partition.resolution: 0"),
        ({"kind": "metis", "resolution": 1}, "partition.resolution"),
        ({"kind": "ldg", "passes": 0}, "partition.passes: 0"),
        ({"kind": "ldg", "even": ["weight"]}, "partition.even"),
        ({"kind": "ldg", "even": []}, "partition.even"),
        ({"kind": "ldg", "clusters": 4}, "partition.clusters"),
        ({"kind": "range", "imbalance": 1.1}, "partition.imbalance"),
    ],
)
def test_keys_that_cannot_be_are_refused(tmp_path: Path, partition: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        graph_config(tmp_path, graph={"partitions": 4}, partition=partition)


def test_clusters_want_a_number_of_partitions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which is left to the sizes of the tables"):
        graph_config(tmp_path, graph={"partitions": None}, partition={"kind": "metis", "clusters": 8})


@pytest.mark.parametrize("kind", list(PARTITIONERS))
def test_a_library_that_is_missing_is_said_before_anything_runs(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph(tmp_path)
    run = StageContext.of(graph_config(tmp_path, partition={"kind": kind})).run
    monkeypatch.setattr("gnnflow.stages.check.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=rf"{PARTITIONERS[kind]} is not installed.*'gnnflow\[{kind}\]'"):
        check_run(run)


@pytest.mark.parametrize("kind", [*PARTITIONERS, "balanced"])
def test_a_graph_that_one_process_cannot_hold_is_refused_before_anything_runs_and_after_ingest(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph(tmp_path)
    cluster = {"kind": "local", "workers": 1, "memory_limit": "1GiB"}
    context = StageContext.of(graph_config(tmp_path, partition={"kind": kind}, cluster=cluster))
    check_run(context.run)
    monkeypatch.setattr("gnnflow.stages.partition._EDGE_BYTES", 1 << 40)
    refused = rf"partition.kind.*{kind} holds the whole graph.*1.1 GB.*ldg.*raise cluster.memory_limit above"
    for _ in range(2):
        with pytest.raises(ConfigError, match=refused):
            check_run(context.run)
        make_artifact(context, "ingest")
