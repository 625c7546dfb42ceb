"""GraphFlat's shards against a plain definition: every target's k-hop neighbourhood, sampled by priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.graph.facts import FlatFacts, SelectFacts
from gnnflow.graph.hashing import hash_integers
from gnnflow.graphfeature.shards import read_shard
from gnnflow.graphflat.shard_plan import bucket_counts, plan_shards, signatures
from gnnflow.sampling import priorities
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore
from tests.small_graphs import graph_config, stored_x, write_graph

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.stages.base import ArtifactResult

SAMPLINGS = [
    {"kind": "none"},
    {"kind": "uniform", "fanout": [4, 2]},
    {"kind": "uniform", "fanout": [2, 5]},
    {"kind": "weighted", "fanout": [3, 3]},
    {"kind": "top_k", "fanout": [3, 1]},
]


def cut(folder: Path, sampling: dict[str, Any], **flat_keys: Any) -> tuple[ArtifactResult, GraphStore]:
    graph = {"edge_features": ["amount"], **flat_keys.pop("graph", {})}
    config = graph_config(
        folder,
        graph=graph,
        neighbors={"sampling": sampling, "hub_threshold": flat_keys.pop("hub_threshold", 10_000)},
        flat={"shard_size": 8, **flat_keys},
    )
    context = StageContext.of(config)
    ingested = make_artifact(context, "ingest")
    return make_artifact(context, "flat"), GraphStore.of(ingested.artifact, ingested.manifest)


def stored_edges(store: GraphStore) -> dict[str, np.ndarray]:
    table = pa.concat_tables(
        [store.edges(p, ["dst", "src", "edge_key", *store.edge_columns]) for p in range(store.num_partitions)]
    )
    columns = {name: table[name].to_numpy() for name in ("dst", "src", "edge_key", "weight")}
    return {**columns, "attributes": to_matrix(table["attributes"])}


def expected_in_edges(edges: dict[str, np.ndarray], node: int, fanout: int | None, order: np.ndarray) -> np.ndarray:
    mine = np.flatnonzero(edges["dst"] == node)
    mine = mine[np.lexsort((edges["edge_key"][mine], order[mine]))]
    return mine if fanout is None else mine[:fanout]


@pytest.mark.table(5)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: f"{s['kind']}-{s.get('fanout', '')}")
@pytest.mark.parametrize("layout", ["shared", "inline"])
def test_every_target_sees_its_sampled_neighbourhood(tmp_path: Path, sampling: dict[str, Any], layout: str) -> None:
    write_graph(tmp_path, hub=4)
    result, store = cut(tmp_path, sampling, layout=layout, hub_threshold=30)
    edges = stored_edges(store)
    kind, fanouts = sampling["kind"], sampling.get("fanout", [None, None])
    weight = edges["weight"] if kind in {"weighted", "top_k"} else None
    order = priorities(edges["edge_key"], kind=kind, seed=0, weight=weight)
    num_targets = 0
    for entry in result.facts(FlatFacts).shards:
        shard = read_shard(result.artifact, entry)
        held = shard.neighborhood
        num_targets += len(shard.targets)
        assert np.array_equal(held.node_ids[shard.rows], shard.targets)
        for target in shard.targets:
            frontier = {int(target)}
            for fanout in fanouts:
                reached = set(frontier)
                for node in frontier:
                    wanted = expected_in_edges(edges, node, fanout, order)
                    row = int(np.searchsorted(held.node_ids, node))
                    first = held.edges.offsets[row]
                    mine = slice(first, first + len(wanted))
                    assert held.edges.lengths[row] >= len(wanted)
                    assert np.array_equal(held.node_ids[held.edges.sources[mine]], edges["src"][wanted])
                    assert np.array_equal(held.edges.weight[mine], edges["weight"][wanted])
                    assert np.array_equal(held.edges.attributes[mine], edges["attributes"][wanted])
                    reached |= {int(node) for node in edges["src"][wanted]}
                frontier = reached
    assert num_targets == 45


def node_rows(store: GraphStore) -> pa.Table:
    columns = ["node", "id", "in_degree", "out_degree", "in_weight", "label", "x"]
    return pa.concat_tables([store.nodes(p, columns) for p in range(store.num_partitions)])


@pytest.mark.parametrize("layout", ["shared", "inline"])
def test_node_rows_and_labels_travel_with_the_shard(tmp_path: Path, layout: str) -> None:
    write_graph(tmp_path)
    result, store = cut(tmp_path, SAMPLINGS[1], layout=layout)
    rows = node_rows(store)
    for entry in result.facts(FlatFacts).shards:
        shard = read_shard(result.artifact, entry)
        held = shard.neighborhood
        mine = rows.take(pa.array(held.node_ids))
        assert np.array_equal(held.features.dense, stored_x(mine["x"]))
        assert np.array_equal(held.degrees.in_degree, mine["in_degree"].to_numpy())
        assert np.array_equal(held.degrees.out_degree, mine["out_degree"].to_numpy())
        assert np.array_equal(held.degrees.in_weight, mine["in_weight"].to_numpy())
        assert np.array_equal(shard.labels, rows["label"].take(pa.array(shard.targets)).to_numpy())


def test_reindexing_hubs_changes_no_byte(tmp_path: Path) -> None:
    write_graph(tmp_path, hub=4)
    selected = []
    for threshold in (30, 10**6):
        neighbors = {"sampling": SAMPLINGS[1], "hub_threshold": threshold}
        workspace = str(tmp_path / f"threshold-{threshold}")
        context = StageContext.of(graph_config(tmp_path, workspace=workspace, neighbors=neighbors))
        make_artifact(context, "ingest")
        selected.append(make_artifact(context, "select"))
    split, whole = selected
    assert split.facts(SelectFacts).num_hubs == 1
    assert whole.facts(SelectFacts).num_hubs == 0
    assert split.digest == whole.digest


def sampled_pairs(folder: Path, partitions: int) -> list[tuple[int, int]]:
    result, store = cut(folder, SAMPLINGS[1], layout="shared", graph={"partitions": partitions})
    ids = node_rows(store)["id"].to_numpy()
    pairs: set[tuple[int, int]] = set()
    for entry in result.facts(FlatFacts).shards:
        held = read_shard(result.artifact, entry).neighborhood
        dst = np.repeat(held.node_ids, held.edges.lengths)
        pairs |= set(zip(ids[dst].tolist(), ids[held.node_ids[held.edges.sources]].tolist(), strict=True))
    return sorted(pairs)


def test_the_sample_ignores_partition_count(tmp_path: Path) -> None:
    write_graph(tmp_path)
    assert sampled_pairs(tmp_path, 1) == sampled_pairs(tmp_path, 5)


def test_shards_are_of_equal_size_even_around_one_hub() -> None:
    nodes = np.arange(20_000)
    star = signatures(nodes, np.arange(len(nodes) + 1), np.zeros(len(nodes), np.int64))
    split = np.zeros(len(nodes), np.int8)
    plan = plan_shards([bucket_counts(star, split)], 1000)
    sizes = np.bincount(plan.shard_of(nodes, star, split))
    assert len(sizes) == 20
    assert sizes.max() < 1200


def test_targets_with_common_neighbours_share_shards() -> None:
    nodes = np.arange(10_000)
    community = nodes % 100
    neighbours = (10**6 + community[:, None] * 20 + np.arange(20)).ravel()
    signed = signatures(nodes, np.arange(0, len(neighbours) + 1, 20), neighbours)
    split = np.zeros(len(nodes), np.int8)
    shard = plan_shards([bucket_counts(signed, split)], 1000).shard_of(nodes, signed, split)
    shards_per_community = [len(np.unique(shard[community == c])) for c in range(100)]
    # A node may be its own signature, with the probability of being the smallest of 21.
    assert np.mean(shards_per_community) < 5
    assert np.mean([np.bincount(shard[community == c]).max() for c in range(100)]) > 90


def test_signatures_hash_the_node_and_its_neighbours() -> None:
    signed = signatures(np.array([5, 9]), np.array([0, 2, 2]), np.array([1, 2]))
    assert signed[0] == min(hash_integers(np.array([5, 1, 2])))
    assert signed[1] == hash_integers(np.array([9]))[0]


def test_blow_up_counts_the_files(tmp_path: Path) -> None:
    write_graph(tmp_path)
    result, store = cut(tmp_path, SAMPLINGS[1])
    blow_up = result.facts(FlatFacts).blow_up
    assert blow_up.bytes_out == sum(entry.size for entry in result.manifest.files)
    assert blow_up.bytes_in == store.num_bytes
    assert blow_up.bytes_per_target == pytest.approx(blow_up.bytes_out / 45)
