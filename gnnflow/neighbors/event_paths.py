"""Finds events that reveal links: nodes of another type that belong to a link and join its two ends.

Where a user orders an item, and the model predicts whether the user buys it, the held-out link carries no message, but
the order still does: user - order - item is the answer. Random pairs have no such order.

Shapes: P links, E edges, M nodes of the type between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.arrays import AlignedArrays, distinct, find_places, offsets_of, ragged_ranges
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.neighbors.link_candidates import LinkSample
    from gnnflow.storage.graph_store import GraphStore

_LEAST = 0.1  # smallest share of joined links to report
_TIMES = 2  # smallest ratio to the share of random pairs
_FIRST = np.iinfo(np.int64).min  # earlier than any time


@dataclass(frozen=True)
class _Edges(AlignedArrays):
    """Edges from the type in between to ends of links [E]: dense ids, and times, the earliest where there are none."""

    between: IntArray
    ends: IntArray
    times: IntArray


class _Paths(NamedTuple):
    """Pairs that events join, as source * num_nodes + target, ascending, and the later edge's time of each."""

    pairs: IntArray
    times: IntArray


class JoinedShares(NamedTuple):
    """The shares of links, and of random pairs, that some event joins."""

    links: float
    random: float


def revealing_events(store: GraphStore, links: LinkSample, *, seed: int) -> dict[str, tuple[float, float]]:
    """Return the types whose nodes join the ends of links far more often than random pairs, with both shares."""
    found = {store.schema.types[kind]: shares_joined(store, links, kind, seed=seed) for kind in types_between(store)}
    return {name: shares for name, shares in found.items() if shares.links > max(_LEAST, _TIMES * shares.random)}


def shares_joined(store: GraphStore, links: LinkSample, node_type: int, *, seed: int) -> JoinedShares:
    """Return the shares of links, and of pairs of their sources with random nodes, that events of a type join.

    An event has one neighbour of the links' source type, or one of their target type: a node that many on both sides
    share, such as a city, is none. An edge that is not earlier than its link does not count.
    """
    source_type, target_type = store.facts.pair_types
    if not len(links.sources):
        return JoinedShares(0.0, 0.0)
    strangers = _random_targets(store, links.keys, seed=seed)
    near = _edges(store, node_type, source_type, ends=links.sources, between=None)
    ends = np.concatenate([links.targets, strangers])
    far = _edges(store, node_type, target_type, ends=ends, between=distinct(near.between))
    events = _events(store, distinct(far.between), node_type)
    num_nodes = store.facts.num_nodes
    paths = _paths(near, far, events, num_nodes=num_nodes)
    return JoinedShares(*(_share(links, to, paths, num_nodes=num_nodes) for to in (links.targets, strangers)))


def types_between(store: GraphStore) -> tuple[int, ...]:
    """Return the types of nodes that have edges with both types of the links, and are neither."""
    joined = {*zip(store.schema.source_types, store.schema.target_types, strict=True)}
    joined |= {(target, source) for source, target in joined}
    ends = store.facts.pair_types
    return tuple(
        number
        for number in range(store.schema.num_types)
        if number not in ends and all((number, end) in joined for end in ends)
    )


def _relations(store: GraphStore, node_type: int, end_type: int) -> Iterator[tuple[int, bool]]:
    """Yield the relations between two types, and whether they lead from the first to the second."""
    for number, ways in enumerate(zip(store.schema.source_types, store.schema.target_types, strict=True)):
        if ways in {(node_type, end_type), (end_type, node_type)}:
            yield number, ways[0] == node_type


