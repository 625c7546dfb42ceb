"""The order of a graph's nodes in its files: the interval of each, and its place there.

Where runs of ids would give intervals of very different numbers of edges, as where a graph has hubs, nodes are dealt to
the intervals by degree, one each in turn and back again, so that all have as many nodes and about as many edges (NGra,
Ma et al. 2018, section 4: vertex ids are encoded anew to balance edge chunks). Else an interval is a run of ids, which
keeps what order the ids have.

An interval is of one node type. Of several types, rows lie by rank and type, and within both as above.

Within an interval rows lie by depth, the number of the last layer behind which they still reach a target: then what a
layer computes are the first rows of every interval. Rows of one depth lie in the order of ids, so a partition is
written in a few runs per interval, and what is written of its edges lies in the order of their targets.

Shapes: N nodes, L levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise

import numpy as np

from gnnflow.graph.arrays import Array, IntArray, offsets_of
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.edges import InEdges
from gnnflow.graph.sampling import Fanout

_SKEWED = 1.25  # times the mean: an interval that has more edges than that has nodes dealt anew
MOST = 0.75  # of all rows: where more are active, all are computed
NOWHERE = -1  # the depth of a row that no layer reads
PER_NODE = 48  # bytes that finding the order takes at once: degrees, depth, an order, and what is kept of them
KEPT_PER_NODE = 5  # bytes while partitions are read: rows and depth
PER_TYPED_NODE = 24  # bytes more where there are types: the nodes of one type, and the whole


@dataclass(frozen=True)
class Run:
    """Some nodes that lie side by side in an interval, as rows from `first` on (numbered over all intervals).

    within: the first of them, numbered within the interval. places [n]: which of the nodes at hand they are. depth:
    theirs.
    """

    interval: int
    first: int
    within: int
    places: IntArray
    depth: int


@dataclass(frozen=True)
class Numbering:
    """Places of nodes in files. sizes: nodes of each interval.

    rows [N]: the row of each node, numbered over all intervals; None where it is its id. levels: per level, how many
    rows of each interval are active there; none where all are. types: the number of each interval's node type; none
    where there is one.
    """

    sizes: tuple[int, ...]
    rows: Array | None = None
    levels: tuple[tuple[int, ...], ...] = ()
    types: tuple[int, ...] = ()

    @cached_property
    def firsts(self) -> IntArray:
        """The first row of each interval, and the end of the last one."""
        return np.array([0, *accumulate(self.sizes)], np.int64)

    def of_type(self, numbers: Sequence[int], node_type: int | None) -> tuple[int, ...]:
        """Return numbers of intervals, with 0 for intervals of other types; None: all as they are."""
        if node_type is None or not self.types:
            return tuple(numbers)
        return tuple(each if of == node_type else 0 for each, of in zip(numbers, self.types, strict=True))

    def active(self, level: int) -> tuple[int, ...]:
        """Return how many rows of each interval are active at a level."""
        return self.levels[level] if self.levels else self.sizes

    def rows_of(self, nodes: Array) -> Array:
        """Return the rows of some nodes, given by their dense ids."""
        return nodes if self.rows is None else self.rows[nodes]

    def runs(self, first: int, num_nodes: int) -> Iterator[Run]:
        """Yield the nodes from `first` on as they lie."""
        if self.rows is None:
            for interval, (start, stop) in enumerate(pairwise(np.clip(self.firsts, first, first + num_nodes).tolist())):
                if start < stop:
                    within = start - int(self.firsts[interval])
                    yield Run(interval, start, within, np.arange(start - first, stop - first), 0)
            return
        rows = self.rows[first : first + num_nodes]
        order = np.argsort(rows)
        held = rows[order]
        of = np.searchsorted(self.firsts, held, side="right") - 1
        within = held - self.firsts[of]
        depth = self._depth(within, of)
        is_next = (np.diff(held) == 1) & (np.diff(of) == 0) & (np.diff(depth) == 0)
        bounds = [0, *(np.flatnonzero(~is_next) + 1).tolist(), num_nodes]
        for start, stop in pairwise(bounds if num_nodes else []):
            yield Run(int(of[start]), int(held[start]), int(within[start]), order[start:stop], int(depth[start]))

    def _depth(self, place: Array, interval: IntArray) -> IntArray:
        """Return the last level at which rows are active, given by their places in intervals; -1 for none."""
        depth = np.full(len(place), -1 if self.levels else 0)
        for active in self.levels:
            depth += place < np.array(active)[interval]
        return depth


def even_sizes(num_nodes: int, intervals: int) -> tuple[int, ...]:
    """Return how many nodes each of some intervals has, where all have as many or one more."""
    bounds = [num_nodes * number // intervals for number in range(intervals + 1)]
    return tuple(stop - start for start, stop in pairwise(bounds))


def by_id(sizes: Sequence[int]) -> Numbering:
    """Return the order of ids: an interval is a run of them."""
    return Numbering(tuple(sizes))


def numbered(
    intervals: int,
    *,
    in_degree: Array,
    out_degree: Array,
    depth: Array | None = None,
    num_levels: int = 0,
) -> Numbering:
    """Return the places of nodes.

    in_degree and out_degree [N]: of the edges that are read. depth [N]: the last of the levels at which each node is
    active, -1 for none; None where all are at all.
    """
    num_nodes = len(in_degree)
    sizes = even_sizes(num_nodes, intervals)
    found = by_id(sizes)
    if is_skewed(in_degree, found.firsts) or is_skewed(out_degree, found.firsts):
        interval = _dealt(in_degree + out_degree, intervals, depth)
    elif depth is None:
        return found
    else:
        interval = np.repeat(np.arange(intervals, dtype=np.int16), sizes)
    # by interval, by depth, by id
    deep = np.zeros(num_nodes, np.int16) if depth is None else num_levels - depth.astype(np.int16)
    order = np.argsort(interval.astype(np.int32) * (num_levels + 2) + deep, kind="stable")
    rows = np.empty(num_nodes, np.int32)
    rows[order] = np.arange(num_nodes, dtype=np.int32)
    levels = [] if depth is None else [_counts(interval[depth >= level], intervals) for level in range(num_levels)]
    return Numbering(_counts(interval, intervals), rows, tuple(levels))


def _counts(interval: Array, intervals: int) -> tuple[int, ...]:
    return tuple(np.bincount(interval, minlength=intervals).tolist())


def is_skewed(degree: Array, firsts: IntArray) -> bool:
    """Return whether a run of ids has many more edges than the mean."""
    edges = np.diff(offsets_of(degree)[firsts])
    return bool(edges.max(initial=0) > _SKEWED * edges.mean()) if len(edges) > 1 else False


def _dealt(degree: Array, intervals: int, depth: Array | None) -> Array:
    """Return the interval of each node [N], dealt by degree within each depth, in turn and back again."""
    order = np.argsort(-degree, kind="stable") if depth is None else np.lexsort((-degree, -depth.astype(np.int16)))
    # the round in which each node is dealt, and its place in the round [N]
    turn, place = np.divmod(np.arange(len(degree), dtype=np.int32), np.int32(intervals))
    interval = np.empty(len(degree), np.int16)
    interval[order] = np.where(turn % 2 == 0, place, intervals - 1 - place)
    return interval


def types_in(book: PartitionBook) -> Array:
    """Return the number of each node's type [N], two bytes each."""
    types = np.arange(book.num_types, dtype=np.int16)
    return np.repeat(np.tile(types, book.num_partitions), np.diff(book.offsets))


