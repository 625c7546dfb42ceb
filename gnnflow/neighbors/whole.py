"""The whole graph in memory as one neighbourhood: the in-edges that a run aggregates over, node rows and targets.

Rows are dense ids, so that batches are cut from it as from a shard (`graphfeature.blocks`, `graphfeature.clusters`).
All arrays are read-only: batches share them, and each numbers its rows anew (GraphTheta, 2022, calls this a GraphView).

A uniform or weighted sample can be drawn again for another view, such as an epoch: the first edges of each node by
`hash(seed, view, edge)`. View 0 is the sample that stage `select` keeps.

Shapes: N nodes, E edges, T targets of a split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features, NodeFeatures, TypedFeatures
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.neighborhood import Neighborhood, join_degrees, join_edges, join_features
from gnnflow.graphfeature.shards import labels_of
from gnnflow.neighbors.selected import Neighbors
from gnnflow.sampling import arrivals, priorities, top_k
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.graph_store import features_of

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray, KeyArray
    from gnnflow.graph.facts import FeatureFacts, GraphFacts
    from gnnflow.storage.graph_store import GraphStore

_MOST_NODES = 2**31 - 1
_JOINED = 2  # what is read by partition and then joined is in memory twice for a moment
_ROOM = 4 / 3  # a quarter of a worker's memory is for libraries and batches


@dataclass(frozen=True)
class SplitTargets:
    """The targets of a split: their dense ids [T], ascending, and their labels; None where the graph has none."""

    nodes: IntArray
    labels: Array | None


@dataclass(frozen=True)
class GraphInMemory:
    """A graph store in memory. neighborhood: all nodes, with dense id i in row i; its roots are the targets.

    splits: those that have targets. keys [E] on request: of each edge, which decide its priority.
    """

    neighborhood: Neighborhood
    splits: dict[str, SplitTargets]
    keys: KeyArray | None = None


def read_graph(neighbors: Neighbors, *, with_keys: bool = False) -> GraphInMemory:
    """Return the graph of a selection of neighbours. with_keys: with all edges, to draw samples from."""
    store = neighbors.store
    num_nodes, every = store.book.num_nodes, range(store.num_partitions)
    if num_nodes > _MOST_NODES:
        raise ConfigError(
            f"a graph in memory has at most {_MOST_NODES:,} nodes, and this one has {num_nodes:,}",
            where="train.source",
            fix="Set it to shards.",
        )
    edges = join_edges([_edges(Neighbors(store) if with_keys else neighbors, part) for part in every], [0] * len(every))
    degrees = join_degrees([store.degrees(part) for part in every])
    features = _features(neighbors, degrees)  # last, since they are filled in place and most are large
    whole = Neighborhood(np.zeros(0, np.int64), np.arange(num_nodes), degrees, features, edges)
    splits = _splits(neighbors)
    keys = read_keys(neighbors, every) if with_keys else None
    # batches share these arrays, so nothing may change them
    for array in _arrays_of(whole):
        array.setflags(write=False)
    return GraphInMemory(whole, splits, keys)


def view_of(graph: GraphInMemory, neighbors: Neighbors, *, seed: int, view: int) -> GraphInMemory:
    """Return the graph with a sample of its edges, drawn for a view. graph: with keys; neighbors: give the fan-outs."""
    assert graph.keys is not None
    drawn = draw_edges(graph.neighborhood.edges, graph.keys, neighbors, seed=seed, view=view)
    return replace(graph, neighborhood=replace(graph.neighborhood, edges=drawn), keys=None)


def draw_edges(edges: InEdges, keys: KeyArray, neighbors: Neighbors, *, seed: int, view: int) -> InEdges:
    """Return a sample of the in-edges of some nodes, drawn for a view. keys [E]: of the edges."""
    most = neighbors.sampling.most
    assert most is not None
    kept = (most,) * edges.num_relations if isinstance(most, int) else most
    # the first edge of each relation [R]
    starts = edges.offsets[:: max(edges.num_targets, 1)]
    drawn = []
    for number, limit in enumerate(kept):
        # keys of this relation's edges
        own = keys[starts[number] : starts[number + 1]]
        drawn.append(_sample(edges.relation(number), own, neighbors, limit=limit, seed=seed, view=view))
    return join_relations(drawn)


def memory_needed(neighbors: Neighbors, *, with_keys: bool = False) -> int:
    """Return about the number of bytes that a process needs to read the graph and train from it."""
    return int(_ROOM * peak_of_reading(neighbors, with_keys=with_keys))


def peak_of_reading(neighbors: Neighbors, *, with_keys: bool = False) -> int:
    """Return about the most bytes that are in memory while the graph is read, or drawn anew.

    The size of sparse features is unknown; they count as the whole store's bytes.
    """
    facts, store = neighbors.store.facts, neighbors.store
    counts = [each.num_nodes for each in facts.types] or [facts.num_nodes]
    kinds = list(zip(facts.features_of_types, counts, strict=True))
    dense = sum(kind.row_bytes * count for kind, count in kinds if kind is not None and kind.kind == "dense")
    sparse = sum(store.num_bytes for kind, _ in kinds if kind is not None and kind.kind == "sparse")
    # dense id, and in each relation in-degree, out-degree, in-weight and an offset
    nodes = facts.num_nodes * (8 + facts.schema.num_relations * (8 + 8 + 4 + 8))
    edges = _most_edges(neighbors, with_keys=with_keys) * _bytes_of_edge(neighbors, with_keys=with_keys)
    held = nodes + edges + _bytes_of_pairs(facts)
    filled = held + dense + _JOINED * (dense // store.num_partitions + sparse)
    # the parts, perhaps their relations, and all of them; where samples are drawn anew, one sample too
    joined = _JOINED + (facts.schema.num_relations > 1) + with_keys
    return max(joined * held, filled + with_keys * held)


def _bytes_of_pairs(facts: GraphFacts) -> int:
    if facts.targets == "nodes":
        return 0
    # dense ids of both ends, key, split, partition and label, time
    return sum(facts.splits.values()) * (6 * 8 + 4 * facts.pair_attribute_width + 8 * facts.has_time)


def _bytes_of_edge(neighbors: Neighbors, *, with_keys: bool) -> int:
    facts = neighbors.store.facts
    leaves, is_weighted = max(facts.leaves_of_relations), neighbors.sampling.kind == "weighted"
    # a source, or leaves and where they begin; weight, attributes, time, and a key or the next arrival
    source = 4 * leaves + 8 if leaves else 4
    ordered = 8 * (with_keys or is_weighted)
    return source + 4 * facts.has_weight + 4 * facts.attribute_width + 8 * facts.has_time + ordered


def _most_edges(neighbors: Neighbors, *, with_keys: bool) -> int:
    facts = neighbors.store.facts
    most = neighbors.sampling.most
    if with_keys or most is None or not neighbors.artifact:
        return facts.num_edges
    per_node = most * facts.schema.num_relations if isinstance(most, int) else sum(most)
    return min(facts.num_edges, facts.num_nodes * per_node)


def _edges(neighbors: Neighbors, part: int) -> InEdges:
    """Return all in-edges of a partition's nodes."""
    edges = neighbors.in_edges(part)
    return replace(edges, sources=edges.sources.astype(np.int32))


