"""The job and the steps of walks in memory, shared by the rounds of `walks.py` and the views of `walk_views.py`.

The native core walks where it is installed, NumPy elsewhere: both compare the same integers and give the same bytes.

Shapes: n roots, W walks, L steps, N nodes, E edges, V visits, D distinct pairs of a root and a node it visits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import AlignedArrays, Array, IntArray, KeyArray, is_first, offsets_of
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.native.walks import Visited, walk
from gnnflow.neighbors.keyed import keyed_edges, place_of
from gnnflow.neighbors.selection import Selection
from gnnflow.sampling import top_k
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from gnnflow.config.neighbors_section import WalkNeighbors
    from gnnflow.graph.arrays import FloatArray

SMALL_IDS = 1 << 31
"""Number of nodes, or of edges, below which their ids are 32-bit integers."""
_FEW_VISITS = 1 << 22  # held at once without the native core
_HALF = np.uint64(32)


@dataclass(frozen=True)
class WalkJob(Selection):
    """The job of walks, known to every task."""

    walks: int
    length: int
    top_k: int
    by_weight: bool = False

    @property
    def id_type(self) -> type[np.integer]:
        """The type of dense ids in an exchange."""
        return np.int32 if self.store.facts.num_nodes < SMALL_IDS else np.int64

    def word(self, view: int = 0) -> np.uint64:
        """Return the word that a view's draws are hashed from, with the root; view 0 is the stage's selection."""
        return seed_word("walks", self.seed, view) if view else seed_word("walks", self.seed)


def job_of(store_job: Selection, section: WalkNeighbors) -> WalkJob:
    """Return the job of walks. Raises ConfigError where the graph lacks the weights to walk by."""
    base = store_job.of(section.relations(store_job.store.schema))
    by_weight = section.by == "weight"
    if by_weight and not base.store.facts.has_weight:
        raise ConfigError(
            "walks by weight need edge weights, and the graph has none",
            where="neighbors.by",
            fix="Add a weight column to the edge table, or set it to uniform.",
        )
    numbers = section.walks, section.length, section.top_k
    return WalkJob(base.artifact, base.store, base.relations, base.seed, *numbers, by_weight=by_weight)


def number_of(job: WalkJob, node_type: int) -> int:
    """Return the number of the relation of walks from the nodes of a type."""
    name = job.store.schema.types[node_type]
    return next(number for number, each in enumerate(job.schema.relations) if each.target == name)


@dataclass(frozen=True)
class Steps:
    """The in-edges of consecutive nodes, which walks follow: offsets [n + 1], sources as dense ids [E].

    begins [E], of walks by weight: the begin of each edge's part of its node's weights, of 2^32. None: all alike.
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
        """Return the nodes that draws lead to from rows [n] with in-edges."""
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
    """Return the begin of each edge's part of its row's weights, of 2^32 [E]. weights [E] are above 0.

    A row's weights become whole numbers of 2^-31 of its largest, at least one, so that their sums are exact and do not
    depend on other rows.
    """
    # in-degree of all rows [n]; the rows with in-edges, and the largest weight of each of them
    degrees = np.diff(offsets)
    filled = np.flatnonzero(degrees)
    largest = np.maximum.reduceat(weights, offsets[filled]) if len(filled) else weights
    # each weight as a share of its row's largest, then as a whole number [E]
    share = weights.astype(np.float64) / np.repeat(largest.astype(np.float64), degrees[filled])
    whole = np.maximum(np.rint(share * 2.0**31), 1).astype(np.uint64)
    # sums over all rows may wrap at 2^64, which does not change differences within a row
    before = np.cumsum(whole) - whole
    # for each edge [E]: the sum before its row's first edge, and its row's whole sum
    starts = np.repeat(before[offsets[filled]], degrees[filled])
    total = np.repeat(np.add.reduceat(whole, offsets[filled]) if len(filled) else whole, degrees[filled])
    part = (before - starts).astype(np.float64) / total.astype(np.float64)
    return np.minimum(part * 2.0**32, 2.0**32 - 1).astype(np.uint32)


def _last_begun(begins: Array, first: IntArray, degrees: IntArray, *, point: Array) -> IntArray:
    """Return the last edge of each run that begins at or before a point, by a binary search for each."""
    place, left = first.copy(), degrees.copy()
    while np.any(left > 1):
        # of each row, `left` edges from `place` on are still possible; half of them are dropped
        half = left // 2
        place += np.where(begins[place + half] <= point, half, 0)
        left -= half
    return place


