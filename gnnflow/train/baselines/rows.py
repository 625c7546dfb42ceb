"""Draws labelled nodes of a store and reads their columns, one partition at a time.

Rows are those with the smallest hashes of seed and id, so they do not depend on partitions or on the order of tables.

Shapes: N drawn nodes, F columns, E edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import TypedFeatures
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import labels_of
from gnnflow.sampling import priorities, top_k_ungrouped
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.graph_store import read_features

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.batch import Features
    from gnnflow.storage.graph_store import GraphStore

MOST_ROWS = 50_000  # of a split
MOST_VALUES = 10_000_000  # rows times columns of a split: 40 MB in float32, 80 MB where scikit-learn reads them
MOST_NEIGHBORS = 50  # in-edges of a node and relation that are averaged
_GATHERED = 4_000_000  # values of neighbours' columns in memory at once


@dataclass(frozen=True)
class DrawnRows:
    """Labelled nodes of one split: dense ids [N], ascending, and their labels."""

    nodes: IntArray
    labels: Array


def draw_rows(store: GraphStore, split: str, *, most: int, seed: int) -> DrawnRows:
    """Return up to `most` labelled target nodes of a split."""
    facts, word = store.facts, seed_word("baseline rows", seed)
    keys, nodes, labels = np.zeros(0, np.uint64), np.zeros(0, np.int64), None
    for partition in range(store.num_partitions):
        table = store.nodes(partition, ["node", "key", "split", "labelled", "label"], node_type=facts.target_type)
        is_of_split = to_numpy(table["split"]) == SPLITS.index(split)
        # rows of the split in this partition, then the first `most` of these and of earlier ones by their hashes
        own = np.flatnonzero(is_of_split & to_numpy(table["labelled"]))
        held = labels_of(table["label"])[own]
        keys = np.concatenate([keys, combine(to_numpy(table["key"])[own], word)])
        nodes = np.concatenate([nodes, to_numpy(table["node"])[own].astype(np.int64)])
        labels = held if labels is None else np.concatenate([labels, held])
        kept = np.argsort(keys, kind="stable")[:most]
        keys, nodes, labels = keys[kept], nodes[kept], labels[kept]
    assert labels is not None, "a store has partitions"
    order = np.argsort(nodes)
    return DrawnRows(nodes[order], labels[order])


def most_rows(num_columns: int) -> int:
    """Return the most rows of a split; fewer where there are many columns."""
    return min(MOST_ROWS, MOST_VALUES // max(num_columns, 1))


def own_width(store: GraphStore) -> int:
    """Return the number of columns of a target node; 0 where its type has no features."""
    features = store.facts.features_of_types[store.facts.target_type]
    return 0 if features is None else features.width


def neighbor_relations(store: GraphStore) -> list[int]:
    """Return the numbers of the relations into the target type from types with features."""
    schema, features = store.schema, store.facts.features_of_types
    sources = [features[source] for source in schema.source_types]
    return [
        number
        for number, target in enumerate(schema.target_types)
        if target == store.facts.target_type and (source := sources[number]) is not None and source.width
    ]


def neighbor_width(store: GraphStore) -> int:
    """Return the number of columns that the averages of in-neighbours add, with a degree for each relation."""
    features = store.facts.features_of_types
    widths = [features[store.schema.source_types[number]] for number in neighbor_relations(store)]
    return sum(each.width + 1 for each in widths if each is not None)


def own_columns(store: GraphStore, nodes: IntArray) -> FloatArray:
    """Return the columns of some nodes of one type [N, F]. nodes: ascending."""
    found = [_dense(store, partition, nodes[run]) for partition, run in _runs(store, nodes)]
    return np.concatenate(found) if found else np.zeros((0, own_width(store)), np.float32)


def neighbor_columns(store: GraphStore, nodes: IntArray) -> FloatArray:
    """Return the averages of the in-neighbours' columns, relation by relation, each with the node's in-degree.

    A node averages at most MOST_NEIGHBORS in-edges of a relation, those with the smallest priorities; one without any
    has NaN, which trees read as missing.
    """
    parts = [_averages(store, nodes, relation) for relation in neighbor_relations(store)]
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(nodes), 0), np.float32)


def _averages(store: GraphStore, nodes: IntArray, relation: int) -> FloatArray:
    features = store.facts.features_of_types[store.schema.source_types[relation]]
    assert features is not None
    found = [_kept_edges(store, partition, nodes[run], relation) for partition, run in _runs(store, nodes)]
    if not found:
        return np.zeros((0, features.width + 1), np.float32)
    degrees = np.concatenate([each.degrees for each in found])
    starts = offsets_of(np.array([len(each.degrees) for each in found]))
    # the averaged edges as rows of the result and sources [E], in the order of sources
    rows = np.concatenate([each.rows + start for each, start in zip(found, starts[:-1], strict=True)])
    sources = np.concatenate([each.sources for each in found])
    order = np.argsort(sources, kind="stable")
    rows, sources = rows[order], sources[order]
    sums = np.zeros((len(nodes), features.width))
    step = max(1, _GATHERED // features.width)
    for partition, run in _runs(store, sources):
        distinct, place = np.unique(sources[run], return_inverse=True)
        columns = _dense(store, partition, distinct)
        into = np.argsort(rows[run], kind="stable")
        for first in range(0, len(into), step):
            some = into[first : first + step]
            targets = rows[run][some]
            firsts = np.flatnonzero(np.diff(targets, prepend=-1))
            sums[targets[firsts]] += np.add.reduceat(columns[place[some]].astype(np.float64), firsts)
    counts = np.bincount(rows, minlength=len(nodes)).astype(np.float64)
    mean = np.divide(sums, counts[:, None], out=np.full_like(sums, np.nan), where=counts[:, None] > 0)
    return np.concatenate([mean, degrees[:, None]], axis=1).astype(np.float32)


class _KeptEdges(NamedTuple):
    """The averaged in-edges of nodes of one partition, by the node's place among them, and all nodes' in-degrees."""

    rows: IntArray
    sources: IntArray
    degrees: IntArray


def _kept_edges(store: GraphStore, partition: int, nodes: IntArray, relation: int) -> _KeptEdges:
    degrees = np.zeros(len(nodes), np.int64)
    rows, sources, keys = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64)
    for table in store.iter_edges(partition, ["dst", "src", "edge_key"], relation=relation):
        targets = to_numpy(table["dst"]).astype(np.int64)
        place = np.searchsorted(nodes, targets)
        some = np.flatnonzero(nodes[np.minimum(place, len(nodes) - 1)] == targets)
        degrees += np.bincount(place[some], minlength=len(nodes))
        rows = np.concatenate([rows, place[some]])
        sources = np.concatenate([sources, to_numpy(table["src"])[some].astype(np.int64)])
        keys = np.concatenate([keys, to_numpy(table["edge_key"])[some]])
        order = priorities(keys, kind="uniform", seed=0)
        kept = top_k_ungrouped(rows, order, num_targets=len(nodes), tie=keys, limit=MOST_NEIGHBORS).edges
        rows, sources, keys = rows[kept], sources[kept], keys[kept]
    return _KeptEdges(rows, sources, degrees)


def _runs(store: GraphStore, nodes: IntArray) -> Iterator[tuple[int, slice]]:
    """Yield each partition that owns some of the nodes, which ascend, and where they stand."""
    owners = store.book.owner(nodes)
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(nodes)], strict=True):
        yield int(owners[start]), slice(int(start), int(stop))


def _dense(store: GraphStore, partition: int, nodes: IntArray) -> FloatArray:
    """Return the columns of nodes of one partition and type, ascending, as numbers."""
    found = read_features(store, {partition: nodes - store.book.start(partition)})
    if not isinstance(found, TypedFeatures):
        return _numbers(found)
    part = found.parts[int(store.book.type_of(nodes[:1])[0])]
    return np.zeros((len(nodes), 0), np.float32) if part is None else _numbers(part)


def _numbers(features: Features) -> FloatArray:
    if not features.is_sparse:
        return features.numbers
    assert features.offsets is not None
    assert features.index is not None
    out = np.zeros((len(features), features.width), np.float32)
    row = np.repeat(np.arange(len(features)), np.diff(features.offsets))
    np.add.at(out, (row, features.index), 1.0 if features.value is None else features.value)
    return out
