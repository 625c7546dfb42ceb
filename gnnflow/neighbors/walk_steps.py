"""The steps of walks and the visits they make, in memory: along which in-edges a draw leads, and whom walks visit most.

The native core walks where it is there, NumPy elsewhere: both compare the same integers and give the same bytes. What
the rounds of `walks.py` and the views of `walk_views.py` have in common is here.

Shapes: n roots, W walks, L steps, N nodes, E edges, V visits, D distinct pairs of a root and a node it visits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import Array, IntArray, KeyArray, offsets_of
from gnnflow.graph.hashing import combine, mix
from gnnflow.native.walks import Visited, walk
from gnnflow.neighbors.keyed import keyed_edges, place_of
from gnnflow.sampling import top_k
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from gnnflow.graph.arrays import FloatArray
    from gnnflow.neighbors.walk_job import WalkJob

_FEW_VISITS = 1 << 22  # held at once without the native core
_HALF = np.uint64(32)


@dataclass(frozen=True)
class Steps:
    """The in-edges that walks go along, of nodes that lie together: offsets [n + 1], sources as dense ids [E].

    begins [E], of walks by weight: where each edge's part of its node's weights begins, of 2^32. None: all alike.
    """

    offsets: IntArray
    sources: Array
    begins: Array | None

    @staticmethod
    def of(offsets: IntArray, pieces: Sequence[pa.Table]) -> Steps:
        """Return the edges of exchange rows, piece by piece."""

        def column(name: str) -> Array:
            held = [to_numpy(piece[name]) for piece in pieces]
            return held[0] if len(held) == 1 else np.concatenate(held)

        begins = column("begin") if "begin" in pieces[0].column_names else None
        return Steps(offsets, column("src"), begins)

    def reached(self, rows: IntArray, drawn: KeyArray) -> Array:
        """Return where draws lead from rows [n], each of which has an in-edge."""
        first, degrees = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        if self.begins is None:
            place = first + place_of(drawn, degrees)
        else:
            place = _last_begun(self.begins, first, degrees, point=(drawn >> _HALF).astype(np.uint32))
        found: Array = self.sources[place]
        return found


def keyed_steps(job: WalkJob, partition: int) -> Steps:
    """Return a partition's in-edges in the order of their keys."""
    edges = keyed_edges(job.store, partition, weighted=job.by_weight)
    begun = None if edges.weights is None else begins(edges.offsets, edges.weights)
    return Steps(edges.offsets, edges.sources.astype(job.id_type), begun)


def begins(offsets: IntArray, weights: FloatArray) -> Array:
    """Return where each edge's part of its row's weights begins, of 2^32 [E]. weights [E] are above 0.

    A row's weights are taken as whole numbers of 2^-31 of its largest, at least one, so that sums of them are exact and
    those of one row do not depend on others.
    """
    degrees = np.diff(offsets)
    filled = np.flatnonzero(degrees)
    largest = np.maximum.reduceat(weights, offsets[filled]) if len(filled) else weights
    share = weights.astype(np.float64) / np.repeat(largest.astype(np.float64), degrees[filled])
    whole = np.maximum(np.rint(share * 2.0**31), 1).astype(np.uint64)
    # Sums over all rows may pass 2^64 and begin anew, which differences within a row do not see.
    before = np.cumsum(whole) - whole
    starts = np.repeat(before[offsets[filled]], degrees[filled])
    total = np.repeat(np.add.reduceat(whole, offsets[filled]) if len(filled) else whole, degrees[filled])
    part = (before - starts).astype(np.float64) / total.astype(np.float64)
    return np.minimum(part * 2.0**32, 2.0**32 - 1).astype(np.uint32)


def _last_begun(begins: Array, first: IntArray, degrees: IntArray, *, point: Array) -> IntArray:
    """Return the position of the last edge of each run that begins at or before a point: a binary search for each."""
    place, left = first.copy(), degrees.copy()
    while np.any(left > 1):
        half = left // 2
        place += np.where(begins[place + half] <= point, half, 0)
        left -= half
    return place


@dataclass(frozen=True)
class Visits:
    """Visits of nodes by walks from roots [V]. order: the number of the step among all steps from the root."""

    roots: Array
    nodes: Array
    order: Array


_NO_VISITS = Visits(*[np.zeros(0, np.int64)] * 3)


