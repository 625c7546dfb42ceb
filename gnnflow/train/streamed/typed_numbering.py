"""In which order the nodes of a typed graph lie in its files: by rank, then by type, each type in intervals of its own.

Shapes: N nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import numpy as np

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.book import PartitionBook
from gnnflow.train.streamed.numbering import Numbering, by_id, even_sizes, numbered


def types_in(book: PartitionBook) -> Array:
    """Return the number of each node's type [N], two bytes each."""
    types = np.arange(book.num_types, dtype=np.int16)
    return np.repeat(np.tile(types, book.num_partitions), np.diff(book.offsets))


def by_type(types: Array, intervals: Sequence[int], *, bounds: Sequence[int]) -> Numbering:
    """Return the order of ranks, of types within a rank and of ids within both.

    types [N]: of each node. intervals: that each rank has of each type. bounds: where the ids of each rank begin, and
    where those of the last one end.
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
    """Return where nodes lie on one rank: each type's as `numbered` has them, behind those of the types before it.

    types [N]: of each node. intervals: of each type. Degrees are those in all relations together.
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
    """Return parts of a graph, one behind the other: of each its type, its nodes [n], and how these lie."""
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
