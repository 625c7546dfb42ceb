"""The graph as a user's neighbour function sees it: in-edges of any nodes, read a partition at a time."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import Array, IntArray, KeyArray, offsets_of, ragged_ranges
from gnnflow.neighbors.keyed import KeyedEdges, keyed_edges, node_keys

if TYPE_CHECKING:
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.storage.graph_store import GraphStore

_PARTITIONS_HELD = 4


class NeighborGraph:
    """Nodes are dense ids, 0 to below `num_nodes`; they differ with the partitions, and keys do not.

    At most a few partitions are in memory: asking for nodes of many at once reads each once, asking for them one by one
    reads them again and again.
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
        """How many nodes the graph has."""
        return self._store.book.num_nodes

    def types(self, nodes: IntArray) -> IntArray:
        """Return the number of each node's type, as the schema numbers them."""
        return self._store.book.type_of(nodes)

    def keys(self, nodes: IntArray) -> KeyArray:
        """Return the key of each node, a hash of its type and the user's id: what random choices are to be made by."""
        keys = np.empty(len(nodes), np.uint64)
        for partition, places in self._by_partition(nodes):
            if partition not in self._keys:
                _make_room(self._keys)
                self._keys[partition] = node_keys(self._store, partition)
            keys[places] = self._keys[partition][nodes[places] - self._store.book.start(partition)]
        return keys

    def in_edges(self, nodes: IntArray, relation: str | None = None) -> tuple[IntArray, IntArray]:
        """Return the sources of the in-edges of each node: offsets [n + 1] and sources [E], those of a node in a row.

        relation: as a config writes it; of all relations together without one. A node's sources are in the order of the
        edges' keys, which no partition changes.
        """
        lengths = np.zeros(len(nodes), np.int64)
        found: list[tuple[Array, IntArray]] = []
        for partition, places in self._by_partition(nodes):
            edges = self._held(partition, relation)
            rows = nodes[places] - self._store.book.start(partition)
            lengths[places] = np.diff(edges.offsets)[rows]
            found.append((places, edges.sources[ragged_ranges(edges.offsets[rows], lengths[places])]))
        # partition by partition into the places of the nodes that were asked for, whatever their order
        offsets = offsets_of(lengths)
        sources = np.empty(offsets[-1], np.int64)
        for places, own in found:
            sources[ragged_ranges(offsets[places], lengths[places])] = own
        return offsets, sources

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
        """Return for each partition that owns some of the nodes the places of these."""
        owner = self._store.book.owner(nodes)
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=self._store.num_partitions)
        return [
            (int(each), places) for each, places in enumerate(np.split(order, np.cumsum(counts)[:-1])) if len(places)
        ]


def _make_room(held: OrderedDict[int, KeyArray] | OrderedDict[tuple[int, str | None], KeyedEdges]) -> None:
    while len(held) >= _PARTITIONS_HELD:
        held.popitem(last=False)