def walks_from(
    first: int,
    keys: KeyArray,
    graph: Steps,
    *,
    word: np.uint64,
    types: Array | None,
    job: WalkJob,
    threads: int = 1,
) -> Visited:
    """Return whom walks visit from a run of roots of one type. Their keys [n] and the word decide all draws."""
    options = {"walks": job.walks, "length": job.length, "top_k": job.top_k, "threads": threads}
    made = walk(first, keys, graph.offsets, graph.sources, word=word, begins=graph.begins, types=types, **options)
    if made is not None:
        return made
    words, at_once = combine(keys, word), max(_FEW_VISITS // (job.walks * job.length), 1)
    parts = [most_visited(_NO_VISITS, np.zeros(0, np.int64), top_k_of_each=job.top_k)]
    for start in range(0, len(words), at_once):
        roots = np.arange(first + start, first + min(start + at_once, len(words)))
        visits = _walked(roots, words[start : start + at_once], graph, types=types, job=job)
        parts.append(most_visited(visits, roots, top_k_of_each=job.top_k))
    return Visited(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _walked(roots: IntArray, words: KeyArray, graph: Steps, *, types: Array | None, job: WalkJob) -> Visits:
    """Return the visits of all walks from some roots, in plain NumPy."""
    # one row per walk that goes on: its root's place among these roots, its number, and where it is
    root, number = (each.ravel() for each in np.indices((len(roots), job.walks)))
    last, met = roots[root], []
    for step in range(job.length):
        going = np.flatnonzero(graph.offsets[last + 1] - graph.offsets[last])
        root, number, last = root[going], number[going], last[going]
        drawn = draws(words[root], number, step=step, length=job.length)
        last = graph.reached(last, drawn).astype(np.int64)
        seen = last != roots[root]
        if types is not None:
            seen &= types[last] == types[roots[root]]
        met.append(Visits(roots[root[seen]], last[seen], number[seen] * job.length + step))
    return _joined(met)


def draws(words: KeyArray, numbers: IntArray, *, step: int, length: int) -> KeyArray:
    """Return the draw of one step of each walk, of which words are the roots' and numbers the walks'."""
    return mix(words ^ (numbers * length + step).astype(np.uint64))


def most_visited(visits: Visits, roots: IntArray, *, top_k_of_each: int) -> Visited:
    """Return the most visited nodes of each root; roots ascend and are those of the visits, or more."""
    if not len(visits.roots):
        none = np.zeros(0, visits.nodes.dtype), np.zeros(0, np.float32)
        return Visited(np.zeros(len(roots), np.int32), *none, np.zeros(len(roots), np.float32))
    low, high = int(visits.nodes.min()), int(visits.nodes.max()) + 1
    # each pair of root and node as one integer that sorts by root, then node [V]; and where each pair begins [D]
    pairs = (visits.roots.astype(np.int64) - roots[0]) * (high - low) + (visits.nodes - low)
    order = np.argsort(pairs)
    pairs = pairs[order]
    first = np.flatnonzero(np.append([True], pairs[1:] != pairs[:-1]))
    # how often each pair was visited, and when first [D]
    times = np.diff(first, append=len(pairs))
    met = np.minimum.reduceat(visits.order[order], first)
    row, node = np.divmod(pairs[first], high - low)
    # most visits first, then the earliest met: no two of a root are met at the same step
    priority = (np.uint64(times.max()) - times.astype(np.uint64)) << _HALF
    priority |= met.astype(np.uint64)
    kept = top_k(offsets_of(np.bincount(row, minlength=len(roots))), priority, limit=top_k_of_each)
    return _with_shares(np.diff(kept.offsets), (node[kept.edges] + low).astype(visits.nodes.dtype), times[kept.edges])


def _with_shares(kept: IntArray, nodes: Array, visits: IntArray) -> Visited:
    """Return nodes with their shares of the visits of their roots; kept [n]: how many each root has."""
    root, number = np.repeat(np.arange(len(kept)), kept), len(kept)
    # visits, and then shares, of each root [n]
    visited = np.bincount(root, visits, minlength=number)
    weight = (visits / visited[root]).astype(np.float32)
    total = np.bincount(root, weight, minlength=number).astype(np.float32)
    return Visited(kept.astype(np.int32), nodes, weight, total)


def _joined(parts: list[Visits]) -> Visits:
    names = ("roots", "nodes", "order")
    return Visits(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