def _features(neighbors: Neighbors, degrees: Degrees) -> NodeFeatures:
    """Return the features of all nodes. degrees: of all nodes."""
    kinds = neighbors.store.facts.features_of_types
    parts = [None if kind is None else _of_type(neighbors.store, number, kind) for number, kind in enumerate(kinds)]
    if degrees.types is not None:
        return TypedFeatures(degrees.types, tuple(parts))
    (features,) = parts
    assert features is not None
    return features


def _of_type(store: GraphStore, node_type: int, kind: FeatureFacts) -> Features:
    """Return the features of a type's nodes; dense ones are in memory once and one partition's a second time."""
    columns = store.feature_columns_of(node_type)
    parts = (features_of(store.nodes(part, columns, node_type=node_type), kind) for part in range(store.num_partitions))
    if kind.kind == "sparse":
        return join_features([*parts])
    count = store.facts.types[node_type].num_nodes if store.facts.types else store.facts.num_nodes
    dense, begin = np.empty((count, 0)), 0
    for part in parts:
        rows = part.stored
        dense = dense if begin else np.empty((count, rows.shape[1]), rows.dtype)
        dense[begin : begin + len(rows)] = rows
        begin += len(rows)
        pa.default_memory_pool().release_unused()  # what reading took
    return Features(kind.width, dense=dense, narrow=kind.narrow)


