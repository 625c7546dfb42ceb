"""In-edges in an order that is the same whatever the partitions: by their keys, which are hashes of the users' ids.

A draw is then a place in this order. Dense ids, in whose order a store lists in-edges, change with the partitions.

Shapes: N nodes of a partition, E edges, P nodes asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray, offsets_of, ragged_ranges
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.sampling import top_k
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    import pyarrow as pa

    from gnnflow.storage.graph_store import GraphStore

_HALF = np.uint64(32)


class Picked(NamedTuple):
    """Positions of in-edges, row by row, and how many each row has [P]."""

    positions: IntArray
    counts: IntArray


@dataclass(frozen=True)
class KeyedEdges:
    """In-edges of a partition's nodes: offsets [N + 1], sources as dense ids [E], keys [E], ascending in each row.

    weights [E], where they were asked for: 1 of a relation without weights.
    """

    offsets: IntArray
    sources: IntArray
    keys: KeyArray
    weights: FloatArray | None = None

    def pick(self, rows: IntArray, words: KeyArray, *, limit: int) -> Picked:
        """Pick up to `limit` in-edges of each row [P]: all of them, or a run of them from a place its word decides.

        The order of keys is random, so every in-edge is equally likely to be in the run; after the last comes the
        first. Returns the edges' positions, row by row, and how many each row has [P].
        """
        starts, degrees = self.offsets[rows], np.diff(self.offsets)[rows]
        counts = np.minimum(degrees, limit)
        begin = np.where(degrees > limit, place_of(mix(words), degrees), 0)
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

    distinct: edges that join the same two nodes count once, by the smallest of their keys. weighted: read the weights
    of edges, and leave out those of weight 0; only where they are not distinct.
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
        rows, sources, keys = _once(rows, sources, keys)
    elif len(tables) > 1:
        order = np.argsort(rows, kind="stable")
        rows, sources, keys = rows[order], sources[order], keys[order]
        weights = None if weights is None else weights[order]
    offsets = offsets_of(np.bincount(rows, minlength=store.book.size(partition)))
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


def _once(rows: IntArray, sources: IntArray, keys: KeyArray) -> tuple[IntArray, IntArray, KeyArray]:
    """Return each pair of ends once, sorted by the row it leads to, with the smallest key of its edges."""
    if not len(rows):
        return rows, sources, keys
    order = np.lexsort((sources, rows))
    rows, sources = rows[order], sources[order]
    starts = np.flatnonzero(np.append([True], (rows[1:] != rows[:-1]) | (sources[1:] != sources[:-1])))
    return rows[starts], sources[starts], np.minimum.reduceat(keys[order], starts)


def node_keys(store: GraphStore, partition: int) -> KeyArray:
    """Return a key of each of a partition's nodes, all types one after the other [N].

    With types it takes the type in: the same id may be one of a node of each type.
    """
    schema, keys = store.schema, []
    for number, name in enumerate(schema.types):
        own = to_numpy(store.nodes(partition, ["key"], node_type=number)["key"])
        keys.append(combine(own, seed_word(name)) if schema.num_types > 1 else own)
    return np.concatenate(keys)
