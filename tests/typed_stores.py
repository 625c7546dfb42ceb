"""Small random typed graphs as graph stores, written by the format's definition and not by ingest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.facts import FeatureFacts, GraphFacts, RelationFacts, TypeFacts
from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.sampling import edge_keys
from gnnflow.storage.columns import from_matrix, from_ragged, from_rows
from gnnflow.storage.graph_store import GraphStore, edges_file, nodes_file

if TYPE_CHECKING:
    from pathlib import Path

PAYMENTS = GraphSchema.of(
    ["account", "device", "merchant"],
    [
        Relation("account", "uses", "device"),
        Relation("device", "rev_uses", "account"),
        Relation("account", "pays", "merchant"),
        Relation("merchant", "rev_pays", "account"),
        Relation("account", "knows", "account"),
    ],
)
BIPARTITE = GraphSchema.of(["account", "merchant"], [Relation("merchant", "rev_pays", "account")])
KNOWN = GraphSchema.of(["account"], [Relation("account", "knows", "account"), Relation("account", "pays", "account")])
WIDTH = 3


@dataclass(frozen=True)
class TypedTables:
    """Nodes by type as ids, edges by relation as numbers of nodes of both ends; `account` is labelled.

    The first type has dense features, the second sparse ones, the others none. Even relations have weights, relation r
    has r % 3 attributes.
    """

    schema: GraphSchema
    ids: tuple[np.ndarray, ...]
    ends: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray | None, ...]
    attributes: tuple[np.ndarray | None, ...]
    seed: int

    @property
    def target(self) -> int:
        """The number of the type that is labelled."""
        return self.schema.types.index("account")

    @cached_property
    def features(self) -> tuple[dict[str, Any], ...]:
        """The feature columns of each type."""
        rng, columns = np.random.default_rng(self.seed), []
        for number, ids in enumerate(self.ids):
            lengths = rng.integers(0, 3, len(ids))
            dense = {"x": rng.random((len(ids), WIDTH), np.float32)}
            sparse = {"offsets": offsets_of(lengths), "x_index": rng.integers(0, 9, lengths.sum()).astype(np.int32)}
            columns.append(dense if number == 0 else sparse if number == 1 else {})
        return tuple(columns)


def random_tables(schema: GraphSchema, seed: int, *, hub: int | None = None) -> TypedTables:
    """Return a random graph: parallel edges, lone nodes and the same ids in several types occur.

    hub: the node of each type that receives a third of the edges of every relation to it.
    """
    rng = np.random.default_rng(seed)
    ids = tuple(rng.permutation(40)[: 30 - 8 * number] * 3 + 1 for number in range(schema.num_types))
    ends, weights, attributes = [], [], []
    for number, (source, target) in enumerate(zip(schema.source_types, schema.target_types, strict=True)):
        num_edges = 60 + 30 * number
        pair = np.stack([rng.integers(0, len(ids[source]), num_edges), rng.integers(0, len(ids[target]), num_edges)])
        if hub is not None:
            pair[1, : num_edges // 3] = hub
        ends.append(pair)
        weights.append(None if number % 2 else rng.random(num_edges, np.float32) + np.float32(0.1))
        attributes.append(rng.random((num_edges, number % 3), np.float32) if number % 3 else None)
    return TypedTables(schema, ids, tuple(ends), tuple(weights), tuple(attributes), seed)


def write_store(folder: Path, tables: TypedTables, *, partitions: int) -> GraphStore:
    """Write a graph store's files and return the store."""
    folder.mkdir(parents=True)
    schema = tables.schema
    homes = [(hash_integers(ids) % np.uint64(partitions)).astype(np.int64) for ids in tables.ids]
    sizes = np.stack([np.bincount(home, minlength=partitions) for home in homes], axis=1)
    offsets = offsets_of(sizes.ravel())
    # dense id of each node of each type
    dense = []
    for number, (ids, home) in enumerate(zip(tables.ids, homes, strict=True)):
        order = np.lexsort((ids, home))
        starts = np.repeat(offsets[:-1].reshape(partitions, -1)[:, number], sizes[:, number])
        places = np.arange(len(ids)) - np.repeat(np.cumsum(sizes[:, number]) - sizes[:, number], sizes[:, number])
        own = np.empty(len(ids), np.int64)
        own[order] = starts + places
        dense.append(own)
    for number, home in enumerate(homes):
        columns = _node_columns(tables, number, dense[number])
        for partition in range(partitions):
            rows = np.flatnonzero(home == partition)
            rows = rows[np.argsort(dense[number][rows])]
            name = nodes_file(partition, schema, node_type=number)
            pq.write_table(columns.take(pa.array(rows)), folder / name)
    for number, (source, target) in enumerate(zip(schema.source_types, schema.target_types, strict=True)):
        table = _edge_table(tables, number, dense[source], dense[target])
        home = homes[target][np.argsort(dense[target])]
        where = home[np.searchsorted(np.sort(dense[target]), table["dst"].to_numpy())]
        for partition in range(partitions):
            own = table.filter(pa.array(where == partition))
            pq.write_table(own, folder / edges_file(partition, schema, relation=number), row_group_size=7)
    return GraphStore(str(folder), _facts(tables, offsets), 1)


