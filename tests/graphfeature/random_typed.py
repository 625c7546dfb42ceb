"""Small random graphs of three types and four relations as neighbourhoods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features, TypedFeatures
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.graphfeature.neighborhood import Neighborhood

SCHEMA = GraphSchema.of(
    ["user", "item", "shop"],
    [
        Relation("user", "buys", "item"),
        Relation("item", "bought_by", "user"),
        Relation("user", "knows", "user"),
        Relation("shop", "sells", "item"),
    ],
)
FORMS = ["dense", "none", "sparse", "ones", "empty"]


@st.composite
def typed_graphs(draw: st.DrawFn, *, min_nodes: int = 1, arrives: bool = False) -> Neighborhood:
    """A whole typed graph: every in-edge stored, degrees as they are. Types without nodes or features occur."""
    types = np.array(draw(st.lists(st.integers(0, 2), min_size=min_nodes, max_size=12)), np.int64)
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=3, max_size=3))
    most, weighs, has_attributes = draw(st.integers(0, 9)), draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    n = len(types)
    relations = []
    for source, target in zip(SCHEMA.source_types, SCHEMA.target_types, strict=True):
        starts, ends = np.flatnonzero(types == source), np.flatnonzero(types == target)
        e = int(rng.integers(0, most + 1)) if len(starts) and len(ends) else 0
        in_degree = np.bincount(rng.choice(ends, e), minlength=n) if e else np.zeros(n, np.int64)
        relations.append(
            InEdges(
                offsets_of(in_degree),
                rng.choice(starts, e).astype(np.int32) if e else np.zeros(0, np.int32),
                weight=rng.random(e, np.float32) if weighs else None,
                attributes=rng.random((e, 2), np.float32) if has_attributes else None,
                next_arrival=np.sort(rng.random(e)) if arrives else None,
            )
        )
    edges = join_relations(relations)
    in_degree = np.ascontiguousarray(edges.lengths.reshape(4, -1).T)
    return Neighborhood(
        roots=rng.permutation(n)[: rng.integers(1, n + 1)] if n else np.zeros(0, np.int64),
        node_ids=np.sort(rng.choice(10**12, n, replace=False)),
        degrees=Degrees(in_degree, in_degree[::-1].copy(), rng.random((n, 4), np.float32), types),
        features=TypedFeatures(
            types, tuple(_features(rng, int((types == t).sum()), form, t + 1) for t, form in enumerate(forms))
        ),
        edges=edges,
    )


def _features(rng: np.random.Generator, n: int, form: str, width: int) -> Features | None:
    if form in {"none", "empty"}:
        return None if form == "none" else Features(0, dense=np.zeros((n, 0), np.float32))
    if form == "dense":
        return Features(width, dense=rng.random((n, width), np.float32))
    lengths = rng.integers(0, 4, n)
    index = rng.integers(0, width, lengths.sum())
    value = rng.random(len(index), np.float32) if form == "sparse" else None
    return Features(width, offsets=offsets_of(lengths), index=index, value=value)


def untyped(graph: Neighborhood, number: int) -> Neighborhood:
    """The same nodes with the edges of one relation alone, as a graph without types."""
    return replace(
        graph,
        degrees=replace(graph.degrees.relation(number), types=None),
        features=Features(0, dense=np.zeros((graph.num_nodes, 0), np.float32)),
        edges=graph.edges.relation(number),
    )
