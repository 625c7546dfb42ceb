"""Graphs in memory, cut into mini-batches and partitions by the shortest code that can be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features, MiniBatch
from gnnflow.graph.edges import InEdges

FEATURE_WIDTH = 5
EDGE_WIDTH = 2
NUM_SETS = 3  # the first edge attribute is the number of a set


@dataclass(frozen=True)
class GraphShape:
    """What hypothesis draws: which edges there are, and which columns the graph has."""

    num_nodes: int
    edges: tuple[tuple[int, int], ...]  # (source, target)
    seed: int
    sparse: bool = False
    weighted: bool = False
    leaves: int = 1  # of each edge; 0 where each has a number of its own


@st.composite
def graph_shapes(draw, max_nodes=9, max_edges=30):
    """Graphs with self-loops, repeated edges, isolated nodes and, in one of three, a hub that every edge leads to."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    target = st.just(0) if draw(st.integers(0, 2)) == 0 else node
    edges = draw(st.lists(st.tuples(node, target), max_size=max_edges))
    leaves = draw(st.sampled_from([1, 1, 0, 2, 3]))
    return GraphShape(
        num_nodes, tuple(edges), draw(st.integers(0, 99)), draw(st.booleans()), draw(st.booleans()), leaves
    )


def whole_graph(shape: GraphShape) -> WholeGraph:
    """Return the graph with random features, weights and attributes."""
    rng = np.random.default_rng(shape.seed)
    pairs = np.array(sorted(shape.edges, key=lambda pair: pair[1]), np.int64).reshape(-1, 2)
    in_degree = np.bincount(pairs[:, 1], minlength=shape.num_nodes)
    weight = rng.uniform(0.1, 2.0, len(pairs)).astype(np.float32) if shape.weighted else None
    attributes = rng.normal(size=(len(pairs), EDGE_WIDTH)).astype(np.float32)
    attributes[:, 0] = rng.integers(0, NUM_SETS, len(pairs))
    edges = InEdges(offsets_of(in_degree), pairs[:, 0].copy(), weight=weight, attributes=attributes)
    edges = with_leaves(edges, shape.leaves, nodes=np.arange(shape.num_nodes), seed=shape.seed)
    in_weight = np.bincount(pairs[:, 1], weight, minlength=shape.num_nodes).astype(np.float32)
    nodes = Degrees(in_degree, np.bincount(edges.sources, minlength=shape.num_nodes), in_weight)
    return WholeGraph(Block(edges, num_sources=shape.num_nodes), nodes, _features(shape, rng))


def with_leaves(edges: InEdges, number: int, *, nodes: np.ndarray, seed: int) -> InEdges:
    """Return edges with a number of leaves each, or 1 to 3 of them where it is 0: their source, then some of nodes."""
    if number == 1:
        return edges
    rng = np.random.default_rng(seed + 1)
    counts = rng.integers(1, 4, edges.num_edges) if number == 0 else np.full(edges.num_edges, number)
    offsets = offsets_of(counts)
    sources = rng.choice(nodes, int(offsets[-1])) if edges.num_edges else edges.sources
    sources[offsets[:-1]] = edges.sources
    return replace(edges, sources=sources, leaves=offsets)


def _features(shape: GraphShape, rng: np.random.Generator) -> Features:
    dense = rng.normal(size=(shape.num_nodes, FEATURE_WIDTH)).astype(np.float32)
    if not shape.sparse:
        return Features(FEATURE_WIDTH, dense=dense)
    rows, columns = np.nonzero(dense > 0.2)
    value = dense[rows, columns] if shape.weighted else None
    lengths = np.bincount(rows, minlength=shape.num_nodes)
    return Features(FEATURE_WIDTH, offsets=offsets_of(lengths), index=columns.astype(np.int64), value=value)


def sampled_blocks(graph: WholeGraph, *, num_layers: int, seed: int) -> list[Block]:
    """Return per layer a random part of every node's in-edges, at least one, with the scale that makes up for it.

    In a graph with weights each edge has a scale of its own, as weighted sampling gives it.
    """
    rng = np.random.default_rng(seed)
    full = graph.adjacency.edges
    blocks = []
    for _ in range(num_layers):
        keep = rng.random(full.num_edges) < 0.5
        keep[full.offsets[:-1][full.lengths > 0]] = True
        targets = np.repeat(np.arange(full.num_targets), full.lengths)[keep]
        kept = np.bincount(targets, minlength=full.num_targets)
        scale = (full.lengths / np.maximum(kept, 1)).astype(np.float32)
        sampled = full.take(np.flatnonzero(keep), offsets=offsets_of(kept))
        if full.weight is None:
            blocks.append(Block(sampled, graph.adjacency.num_sources, sample_scale=scale))
        else:
            own = rng.uniform(1, 4, sampled.num_edges).astype(np.float32)
            blocks.append(Block(sampled, graph.adjacency.num_sources, edge_scale=own))
    return blocks


def rows_of(adjacency: Block, targets: np.ndarray) -> tuple[Block, np.ndarray]:
    """Return the block of some nodes' in-edges, and the node of each of its source rows (the targets come first)."""
    picked = adjacency.edges.prefix(targets, limit=None)
    found = adjacency.edges.sources_of(picked.positions)
    reached = np.setdiff1d(found, targets)
    nodes = np.concatenate([targets, reached])
    row_of_node = np.full(adjacency.num_sources, -1)
    row_of_node[nodes] = np.arange(len(nodes))
    block = Block(
        adjacency.edges.take(picked.positions, offsets=picked.offsets, sources=row_of_node[found]),
        num_sources=len(nodes),
        sample_scale=_scale_of(adjacency, targets),
        edge_scale=None if adjacency.edge_scale is None else adjacency.edge_scale[picked.positions],
    )
    return block, nodes


def apart(adjacency: Block, targets: np.ndarray) -> tuple[Block, np.ndarray]:
    """Return what `rows_of` does, but as GraphInfer receives rows: all sources but those of self-loops lie beyond T."""
    picked = adjacency.edges.prefix(targets, limit=None)
    found = adjacency.edges.sources_of(picked.positions)
    reached = np.unique(found)
    of = adjacency.edges.per_leaf(picked.positions, picked.each(np.arange(len(targets))))
    sources = np.where(found == targets[of], of, len(targets) + np.searchsorted(reached, found))
    edges = adjacency.edges.take(picked.positions, offsets=picked.offsets, sources=sources)
    block, _ = rows_of(adjacency, targets)
    return replace(block, edges=edges, num_sources=len(targets) + len(reached)), np.concatenate([targets, reached])


def _scale_of(adjacency: Block, targets: np.ndarray) -> np.ndarray | None:
    if adjacency.sample_scale is None:
        return None
    # a row per relation and target, relation by relation
    return adjacency.sample_scale.reshape(adjacency.edges.num_relations, -1)[:, targets].ravel()


def mini_batch(graph: WholeGraph, targets: np.ndarray, *, per_layer: Sequence[Block]) -> MiniBatch:
    """Return the batch of the given targets; per_layer is each layer's adjacency over the whole graph."""
    nodes, blocks = targets, []
    for adjacency in reversed(per_layer):
        block, nodes = rows_of(adjacency, nodes)
        blocks.insert(0, block)
    return MiniBatch(tuple(blocks), graph.nodes.take(nodes), graph.features.take(nodes), targets)