def by_type(types: Array, intervals: Sequence[int], *, bounds: Sequence[int]) -> Numbering:
    """Return the order of ranks, of types within a rank and of ids within both.

    types [N]: of each node. intervals: that each rank has of each type. bounds: the first id of each rank, and
    the end of the last one.
    """

    def parts() -> Iterable[tuple[int, IntArray, Numbering]]:
        for first, last in pairwise(bounds):
            for number, asked in enumerate(intervals):
                own = first + np.flatnonzero(types[first:last] == number)
                yield number, own, by_id(even_sizes(len(own), asked))

    return _joined(len(types), parts())


def numbered_by_type(
    types: Array,
    intervals: Sequence[int],
    *,
    in_degree: Array,
    out_degree: Array,
    depth: Array | None = None,
    num_levels: int = 0,
) -> Numbering:
    """Return the places of nodes on one rank: type after type, each as `numbered` has it.

    types [N]: of each node. intervals: of each type. Degrees count the edges of all relations.
    """

    def parts() -> Iterable[tuple[int, IntArray, Numbering]]:
        for number, asked in enumerate(intervals):
            own = np.flatnonzero(types == number)
            deep = None if depth is None else depth[own]
            yield (
                number,
                own,
                numbered(
                    asked, in_degree=in_degree[own], out_degree=out_degree[own], depth=deep, num_levels=num_levels
                ),
            )

    return _joined(len(types), parts())


def _joined(num_nodes: int, parts: Iterable[tuple[int, IntArray, Numbering]]) -> Numbering:
    """Return parts of a graph one after the other. parts: of each its type, its nodes [n], and their places."""
    rows, first = np.empty(num_nodes, np.int32), 0
    sizes: list[int] = []
    types: list[int] = []
    levels: list[tuple[tuple[int, ...], ...]] = []
    for number, nodes, found in parts:
        rows[nodes] = first + (np.arange(len(nodes), dtype=np.int32) if found.rows is None else found.rows)
        first += len(nodes)
        sizes.extend(found.sizes)
        types.extend([number] * len(found.sizes))
        levels.append(found.levels)
    of_levels = tuple(tuple(chain.from_iterable(each)) for each in zip(*levels, strict=True))
    return Numbering(tuple(sizes), rows, of_levels, tuple(types))


def depths(
    book: PartitionBook,
    in_edges: Callable[[int], InEdges] | None,
    targets: IntArray,
    *,
    limits: Sequence[Fanout | None],
) -> Array | None:
    """Return the last layer whose output of each node still reaches a target [N]; 0: only the input is read.

    A breadth-first search goes backwards from the targets, over the stored partitions once per layer, and holds one of
    them at a time. It stops where what it would find saves little. None where all rows are computed in every layer.
    in_edges: reads a partition's; None for a graph without edges. targets: dense ids. limits: the fan-out of each
    layer, targets first.
    """
    num_layers = len(limits)
    depth = np.full(book.num_nodes, NOWHERE, np.int8)
    depth[targets] = num_layers
    for layer in range(num_layers, 0, -1):
        if (depth >= layer).mean() > MOST:
            break
        for partition in range(book.num_partitions):
            first = book.start(partition)
            rows = np.flatnonzero(depth[first : first + book.size(partition)] >= layer)
            if len(rows) and in_edges is not None:
                read = in_edges(partition).step_back(rows, limit=limits[num_layers - layer])
                depth[read] = np.maximum(depth[read], layer - 1)
                del read
    else:
        layer = 0
    if (depth >= layer).mean() > MOST:
        np.maximum(depth, layer, out=depth)
    return None if (depth == num_layers).all() else depth
