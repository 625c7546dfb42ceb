"""The graph that a user's neighbour function reads, and the instances that a selection finds.

An instance joins a root to its leaves: one node of a walk, all nodes of a metapath. Each relation of a selection is a
file of instances per partition of the roots, and replaces a file of in-edges.

Shapes: E instances, m leaves of each, L leaves of all, A attributes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray, offsets_of, ragged_ranges
from gnnflow.neighbors.keyed import KeyedEdges, keyed_edges, node_keys
from gnnflow.storage.columns import from_matrix, from_ragged

if TYPE_CHECKING:
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.storage.graph_store import GraphStore

_PARTITIONS_HELD = 4


class SourceLists(NamedTuple):
    """The sources of the in-edges of n nodes: offsets [n + 1] and sources [E], grouped by node."""

    offsets: IntArray
    sources: IntArray


class NeighborGraph:
    """Nodes are dense ids, 0 to below `num_nodes`; they differ with the partitions, and keys do not.

    At most a few partitions are in memory: a call with many nodes reads each partition once, many calls with one node
    read it repeatedly.
    """

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._edges: OrderedDict[tuple[int, str | None], KeyedEdges] = OrderedDict()
        self._keys: OrderedDict[int, KeyArray] = OrderedDict()

    @property
    def schema(self) -> GraphSchema:
        """The graph's types and relations."""
        return self._store.schema

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the graph."""
        return self._store.book.num_nodes

    def types(self, nodes: IntArray) -> IntArray:
        """Return the number of each node's type, as the schema numbers them."""
        return self._store.book.type_of(nodes)

    def keys(self, nodes: IntArray) -> KeyArray:
        """Return the key of each node, a hash of its type and the user's id, for random choices."""
        keys = np.empty(len(nodes), np.uint64)
        for partition, places in self._by_partition(nodes):
            if partition not in self._keys:
                _make_room(self._keys)
                self._keys[partition] = node_keys(self._store, partition)
            keys[places] = self._keys[partition][nodes[places] - self._store.book.start(partition)]
        return keys

    def in_edges(self, nodes: IntArray, relation: str | None = None) -> SourceLists:
        """Return the sources of the in-edges of each node.

        relation: as a config writes it; None for all relations. A node's sources are in the order of the edges' keys,
        which no partition changes.
        """
        lengths = np.zeros(len(nodes), np.int64)
        found: list[tuple[Array, IntArray]] = []
        for partition, places in self._by_partition(nodes):
            edges = self._held(partition, relation)
            # rows of these nodes in their partition
            rows = nodes[places] - self._store.book.start(partition)
            lengths[places] = np.diff(edges.offsets)[rows]
            found.append((places, edges.sources[ragged_ranges(edges.offsets[rows], lengths[places])]))
        # write each partition's sources to the places of the requested nodes, in any order
        offsets = offsets_of(lengths)
        sources = np.empty(offsets[-1], np.int64)
        for places, own in found:
            sources[ragged_ranges(offsets[places], lengths[places])] = own
        return SourceLists(offsets, sources)

    def _held(self, partition: int, relation: str | None) -> KeyedEdges:
        place = (partition, relation)
        if place not in self._edges:
            names = [str(each) for each in self.schema.relations]
            numbers = None if relation is None else [names.index(relation)]
            _make_room(self._edges)
            self._edges[place] = keyed_edges(self._store, partition, relations=numbers)
        self._edges.move_to_end(place)
        return self._edges[place]

    def _by_partition(self, nodes: IntArray) -> list[tuple[int, Array]]:
        """Return each partition that owns some of the nodes, with their places."""
        # the places of all nodes, grouped by the partition that owns them [n]
        owner = self._store.book.owner(nodes)
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=self._store.num_partitions)
        return [
            (int(each), places) for each, places in enumerate(np.split(order, np.cumsum(counts)[:-1])) if len(places)
        ]


def _make_room(held: OrderedDict[int, KeyArray] | OrderedDict[tuple[int, str | None], KeyedEdges]) -> None:
    while len(held) >= _PARTITIONS_HELD:
        held.popitem(last=False)


@dataclass(frozen=True)
class Instances:
    """Instances of one relation. Nodes are dense ids.

    roots [E], ascending; instances of one root are best first, where they have an order. leaves: [E] where each has one
    leaf, [E, m] where each has m, from the root outward; or all leaves [L] with offsets [E + 1], where numbers differ.
    weight [E] and attributes [E, A] are None where there are none.
    """

    roots: IntArray
    leaves: Array
    weight: FloatArray | None = None
    attributes: FloatArray | None = None
    offsets: IntArray | None = None

    @property
    def num_leaves(self) -> int:
        """Number of leaves of each instance; 0 where it differs."""
        if self.offsets is not None:
            return 0
        return 1 if self.leaves.ndim == 1 else int(self.leaves.shape[1])

    @property
    def attribute_width(self) -> int:
        """Number of attributes of each instance."""
        return 0 if self.attributes is None else int(self.attributes.shape[1])

    def table(self) -> pa.Table:
        """Return the instances as rows of a file of in-edges."""
        columns: dict[str, Any] = {"dst": self.roots.astype(np.int64, copy=False)}
        leaves = self.leaves.astype(np.int64, copy=False)
        if self.offsets is not None:
            columns["src"] = from_ragged(self.offsets, leaves)
        else:
            # lists of one node are written as the node
            columns["src"] = leaves.ravel() if self.num_leaves == 1 else from_matrix(leaves)
        if self.weight is not None:
            columns["weight"] = self.weight.astype(np.float32, copy=False)
        if self.attributes is not None:
            columns["attributes"] = from_matrix(self.attributes.astype(np.float32, copy=False))
        return pa.table(columns)
