"""A model's outputs for chosen targets of a graph store, by the globalbatch execution in one process.

Of the graph, what reaches a target within the model's layers is read and no other row, a partition at a time. With many
layers that may be most of the graph.

Shapes: N nodes that reach a target, T targets, C outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from gnnflow.executions.globalbatch import active_rows, forward, rank_batch
from gnnflow.executions.row_exchange import OneRank
from gnnflow.graph.arrays import FloatArray, IntArray, distinct, offsets_of
from gnnflow.graph.batch import Block, Degrees, NodeFeatures, sampled_block
from gnnflow.graph.edges import InEdges
from gnnflow.graph.sampling import Fanout
from gnnflow.graphfeature.neighborhood import join_degrees, join_edges
from gnnflow.layers.model import Model
from gnnflow.neighbors.selected import Neighbors
from gnnflow.storage.graph_store import read_features


@torch.no_grad()
def logits_of(model: Model, targets: IntArray, *, neighbors: Neighbors) -> FloatArray:
    """Return a model's logits [T, C] of nodes, given by their dense ids, ascending. Leaves training mode."""
    model.eval()
    reached = _reached(targets, neighbors, num_layers=model.num_layers)
    places, bounds = np.searchsorted(reached.ids, targets), np.array([0, len(reached.ids)])
    rows = active_rows(reached.blocks, places, bounds=bounds, exchange=OneRank())
    features, nodes = reached.features.take(rows.rows), reached.nodes.take(rows.rows)
    batch = rank_batch(model, rows, features=features, nodes=nodes, exchange=OneRank())
    logits: FloatArray = forward(model, batch, OneRank()).numpy()
    return logits


@dataclass(frozen=True)
class _Reached:
    """The N nodes that reach a target, and by their places the in-edges that each layer reads."""

    ids: IntArray
    blocks: list[Block]
    nodes: Degrees
    features: NodeFeatures


def _reached(targets: IntArray, neighbors: Neighbors, *, num_layers: int) -> _Reached:
    store = neighbors.store
    ids = targets
    active: list[tuple[IntArray, InEdges]] = []
    for limit in neighbors.sampling.of_hops(num_layers):
        edges = _in_edges(ids, neighbors, limit)
        active.insert(0, (ids, edges))
        ids = distinct(np.concatenate([ids, np.asarray(edges.sources, np.int64)]))
    rows = {part: ids[own] - store.book.start(part) for part, own in _by_partition(ids, neighbors)}
    nodes = join_degrees([store.degrees(part).take(held) for part, held in rows.items()])
    blocks = [
        sampled_block(
            _spread(edges, np.searchsorted(ids, of), ids),
            num_sources=len(ids),
            in_degree=nodes.in_degree,
            sampling=neighbors.sampling.kind,
        )
        for of, edges in active
    ]
    return _Reached(ids, blocks, nodes, read_features(store, rows))


def _in_edges(ids: IntArray, neighbors: Neighbors, limit: Fanout | None) -> InEdges:
    """Return the in-edges of nodes by their dense ids, ascending."""
    parts = []
    for part, own in _by_partition(ids, neighbors):
        held = neighbors.in_edges(part)
        picked = held.prefix(ids[own] - neighbors.store.book.start(part), limit=limit)
        parts.append(held.take(picked.positions, offsets=picked.offsets))
    return join_edges(parts, [0] * len(parts))


def _by_partition(ids: IntArray, neighbors: Neighbors) -> list[tuple[int, slice]]:
    """Return the partitions that own some nodes, and which of them each owns. ids: ascending."""
    book = neighbors.store.book
    starts = [book.start(part) for part in range(book.num_partitions)]
    bounds = np.searchsorted(ids, [*starts, book.num_nodes]).tolist()
    return [(part, slice(*run)) for part, run in enumerate(pairwise(bounds)) if run[1] > run[0]]


def _spread(edges: InEdges, places: IntArray, ids: IntArray) -> InEdges:
    """Return the in-edges of nodes that lie at some places among all N, as edges of all; sources become places."""
    lengths = np.zeros((edges.num_relations, len(ids)), np.int64)
    lengths[:, places] = edges.lengths.reshape(edges.num_relations, -1)
    every = np.arange(edges.num_edges)
    sources = np.searchsorted(ids, edges.sources_of(every))
    return edges.take(every, offsets=offsets_of(lengths.ravel()), sources=sources)