@dataclass(frozen=True)
class Visits(AlignedArrays):
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
    """Return the most visited nodes of a run of roots of one type. keys [n] and the word decide all draws."""
    options = {"walks": job.walks, "length": job.length, "top_k": job.top_k, "threads": threads}
    made = walk(first, keys, graph.offsets, graph.sources, word=word, begins=graph.begins, types=types, **options)
    if made is not None:
        return made
    words, at_once = combine(keys, word), max(_FEW_VISITS // (job.walks * job.length), 1)
    parts = [most_visited(_NO_VISITS, np.zeros(0, np.int64), top_k_of_each=job.top_k)]
    for start in range(0, len(words), at_once):
        roots = np.arange(first + start, first + min(start + at_once, len(words)))
        # visits of some roots' walks, then the nodes that these roots visit most
        visits = _walked(roots, words[start : start + at_once], graph, types=types, job=job)
        parts.append(most_visited(visits, roots, top_k_of_each=job.top_k))
    return Visited(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _walked(roots: IntArray, words: KeyArray, graph: Steps, *, types: Array | None, job: WalkJob) -> Visits:
    """Return the visits of all walks from some roots, in plain NumPy."""
    # one row per active walk [W]: its root's place among these roots, its number, and its node
    root, number = (each.ravel() for each in np.indices((len(roots), job.walks)))
    last, met = roots[root], []
    for step in range(job.length):
        # the walks whose node has in-edges
        going = np.flatnonzero(graph.offsets[last + 1] - graph.offsets[last])
        root, number, last = root[going], number[going], last[going]
        drawn = draws(words[root], number, step=step, length=job.length)
        last = graph.reached(last, drawn).astype(np.int64)
        # whether each step is a visit: of a node of the root's type other than the root
        seen = last != roots[root]
        if types is not None:
            seen &= types[last] == types[roots[root]]
        met.append(Visits(roots[root[seen]], last[seen], number[seen] * job.length + step))
    return Visits.joined(met)


def draws(words: KeyArray, numbers: IntArray, *, step: int, length: int) -> KeyArray:
    """Return the draw of one step of each walk. words: of the roots; numbers: of the walks."""
    return mix(words ^ (numbers * length + step).astype(np.uint64))


def most_visited(visits: Visits, roots: IntArray, *, top_k_of_each: int) -> Visited:
    """Return the most visited nodes of each root. roots: ascending, with all roots of the visits."""
    if not len(visits.roots):
        none = np.zeros(0, visits.nodes.dtype), np.zeros(0, np.float32)
        return Visited(np.zeros(len(roots), np.int32), *none, np.zeros(len(roots), np.float32))
    # the lowest visited node, and the one above the highest
    low, high = int(visits.nodes.min()), int(visits.nodes.max()) + 1
    # each pair of root and node as one integer that sorts by root, then node [V]; and the first row of each pair [D]
    pairs = (visits.roots.astype(np.int64) - roots[0]) * (high - low) + (visits.nodes - low)
    order = np.argsort(pairs)
    pairs = pairs[order]
    first = np.flatnonzero(is_first(pairs))
    # number of visits of each pair, and its first visit [D]
    times = np.diff(first, append=len(pairs))
    met = np.minimum.reduceat(visits.order[order], first)
    row, node = np.divmod(pairs[first], high - low)
    # most visits first, then the earliest met: no two of a root are met at the same step
    priority = (np.uint64(times.max()) - times.astype(np.uint64)) << _HALF
    priority |= met.astype(np.uint64)
    kept = top_k(offsets_of(np.bincount(row, minlength=len(roots))), priority, limit=top_k_of_each)
    return _with_shares(np.diff(kept.offsets), (node[kept.edges] + low).astype(visits.nodes.dtype), times[kept.edges])


def _with_shares(kept: IntArray, nodes: Array, visits: IntArray) -> Visited:
    """Return nodes with their shares of their roots' visits. kept [n]: number of nodes of each root."""
    # the root of each kept node, by its number [V]
    root, number = np.repeat(np.arange(len(kept)), kept), len(kept)
    # visits, and then shares, of each root [n]
    visited = np.bincount(root, visits, minlength=number)
    weight = (visits / visited[root]).astype(np.float32)
    total = np.bincount(root, weight, minlength=number).astype(np.float32)
    return Visited(kept.astype(np.int32), nodes, weight, total)