def _splits(neighbors: Neighbors) -> dict[str, SplitTargets]:
    """Return the labelled nodes of each split, in dense id order; none where targets are pairs."""
    store = neighbors.store
    if store.facts.targets == "edges":
        return {}
    facts, has_labels = store.facts, LABEL_KINDS[store.facts.label_kind].has_labels
    found: dict[str, list[tuple[IntArray, Any]]] = {split: [] for split in SPLITS}
    for number in range(store.num_partitions):
        columns = ["node", "split", "labelled", *(["label"] if has_labels else [])]
        table = store.nodes(number, columns, node_type=facts.target_type)
        # the split of each labelled node, -1 for others [n]
        code = np.where(to_numpy(table["labelled"]), to_numpy(table["split"]), -1)
        for place, split in enumerate(SPLITS):
            rows = take_rows(table, np.flatnonzero(code == place))
            found[split].append((to_numpy(rows["node"]), labels_of(rows["label"]) if has_labels else None))
    held = dict[str, SplitTargets]()
    for split, pieces in found.items():
        nodes = np.concatenate([piece for piece, _ in pieces])
        labels = np.concatenate([of for _, of in pieces]) if has_labels else None
        held |= {split: SplitTargets(nodes, labels)} if len(nodes) else {}
    return held


def read_keys(neighbors: Neighbors, partitions: Sequence[int]) -> KeyArray:
    """Return the keys of some partitions' edges [E], relation by relation, in dense id order of their targets."""
    store = neighbors.store
    relations = range(store.schema.num_relations)
    tables = (store.edges(part, ["edge_key"], relation=number) for number in relations for part in partitions)
    return np.concatenate([to_numpy(table["edge_key"]) for table in tables])


def _sample(edges: InEdges, keys: KeyArray, neighbors: Neighbors, *, limit: int, seed: int, view: int) -> InEdges:
    """Return the first in-edges of each node in one relation, as stage `select` keeps them where view is 0."""
    weighted = neighbors.sampling.kind == "weighted"
    weight = edges.weight if weighted else None
    if weighted and weight is None and neighbors.store.facts.has_weight:
        weight = np.ones(edges.num_edges, np.float32)
    priority = priorities(keys, kind=neighbors.sampling.kind, seed=seed, weight=weight, view=view)
    if not weighted:
        chosen = top_k(edges.offsets, priority, tie=keys, limit=limit)
        return edges.take(chosen.edges, offsets=chosen.offsets)
    # one edge more than is kept gives the arrival of the first that was left out
    carried = top_k(edges.offsets, priority, tie=keys, limit=limit + 1)
    # arrival of each carried edge, and of the next one of its node, infinity after a node's last
    arrival = arrivals(priority[carried.edges])
    following = np.full(len(arrival), np.inf)
    following[:-1] = arrival[1:]
    lengths = np.diff(carried.offsets)
    following[carried.offsets[1:][lengths > 0] - 1] = np.inf
    # of the carried edges, the first `limit` of each node
    picked = InEdges(carried.offsets, carried.edges).prefix(np.arange(len(lengths)), limit=limit).positions
    kept = edges.take(carried.edges[picked], offsets=offsets_of(np.minimum(lengths, limit)))
    return replace(kept, next_arrival=following[picked])


def _arrays_of(whole: Neighborhood) -> Iterator[Array]:
    """Yield the arrays that batches are cut from."""
    features = whole.features.parts if isinstance(whole.features, TypedFeatures) else (whole.features,)
    for each in (whole, whole.degrees, whole.edges, *(part for part in features if part is not None)):
        yield from (array for array in vars(each).values() if isinstance(array, np.ndarray))