def _edges(store: GraphStore, node_type: int, end_type: int, *, ends: IntArray, between: IntArray | None) -> _Edges:
    """Return the edges between nodes of a type and these ends; between: only edges of these nodes."""
    found = [(np.zeros(0, np.int64),) * 3]
    for relation, is_source in _relations(store, node_type, end_type):
        timed = "time" in store.edge_columns_of(relation)
        for part in range(store.num_partitions):
            for piece in store.iter_edges(part, ["src", "dst", *(["time"] if timed else [])], relation=relation):
                src, dst = (to_numpy(piece[name]).astype(np.int64) for name in ("src", "dst"))
                # both ends of each edge of the piece, and whether the edge is kept
                middle, end = (src, dst) if is_source else (dst, src)
                kept = np.isin(end, ends)
                if between is not None:
                    kept &= np.isin(middle, between)
                times = to_numpy(piece["time"])[kept] if timed else np.full(int(kept.sum()), _FIRST)
                found.append((middle[kept], end[kept], times))
    return _Edges(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _events(store: GraphStore, nodes: IntArray, node_type: int) -> IntArray:
    """Return the nodes with one neighbour of either type of the links [M]."""
    kept, owner = [np.zeros(0, np.int64)], store.book.owner(nodes)
    for part in distinct(owner).tolist():
        # the partition's nodes [n], and their rows
        own = nodes[owner == part]
        degrees, rows = store.degrees(part), own - store.book.start(part)
        # each node's smaller number of neighbours of the two types [n]
        fewest = np.full(len(own), np.iinfo(np.int64).max)
        for end_type in store.facts.pair_types:
            # an edge and its reverse lie in two relations, so the larger count is taken
            most = np.zeros(len(own), np.int64)
            for relation, is_source in _relations(store, node_type, end_type):
                held = degrees.relation(relation)
                most = np.maximum(most, (held.out_degree if is_source else held.in_degree)[rows])
            fewest = np.minimum(fewest, most)
        kept.append(own[fewest == 1])
    return np.concatenate(kept)


def _paths(near: _Edges, far: _Edges, events: IntArray, *, num_nodes: int) -> _Paths:
    """Return the paths over events, which have one neighbour on one side: no more paths than edges."""
    near, far = (each.take(np.flatnonzero(np.isin(each.between, events))) for each in (near, far))
    near = near.take(np.argsort(near.between, kind="stable"))
    # near edges are grouped by event: the run of them with the event of each far edge
    first, last = (np.searchsorted(near.between, far.between, side) for side in ("left", "right"))
    # the near edge and the far edge of each path
    rows, others = ragged_ranges(first, last - first), np.repeat(np.arange(len(far.between)), last - first)
    pairs = near.ends[rows] * num_nodes + far.ends[others]
    times = np.maximum(near.times[rows], far.times[others])
    order = np.lexsort((times, pairs))
    return _Paths(pairs[order], times[order])


def _share(links: LinkSample, targets: IntArray, paths: _Paths, *, num_nodes: int) -> float:
    """Return the share of pairs of link sources and targets [P] that a path joins before the link's time."""
    # the first path of each pair is the earliest
    place = find_places(paths.pairs, links.sources * num_nodes + targets)
    joined = place >= 0
    if links.times is not None:
        joined[joined] = paths.times[place[joined]] < links.times[joined]
    return float(joined.mean())


def _random_targets(store: GraphStore, keys: KeyArray, *, seed: int) -> IntArray:
    """Return a random node that a link may lead to for each key [P], all equally likely."""
    book, node_type = store.book, store.facts.pair_types.target
    rows = [book.rows(part, node_type) for part in range(store.num_partitions)]
    # for each partition: its first node of the type, and the number of such nodes in earlier partitions
    starts = np.array([book.start(part) + held.start for part, held in enumerate(rows)])
    before = offsets_of(np.array([held.stop - held.start for held in rows]))
    # number of each drawn node among all nodes of the type, and its partition [P]
    number = (combine(keys, seed_word("strangers", seed)) % np.uint64(before[-1])).astype(np.int64)
    part = np.searchsorted(before, number, side="right") - 1
    found: IntArray = starts[part] + number - before[part]
    return found
