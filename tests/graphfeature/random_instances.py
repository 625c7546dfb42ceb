"""Small random graphs some of whose edges come from several nodes: with and without types, one relation or several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.edges import InEdges, join_relations
from tests.graphfeature.random_graphs import graphs
from tests.graphfeature.random_typed import typed_graphs

if TYPE_CHECKING:
    from gnnflow.graphfeature.neighborhood import Neighborhood


@st.composite
def instance_graphs(draw: st.DrawFn, *, min_nodes: int = 1) -> Neighborhood:
    """A whole graph with one relation or four, at least one of which has instances: roots are among their leaves too.

    Instances of a relation have as many leaves each, from none to three, or from none to four.
    """
    graph = draw(graphs(min_nodes=min_nodes) | typed_graphs(min_nodes=min_nodes))
    relations = graph.edges.num_relations
    others = st.sampled_from(["flat", "none", "one", "two", "three", "varying"])
    first = draw(st.sampled_from(["none", "one", "two", "varying"]))
    kinds = [first, *draw(st.lists(others, min_size=relations - 1, max_size=relations - 1))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    parts = [_with_leaves(graph.edges.relation(r), kind, graph.num_nodes, rng) for r, kind in enumerate(kinds)]
    edges = join_relations(parts)
    return replace(graph, edges=edges)


def _with_leaves(edges: InEdges, kind: str, num_nodes: int, rng: np.random.Generator) -> InEdges:
    if kind == "flat":
        return edges
    counts = {"none": 0, "one": 1, "two": 2, "three": 3, "varying": rng.integers(0, 5, edges.num_edges)}[kind]
    leaves = offsets_of(np.broadcast_to(counts, edges.num_edges))
    sources = rng.integers(0, max(num_nodes, 1), leaves[-1]).astype(np.int32)
    return replace(edges, leaves=leaves, sources=sources)


def sources_of(edges: InEdges, edge: int) -> list[int]:
    """The definition: the nodes that an edge comes from."""
    if edges.leaves is None:
        return [int(edges.sources[edge])]
    own: list[int] = edges.sources[edges.leaves[edge] : edges.leaves[edge + 1]].tolist()
    return own
