"""Small random graphs as neighbourhoods, with every combination of columns, and equality that shows where it fails."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.graphfeature.neighborhood import Neighborhood

FEATURE_WIDTH = 5


@st.composite
def graphs(draw: st.DrawFn, *, min_nodes: int = 1, arrives: bool = False) -> Neighborhood:
    """A whole graph: every in-edge stored, degrees as they are. Self-loops, parallel edges and lone nodes occur.

    arrives: its edges say when the next one arrives, as those of a weighted sample do.
    """
    lists = draw(st.lists(st.lists(st.integers(0, 11), max_size=6), min_size=min_nodes, max_size=12))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    n = len(lists)
    in_degree = np.array([len(each) for each in lists], np.int64)
    sources = np.array([s % n for each in lists for s in each], np.int32)
    e = len(sources)
    weight = rng.random(e, np.float32) if draw(st.booleans()) else None
    degrees = Degrees(in_degree, np.bincount(sources, minlength=n), rng.random(n, np.float32))
    return Neighborhood(
        roots=rng.permutation(n)[: rng.integers(1, n + 1)] if n else np.zeros(0, np.int64),
        node_ids=np.sort(rng.choice(10**12, n, replace=False)),
        degrees=degrees,
        features=features(rng, n, draw(st.sampled_from(["dense", "none", "sparse", "ones"]))),
        edges=InEdges(
            offsets_of(in_degree),
            sources,
            weight=weight,
            attributes=rng.random((e, 2), np.float32) if draw(st.booleans()) else None,
            next_arrival=_next_arrivals(rng, in_degree) if arrives else None,
        ),
    )


def _next_arrivals(rng: np.random.Generator, in_degree: np.ndarray) -> np.ndarray:
    arrivals = [np.append(np.sort(rng.random(degree))[1:], np.inf) for degree in in_degree if degree]
    return np.concatenate([np.zeros(0), *arrivals])


def features(rng: np.random.Generator, n: int, form: str) -> Features:
    if form == "none":
        return Features(0, dense=np.zeros((n, 0), np.float32))
    if form == "dense":
        return Features(FEATURE_WIDTH, dense=rng.random((n, FEATURE_WIDTH), np.float32))
    lengths = rng.integers(0, 4, n)
    index = rng.integers(0, FEATURE_WIDTH, lengths.sum())
    value = rng.random(len(index), np.float32) if form == "sparse" else None
    return Features(FEATURE_WIDTH, offsets=offsets_of(lengths), index=index, value=value)


def shuffled(graph: Neighborhood, rng: np.random.Generator) -> Neighborhood:
    """The same graph with its rows in another order."""
    order = rng.permutation(graph.num_nodes)
    row_of = np.argsort(order)
    old = graph.edges
    lists = [number * graph.num_nodes + i for number in range(old.num_relations) for i in order]
    positions = np.concatenate([np.arange(old.offsets[i], old.offsets[i + 1]) for i in lists])
    sources = row_of[old.sources_of(positions)].astype(np.int32)
    return replace(
        graph,
        roots=row_of[graph.roots],
        node_ids=graph.node_ids[order],
        degrees=graph.degrees.take(order),
        features=graph.features.take(order),
        edges=old.take(positions, offsets=offsets_of(old.lengths[lists]), sources=sources),
    )


def assert_same(left: Any, right: Any, path: str = "") -> None:
    """Assert that two dataclasses of arrays are equal in every bit, shape and type."""
    assert type(left) is type(right), path
    if is_dataclass(left):
        for field in fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name), f"{path}.{field.name}")
    elif isinstance(left, tuple):
        assert len(left) == len(right), path
        for i, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{path}[{i}]")
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, path
        np.testing.assert_array_equal(left, right, err_msg=path, strict=True)
    else:
        assert left == right, path
