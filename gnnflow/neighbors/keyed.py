"""In-edges in the order of their keys, hashes of the user's ids, which does not depend on partitions.

A draw is then a place in this order. Dense ids, the order of in-edges in a store, change with the partitions.

Shapes: N nodes of a partition, E edges, P nodes asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray, is_first, offsets_of, ragged_ranges
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.sampling import top_k
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    import pyarrow as pa

    from gnnflow.storage.graph_store import GraphStore

_HALF = np.uint64(32)


class Picked(NamedTuple):
    """Positions of in-edges, row by row, and their number in each row [P]."""

    positions: IntArray
    counts: IntArray


@dataclass(frozen=True)
class KeyedEdges:
    """In-edges of a partition's nodes: offsets [N + 1], sources as dense ids [E], keys [E], ascending in each row.

    weights [E] on request: 1 in a relation without weights.
    """

    offsets: IntArray
    sources: IntArray
    keys: KeyArray
    weights: FloatArray | None = None

    def pick(self, rows: IntArray, words: KeyArray, *, limit: int) -> Picked:
        """Pick up to `limit` in-edges of each row [P]: all of them, or a run from a place that its word decides.

        The order of keys is random, so every in-edge is equally likely to be in the run; the first follows the last.
        """
        # of each row [P]: its first in-edge, in-degree, number of picked edges, and place of the first of these
        starts, degrees = self.offsets[rows], np.diff(self.offsets)[rows]
        counts = np.minimum(degrees, limit)
        begin = np.where(degrees > limit, place_of(mix(words), degrees), 0)
        # place of each picked edge in its row
        within = ragged_ranges(begin, counts) % np.repeat(degrees, counts)
        return Picked(np.repeat(starts, counts) + within, counts)


def place_of(hashed: KeyArray, sizes: Array) -> IntArray:
    """Return a place from 0 to below each size, decided by a hash; sizes are below 2^32."""
    return (((hashed >> _HALF) * sizes.astype(np.uint64)) >> _HALF).astype(np.int64)


def keyed_edges(
    store: GraphStore,
    partition: int,
    *,
    relations: Sequence[int] | None = None,
    distinct: bool = False,
    weighted: bool = False,
) -> KeyedEdges:
    """Return a partition's in-edges in some relations together (all by default).

    distinct: edges that join the same two nodes count once, with their smallest key. weighted: read the weights of
    edges, and leave out edges of weight 0; not with distinct.
    """
    assert not (distinct and weighted), "edges that count once have several weights"
    numbers = range(store.schema.num_relations) if relations is None else relations
    tables = [store.edges(partition, ["dst", "src", "edge_key"], relation=each) for each in numbers]
    columns = [[to_numpy(table[name]) for table in tables] for name in ("dst", "src", "edge_key")]
    # the row each edge leads to, where it comes from, and its key [E]
    rows, sources, keys = (each[0] if len(each) == 1 else np.concatenate(each) for each in columns)
    rows = rows - store.book.start(partition)
    weights = _weights(store, partition, tables, numbers) if weighted else None
    if weights is not None:
        kept = np.flatnonzero(weights)
        rows, sources, keys, weights = rows[kept], sources[kept], keys[kept], weights[kept]
    if distinct:
        rows, sources, keys = _distinct_pairs(rows, sources, keys)
    elif len(tables) > 1:
        order = np.argsort(rows, kind="stable")
        rows, sources, keys = rows[order], sources[order], keys[order]
        weights = None if weights is None else weights[order]
    offsets = offsets_of(np.bincount(rows, minlength=store.book.size(partition)))
    # positions of the edges, each row's in the order of their keys [E]
    order = top_k(offsets, keys, limit=None).edges
    return KeyedEdges(offsets, sources[order], keys[order], None if weights is None else weights[order])


def _weights(store: GraphStore, partition: int, tables: Sequence[pa.Table], relations: Sequence[int]) -> FloatArray:
    """Return the weights of the edges of some relations, one relation after the other [E]."""
    held = [
        to_numpy(store.edges(partition, ["weight"], relation=number)["weight"])
        if "weight" in store.edge_columns_of(number)
        else np.ones(table.num_rows, np.float32)
        for table, number in zip(tables, relations, strict=True)
    ]
    return np.concatenate(held)


def _distinct_pairs(rows: IntArray, sources: IntArray, keys: KeyArray) -> tuple[IntArray, IntArray, KeyArray]:
    """Return each pair of ends once, sorted by row, with the smallest key of its edges."""
    order = np.lexsort((sources, rows))
    rows, sources = rows[order], sources[order]
    # the first row of each pair of ends
    starts = np.flatnonzero(is_first(rows, sources))
    return rows[starts], sources[starts], np.minimum.reduceat(keys[order], starts)


def node_keys(store: GraphStore, partition: int) -> KeyArray:
    """Return a key of each of a partition's nodes, all types one after the other [N].

    With several types it depends on the type too, since nodes of two types may have the same id.
    """
    schema, keys = store.schema, []
    for number, name in enumerate(schema.types):
        own = to_numpy(store.nodes(partition, ["key"], node_type=number)["key"])
        keys.append(combine(own, seed_word(name)) if schema.num_types > 1 else own)
    return np.concatenate(keys)
