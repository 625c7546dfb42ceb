"""Neighbour functions as a user would write them, good and bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.neighbors import Instances, NeighborGraph

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray


def first_sources(graph: NeighborGraph, roots: IntArray, most: int = 2) -> dict[str, Instances]:
    """Keep the first accounts that each account knows, in the order of the edges' keys, those of lower keys heavier."""
    roots = roots[graph.types(roots) == 0]
    offsets, sources = graph.in_edges(roots, "account__knows__account")
    place = np.arange(len(sources)) - np.repeat(offsets[:-1], np.diff(offsets))
    kept = place < most
    root = np.repeat(roots, np.diff(offsets))[kept]
    return {"account__first__account": Instances(root, sources[kept], weight=1 / (place[kept] + 1))}


def everyone_before(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """An instance of each root with in-edges, whose leaves are all of them: they differ in number."""
    offsets, sources = graph.in_edges(roots)
    lengths = np.diff(offsets)
    number = {name: each for each, name in enumerate(graph.schema.types)}
    found = {}
    for name in graph.schema.types:
        own = np.flatnonzero((graph.types(roots) == number[name]) & (lengths > 0))
        leaves = [sources[offsets[row] : offsets[row + 1]] for row in own]
        joined = np.concatenate([np.zeros(0, np.int64), *leaves])
        ends = np.concatenate([[0], np.cumsum(lengths[own])])
        keys = graph.keys(roots[own]) % np.uint64(7)
        attributes = np.stack([keys, lengths[own]], axis=1)
        found[f"{name}__all__{name}"] = Instances(roots[own], joined, attributes=attributes, offsets=ends)
    return found


def spoiled(graph: NeighborGraph, roots: IntArray, what: str) -> Any:
    """Return something that breaks the contract."""
    roots = roots[graph.types(roots) == 0]
    sound = {"roots": roots, "leaves": roots}
    name = "account__own__account"
    changed: dict[str, Any] = {
        "descending": {"roots": roots[::-1]},
        "elsewhere": {"roots": (roots + graph.num_nodes // 2) % graph.num_nodes},
        "beyond": {"leaves": roots + graph.num_nodes},
        "negative": {"leaves": -1 - roots},
        "fraction": {"leaves": roots + 0.5},
        "few leaves": {"leaves": roots[1:]},
        "no leaves": {"leaves": np.zeros((len(roots), 0), np.int64)},
        "offsets": {"offsets": np.zeros(len(roots) + 1, np.int64)},
        "nan": {"weight": np.full(len(roots), np.nan)},
        "minus": {"weight": np.full(len(roots), -1.0)},
        "attributes": {"attributes": np.zeros(len(roots))},
        "infinite": {"attributes": np.full((len(roots), 2), np.inf)},
    }
    if what in changed:
        return {name: Instances(**{**sound, **changed[what]})}
    return {
        "nothing": None,
        "empty": {},
        "arrays": {name: (roots, roots)},
        "name": {"own": Instances(**sound)},
        "types": {"account__own__bank": Instances(**sound)},
        "wrong type": {"account__own__device": Instances(**sound)},
        "wrong leaf": {"device__own__account": Instances(**sound)},
    }[what]


def uneven(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Give weights in the partition of the first node only."""
    own = roots[graph.types(roots) == 0]
    weight = np.ones(len(own)) if roots[0] == 0 else None
    return {"account__own__account": Instances(own, own, weight)}


def failing(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Fail."""
    return {"x": roots[graph.num_nodes]}  # type: ignore[dict-item]
