"""GraphFlat of typed graphs against a plain definition: each target's k-hop neighbourhood over all relations."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from gnnflow.graph.batch import TypedFeatures
from gnnflow.graph.facts import BlowUp, FeatureFacts, FlatFacts
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.shards import read_shard
from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds
from gnnflow.graphflat.shard_plan import bounded_shard_size
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.selected import Neighbors
from gnnflow.sampling import priorities
from gnnflow.storage.columns import to_matrix, to_numpy
from tests.fanouts import sampling_of
from tests.graphfeature.random_graphs import assert_same
from tests.neighbors.test_typed import selected
from tests.typed_stores import BIPARTITE, KNOWN, PAYMENTS, WIDTH, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.graph.facts import Layout, ShardEntry
    from gnnflow.graph.sampling import Fanout
    from gnnflow.graphfeature.shards import Shard
    from gnnflow.storage.graph_store import GraphStore

SAMPLINGS: list[tuple[Any, tuple[Fanout, ...] | None]] = [
    ("none", None),
    ("uniform", (3, 2)),
    ("uniform", (2, 4)),
    ("weighted", (2, 2)),
    ("top_k", (3, 1)),
]
BY_RELATION = ("uniform", ((2, 1, 3, 1, 2), (1, 2, 1, 4, 2)))
"""Fan-outs of each relation of the payments graph."""


def cut(neighbors: Neighbors, folder: Path, *, layout: Layout = "shared", targets: Any = None) -> list[Shard]:
    job = FlatJob(str(folder / layout), neighbors, 2, layout, targets)
    result = run_rounds(job, RoundRunner(str(folder / f"work-{layout}"), Synchronous()), shard_size=6)
    return [read_shard(job.artifact, entry) for entry in result.facts.shards]


Lists = dict[tuple[int, int], list[tuple[int, float, tuple[float, ...]]]]


def in_edges(store: GraphStore, kind: Any) -> Lists:
    """The definition: per (relation, node) the (source, weight, attributes) of its in-edges in priority order."""
    lists: Lists = defaultdict(list)
    width = store.facts.attribute_width
    for relation in range(store.schema.num_relations):
        columns = store.edge_columns_of(relation)
        for partition in range(store.num_partitions):
            table = store.edges(partition, ["dst", "src", "edge_key", *columns], relation=relation)
            weight = to_numpy(table["weight"]) if "weight" in columns else np.ones(table.num_rows, np.float32)
            wide = np.zeros((table.num_rows, width), np.float32)
            if "attributes" in columns:
                own = to_matrix(table["attributes"])
                wide[:, : own.shape[1]] = own
            weighed = weight if kind in {"weighted", "top_k"} else None
            order = priorities(to_numpy(table["edge_key"]), kind=kind, seed=5, weight=weighed)
            for edge in np.lexsort((to_numpy(table["edge_key"]), order) if kind != "none" else (order,)):
                row = table.slice(edge, 1).to_pylist()[0]
                lists[relation, row["dst"]].append((row["src"], float(weight[edge]), tuple(wide[edge].tolist())))
    return lists


def reached_from(targets: np.ndarray, lists: Lists, fanouts: Any, num_relations: int) -> tuple[dict, set[int]]:
    """The definition: how many in-edges of each (relation, node) the targets need, and the nodes they reach."""
    taken: dict[tuple[int, int], int] = defaultdict(int)
    everything: set[int] = set()
    for target in targets.tolist():
        nodes = {target}
        for fanout in fanouts:
            for node in list(nodes):
                for relation in range(num_relations):
                    limit = fanout[relation] if isinstance(fanout, tuple) else fanout
                    followed = lists[relation, node][:limit]
                    taken[relation, node] = max(taken[relation, node], len(followed))
                    nodes |= {source for source, *_ in followed}
        everything |= nodes
    return taken, everything


@pytest.mark.table(10)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    ("schema", "kind", "fanouts"),
    [
        *((PAYMENTS, *each) for each in [*SAMPLINGS, BY_RELATION]),
        *((schema, *each) for schema in (BIPARTITE, KNOWN) for each in SAMPLINGS[:2]),
    ],
)
def test_a_shard_holds_what_its_targets_reach(
    tmp_path: Path, schema: Any, kind: Any, fanouts: Any, partitions: int
) -> None:
    store = write_store(tmp_path / "store", random_tables(schema, partitions, hub=3), partitions=partitions)
    neighbors = selected(store, tmp_path, kind, fanouts)
    lists = in_edges(store, kind)
    num_targets = 0
    for shard in cut(neighbors, tmp_path):
        held = shard.neighborhood
        num_targets += len(shard.targets)
        taken, nodes = reached_from(shard.targets, lists, fanouts or (None, None), schema.num_relations)
        assert held.node_ids.tolist() == sorted(nodes)
        for relation in range(schema.num_relations):
            edges = held.edges.relation(relation)
            for row, node in enumerate(held.node_ids.tolist()):
                own = slice(*edges.offsets[row : row + 2])
                wanted = lists[relation, node][: taken[relation, node]]
                assert held.node_ids[edges.sources[own]].tolist() == [source for source, *_ in wanted]
                if edges.weight is not None:
                    assert edges.weight[own].tolist() == [weight for _, weight, _ in wanted]
                if edges.attributes is not None:
                    assert edges.attributes[own].tolist() == [list(each) for *_, each in wanted]
        batch = build_minibatch(held, shard.rows, sampling=sampling_of(fanouts, kind), num_layers=2)
        assert batch.blocks[0].edges.num_relations == schema.num_relations
    assert num_targets == sum(
        int(np.sum(to_numpy(store.nodes(p, ["labelled"], node_type=schema.types.index("account"))["labelled"])))
        for p in range(partitions)
    )


@pytest.mark.table(4)
@pytest.mark.parametrize(("kind", "fanouts"), [*SAMPLINGS, BY_RELATION])
def test_shared_and_inline_shards_are_read_alike(tmp_path: Path, kind: Any, fanouts: Any) -> None:
    store = write_store(tmp_path / "store", random_tables(PAYMENTS, 2, hub=0), partitions=2)
    neighbors = selected(store, tmp_path, kind, fanouts)
    shared, inline = (cut(neighbors, tmp_path, layout=layout) for layout in ("shared", "inline"))
    assert len(shared) == len(inline) > 3
    for ours, theirs in zip(shared, inline, strict=True):
        assert_same(ours.neighborhood.node_ids[ours.rows], theirs.neighborhood.node_ids[theirs.rows])
        for shard in (ours, theirs):
            assert_same(shard.neighborhood.node_ids[shard.rows], shard.targets)
        assert_same(ours.neighborhood.edges, theirs.neighborhood.edges)
        assert_same(ours.neighborhood.features, theirs.neighborhood.features)
        assert_same(ours.neighborhood.degrees, theirs.neighborhood.degrees)


def test_rows_of_every_type_travel_with_the_shard(tmp_path: Path) -> None:
    tables = random_tables(PAYMENTS, 3)
    store = write_store(tmp_path / "store", tables, partitions=3)
    parts = [[store.nodes(p, ["id", "node"], node_type=t) for p in range(3)] for t in range(3)]
    id_of = {
        node: (t, row)
        for t, own in enumerate(parts)
        for table in own
        for row, node in zip(
            [tables.ids[t].tolist().index(each) for each in table["id"].to_pylist()],
            table["node"].to_pylist(),
            strict=True,
        )
    }
    degrees = [store.degrees(p) for p in range(3)]
    for shard in cut(Neighbors(store), tmp_path):
        held = shard.neighborhood
        assert isinstance(held.features, TypedFeatures)
        assert held.features.types.tolist() == [id_of[node][0] for node in held.node_ids.tolist()]
        assert_same(held.features.types, store.book.type_of(held.node_ids))
        assert_same(held.degrees.types, held.features.types)
        dense, sparse, none = held.features.parts
        rows = [[id_of[node][1] for node in held.node_ids.tolist() if id_of[node][0] == t] for t in range(3)]
        assert dense is not None
        assert sparse is not None
        assert none is None
        assert_same(np.asarray(dense.dense), tables.features[0]["x"][rows[0]])
        assert dense.width == WIDTH
        offsets, index = tables.features[1]["offsets"], tables.features[1]["x_index"]
        assert sparse.index is not None
        assert sparse.index.tolist() == [each for row in rows[1] for each in index[offsets[row] : offsets[row + 1]]]
        in_degree = np.concatenate([each.in_degree for each in degrees])[held.node_ids]
        assert_same(held.degrees.in_degree, in_degree)
        assert_same(held.degrees.in_weight, np.concatenate([each.in_weight for each in degrees])[held.node_ids])
        assert held.degrees.in_degree.any(0).all()
        assert shard.labels is not None
        assert shard.labels.tolist() == [int(tables.ids[0][id_of[node][1]]) % 2 for node in shard.targets.tolist()]


@pytest.mark.parametrize("targets", ["all", "some"])
def test_targets_are_nodes_of_the_target_type(tmp_path: Path, targets: str) -> None:
    store = write_store(tmp_path / "store", random_tables(PAYMENTS, 4), partitions=3)
    accounts = np.flatnonzero(store.book.type_of(np.arange(store.facts.num_nodes)) == 0)
    wanted = accounts if targets == "all" else accounts[::4]
    asked: Any = "all" if targets == "all" else np.append(wanted, store.facts.num_nodes - 1)
    shards = cut(Neighbors(store), tmp_path, targets=asked)
    assert sorted(node for shard in shards for node in shard.targets.tolist()) == wanted.tolist()


def entries_of(folder: Path, neighbors: Neighbors) -> tuple[list[str], tuple[ShardEntry, ...]]:
    job = FlatJob(str(folder / "shards"), neighbors, 2, "shared", None)
    result = run_rounds(job, RoundRunner(str(folder / "work"), Synchronous()), shard_size=6)
    return [entry.sha256 for entry in result.files], result.facts.shards


@pytest.mark.parametrize("fanouts", [None, (3, 2), BY_RELATION[1]])
def test_fan_outs_of_each_relation_come_back_from_a_manifest(fanouts: Any) -> None:
    facts = FlatFacts("shared", 2, fanouts, 0, BlowUp(1, 1, 1.0, 1.0), ())
    assert TypeAdapter(FlatFacts).validate_python(json.loads(json.dumps(asdict(facts)))) == facts


def test_shards_are_bounded_by_the_rows_of_the_types_they_reach(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", random_tables(PAYMENTS, 1), partitions=1)
    account, device, merchant = store.facts.types
    wide = replace(merchant, features=FeatureFacts("dense", 10**8, has_value=False))
    facts = replace(store.facts, types=(account, device, wide))
    assert bounded_shard_size(store.facts, (None, None), shard_size=1000) == 1000
    assert bounded_shard_size(facts, (None, None), shard_size=1000) < 10
    # only the last relation leads from merchants to accounts
    assert bounded_shard_size(facts, ((2, 2, 2, 2, 2),), shard_size=1000) < 10
    assert bounded_shard_size(facts, ((2, 2, 2, 2, 0),), shard_size=1000) == 1000


def test_hubs_change_no_byte_of_a_shard(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", random_tables(PAYMENTS, 6, hub=1), partitions=3)
    kind, fanouts = BY_RELATION
    split, whole = (
        entries_of(tmp_path / str(threshold), selected(store, tmp_path / str(threshold), kind, fanouts, threshold))
        for threshold in (1, 10**6)
    )
    assert split == whole
