"""Typed graphs in memory: types with dense, sparse and no features, relations of every shape, empty ones among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features, TypedFeatures, sampled_block
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.layers import TypedInputs, TypeInputs
from tests.contracts.in_memory import EDGE_WIDTH, NUM_SETS, with_leaves

DENSE_WIDTH, SPARSE_WIDTH = 4, 6
# `island` has no edges at all, and nothing leads to `shop`.
SCHEMA = GraphSchema.of(
    ["user", "item", "shop", "island"],
    [
        Relation("user", "knows", "user"),
        Relation("user", "buys", "item"),
        Relation("item", "bought_by", "user"),
        Relation("shop", "sells", "item"),
        Relation("shop", "serves", "user"),
    ],
)
TWO_TYPES = GraphSchema.of(["user", "item"], [Relation("item", "bought_by", "user")])
TWO_RELATIONS = GraphSchema.of(["user"], [Relation("user", "knows", "user"), Relation("user", "pays", "user")])
WIDTHS = {"user": (DENSE_WIDTH, False), "item": (SPARSE_WIDTH, True), "shop": (0, False), "island": (0, False)}


@dataclass(frozen=True)
class TypedShape:
    """What hypothesis draws: how many nodes and edges there are, and which columns the edges have."""

    schema: GraphSchema
    num_nodes: tuple[int, ...]
    num_edges: tuple[int, ...]
    seed: int
    weighted: bool = False
    has_attributes: bool = True
    leaves: tuple[int, ...] = ()  # of each relation's edges, as `GraphShape.leaves`; 1 for those that are not named

    @property
    def inputs(self) -> TypedInputs:
        """What the graph decides of a model."""
        types = tuple(TypeInputs(name, *WIDTHS[name]) for name in self.schema.types)
        return TypedInputs(types, tuple(map(str, self.schema.relations)))


@st.composite
def typed_shapes(draw):
    """Graphs of three schemas, the types of whose nodes lie in any order; one type has nodes at least."""
    schema = draw(st.sampled_from([SCHEMA, SCHEMA, TWO_TYPES, TWO_RELATIONS]))
    num_nodes = [draw(st.integers(0, 4)) for _ in schema.types]
    num_nodes[schema.types.index("user")] += 1
    num_edges = [draw(st.integers(0, 8)) for _ in schema.relations]
    seed, weighted = draw(st.integers(0, 99)), draw(st.booleans())
    leaves = tuple(draw(st.sampled_from([1, 0, 2, 3])) for _ in schema.relations) if draw(st.booleans()) else ()
    return TypedShape(schema, tuple(num_nodes), tuple(num_edges), seed, weighted, leaves=leaves)


def typed_graph(shape: TypedShape) -> WholeGraph:
    """Return the graph with random edges, features, weights and attributes."""
    rng = np.random.default_rng(shape.seed)
    schema = shape.schema
    types = rng.permutation(np.repeat(np.arange(schema.num_types), shape.num_nodes))
    relations, num_nodes = [], len(types)
    columns = np.zeros((3, num_nodes, schema.num_relations))
    for number, ends in enumerate(zip(schema.source_types, schema.target_types, strict=True)):
        sources, targets = (np.flatnonzero(types == end) for end in ends)
        drawn = shape.num_edges[number] if len(sources) and len(targets) else 0
        source, target = rng.choice(sources, drawn) if drawn else sources[:0], targets[:0]
        if drawn:
            target = np.sort(rng.choice(targets, drawn))
        weight = rng.uniform(0.1, 2.0, drawn).astype(np.float32) if shape.weighted else None
        attributes = rng.normal(size=(drawn, EDGE_WIDTH)).astype(np.float32) if shape.has_attributes else None
        if attributes is not None:
            attributes[:, 0] = rng.integers(0, NUM_SETS, drawn)
        in_degree = np.bincount(target, minlength=num_nodes)
        edges = InEdges(offsets_of(in_degree), source, weight=weight, attributes=attributes)
        size = shape.leaves[number] if shape.leaves else 1
        relations.append(with_leaves(edges, size, nodes=sources, seed=shape.seed + number))
        columns[0, :, number] = in_degree
        columns[1, :, number] = np.bincount(relations[-1].sources, minlength=num_nodes)
        columns[2, :, number] = np.bincount(target, weight, minlength=num_nodes)
    # a graph of one relation has a number per node, one of one type no types
    in_degree, out_degree, in_weight = columns if schema.num_relations > 1 else columns[:, :, 0]
    is_one = schema.num_types == 1
    nodes = Degrees(
        in_degree.astype(np.int64),
        out_degree.astype(np.int64),
        in_weight.astype(np.float32),
        None if is_one else types,
    )
    parts = tuple(_features(name, int((types == number).sum()), rng) for number, name in enumerate(schema.types))
    features = parts[0] if is_one and parts[0] is not None else TypedFeatures(types, parts)
    return WholeGraph(Block(join_relations(relations), num_sources=num_nodes), nodes, features)


def sampled_relations(graph: WholeGraph, *, num_layers: int, seed: int) -> list[Block]:
    """Return per layer a random part of every node's in-edges in each relation, with the scale that makes up for it."""
    rng = np.random.default_rng(seed)
    full, blocks = graph.adjacency.edges, []
    for _ in range(num_layers):
        keep = rng.random(full.num_edges) < 0.5
        keep[full.offsets[:-1][full.lengths > 0]] = True
        rows = np.repeat(np.arange(len(full.lengths)), full.lengths)[keep]
        kept = np.bincount(rows, minlength=len(full.lengths))
        sampled = full.take(np.flatnonzero(keep), offsets=offsets_of(kept))
        num_sources = graph.adjacency.num_sources
        if full.weight is None:
            degrees = graph.nodes.in_degree
            blocks.append(sampled_block(sampled, num_sources=num_sources, in_degree=degrees, sampling="uniform"))
        else:
            own = rng.uniform(1, 4, sampled.num_edges).astype(np.float32)
            blocks.append(Block(sampled, num_sources, edge_scale=own))
    return blocks


def _features(name: str, num_nodes: int, rng: np.random.Generator) -> Features | None:
    width, sparse = WIDTHS[name]
    if not width:
        return None
    dense = rng.normal(size=(num_nodes, width)).astype(np.float32)
    if not sparse:
        return Features(width, dense=dense)
    rows, columns = np.nonzero(dense > 0.2)
    offsets = offsets_of(np.bincount(rows, minlength=num_nodes))
    return Features(width, offsets=offsets, index=columns.astype(np.int64), value=dense[rows, columns])