def _node_columns(tables: TypedTables, number: int, dense: np.ndarray) -> pa.Table:
    ids, schema, features = tables.ids[number], tables.schema, tables.features[number]
    count = len(ids)
    degrees = {name: np.zeros((count, schema.num_relations), np.int64) for name in ("in_degree", "out_degree")}
    in_weight = np.zeros((count, schema.num_relations), np.float32)
    for relation, (source, target) in enumerate(zip(schema.source_types, schema.target_types, strict=True)):
        starts, ends = tables.ends[relation]
        if source == number:
            degrees["out_degree"][:, relation] = np.bincount(starts, minlength=count)
        if target == number:
            degrees["in_degree"][:, relation] = np.bincount(ends, minlength=count)
            in_weight[:, relation] = np.bincount(ends, tables.weights[relation], minlength=count)
    columns: dict[str, Any] = {"id": ids, "node": dense, "key": hash_integers(ids)}
    if "x" in features:
        columns["x"] = from_rows(features["x"].view(np.uint8))
    elif features:
        columns["x_index"] = from_ragged(features["offsets"], features["x_index"])
    columns |= {name: from_matrix(values) for name, values in {**degrees, "in_weight": in_weight}.items()}
    if number == tables.target:
        split = (ids % 4 - 1).astype(np.int8)
        columns |= {"label": ids % 2, "split": split, "labelled": split >= 0}
    return pa.table(columns)


def _edge_table(tables: TypedTables, relation: int, starts: np.ndarray, ends: np.ndarray) -> pa.Table:
    """Return all edges of a relation, sorted by (dst, src, occurrence)."""
    schema = tables.schema
    rows = tables.ends[relation]
    source_ids = tables.ids[schema.source_types[relation]][rows[0]]
    target_ids = tables.ids[schema.target_types[relation]][rows[1]]
    src, dst = starts[rows[0]], ends[rows[1]]
    order = np.lexsort((src, dst))
    same = (dst[order][1:] == dst[order][:-1]) & (src[order][1:] == src[order][:-1])
    number = np.arange(len(order))
    occurrence = number - np.maximum.accumulate(np.where(np.append([False], same), 0, number))
    keys = edge_keys(hash_integers(target_ids[order]), hash_integers(source_ids[order]), occurrence)
    word = seed_word(str(schema.relations[relation]))
    columns: dict[str, Any] = {"dst": dst[order], "src": src[order], "edge_key": combine(keys, word)}
    weight, attributes = tables.weights[relation], tables.attributes[relation]
    if weight is not None:
        columns["weight"] = weight[order]
    if attributes is not None:
        columns["attributes"] = from_matrix(attributes[order])
    return pa.table(columns)


def _facts(tables: TypedTables, offsets: np.ndarray) -> GraphFacts:
    schema = tables.schema
    kinds = [FeatureFacts("dense", WIDTH, has_value=False), FeatureFacts("sparse", 9, has_value=False), None]
    widths = [0 if each is None else each.shape[1] for each in tables.attributes]
    num_edges = [each.shape[1] for each in tables.ends]
    facts = zip(schema.relations, num_edges, widths, tables.weights, strict=True)
    features = kinds[tables.target]
    assert features is not None
    return GraphFacts(
        num_nodes=int(offsets[-1]),
        num_edges=sum(num_edges),
        offsets=tuple(offsets.tolist()),
        id_type="int64",
        features=features,
        attribute_width=max(widths),
        has_weight=any(each is not None for each in tables.weights),
        label_kind="single",
        num_classes=2,
        class_names=("0", "1"),
        labelled=0,
        splits={},
        degree_bins=(),
        max_in_degree=0,
        tables={},
        types=tuple(
            TypeFacts(name, len(ids), kind) for name, ids, kind in zip(schema.types, tables.ids, kinds, strict=False)
        ),
        relations=tuple(
            RelationFacts(str(each), count, width, weight is not None, (), 0) for each, count, width, weight in facts
        ),
        target="account",
    )
