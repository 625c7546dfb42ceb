"""Orders of edges and of nodes.

Shapes: T targets, S sources or rows, E edges, F nodes found, N nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.native.library import core

IntArray = npt.NDArray[np.int64]
RowArray = npt.NDArray[np.int32]


class Transposed(NamedTuple):
    """Edges by source: offsets [S + 1], the edges' numbers [E], ascending for each source, and targets [E]."""

    offsets: IntArray
    edges: IntArray
    targets: IntArray


def transpose(offsets: IntArray, sources: IntArray, *, num_sources: int) -> Transposed | None:
    """Return the edges of a CSR by target (offsets [T + 1], sources [E]) by source; None without the core.

    Raises IndexError where an edge's source does not exist.
    """
    native = core()
    if native is None:
        return None
    offsets, sources = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(sources, np.int64)
    if len(sources) != offsets[-1] - offsets[0] or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise IndexError("offsets do not lead to the edges")
    made = Transposed(*(np.empty(size, np.int64) for size in (num_sources + 1, len(sources), len(sources))))
    addresses = [array.ctypes.data for array in (offsets, sources, *made)]
    if native.gnnflow_transpose(len(offsets) - 1, *addresses[:2], num_sources, *addresses[2:]):
        raise IndexError("an edge comes from no source")
    return made


def number(found: RowArray, row_of: RowArray, *, first_row: int) -> tuple[IntArray, RowArray] | None:
    """Give rows from first_row on to new nodes, in the order of found [F]; None without the core.

    row_of [N] holds each node's row, negative for new nodes, and is updated. Returns the row of each node of found [F],
    and the new nodes. Raises IndexError where found is not an index of row_of.
    """
    native = core()
    if native is None:
        return None
    found = np.ascontiguousarray(found, np.int32)
    if len(found) and not 0 <= found.min() <= found.max() < len(row_of):
        raise IndexError("a node lies outside of the rows")
    assert row_of.dtype == np.int32
    assert row_of.flags.c_contiguous
    rows, fresh = np.empty(len(found), np.int64), np.empty(len(found), np.int32)
    addresses = [array.ctypes.data for array in (found, row_of, rows, fresh)]
    met = native.gnnflow_number(len(found), *addresses[:2], first_row, *addresses[2:])
    return rows, fresh[:met]


class NumberedSources(NamedTuple):
    """The sources that are no targets, ascending, each once, and the row of each edge's source [E].

    Rows are the T targets, then those sources.
    """

    others: IntArray
    rows: IntArray


def number_sources(sources: IntArray, targets: IntArray, *, num_nodes: int) -> NumberedSources | None:
    """Return rows of the sources of edges [E] behind the targets [T], ascending, nodes of N; None without the core.

    Takes 16 bytes per 64 nodes, twice. Raises IndexError where a source or target is no node.
    """
    native = core()
    if native is None:
        return None
    sources, targets = np.ascontiguousarray(sources, np.int64), np.ascontiguousarray(targets, np.int64)
    if any(len(nodes) and not 0 <= nodes.min() <= nodes.max() < num_nodes for nodes in (sources, targets)):
        raise IndexError("a node lies outside of the graph")
    words = -(-num_nodes // 64)
    bits, before = np.zeros(2 * words, np.uint64), np.empty(2 * words, np.int64)
    given = (len(sources), sources.ctypes.data, len(targets), targets.ctypes.data, words)
    of_sets = (bits.ctypes.data, before.ctypes.data)
    made = NumberedSources(
        np.empty(native.gnnflow_number_sources(*given, *of_sets, None, None), np.int64),
        np.empty(len(sources), np.int64),
    )
    native.gnnflow_number_sources(*given, *of_sets, made.others.ctypes.data, made.rows.ctypes.data)
    return made


class CutPieces(NamedTuple):
    """Edges in pieces of one rank each.

    order [E]: positions of the edges. bounds [T + 1]: the pieces of each target. begins [pieces + 1]: where the edges
    of each piece begin.
    """

    order: IntArray
    bounds: IntArray
    begins: IntArray


def cut_pieces(offsets: IntArray, sources: IntArray, ranks: IntArray, *, num_ranks: int) -> CutPieces:
    """Order each target's in-edges by the rank of their source, stably: a piece for rank 0 and each other one there is.

    offsets [T + 1] and sources [E]: rows, whose ranks [S] are given. Needs the core.
    """
    native, ranked = core(), _ranked(offsets, sources, ranks, num_ranks)
    assert native is not None, "ranks are for kernels of the core"
    num_targets = len(offsets) - 1
    count, met = np.zeros(num_ranks, np.int64), np.empty(num_ranks, np.int64)
    made = [np.empty(size, np.int64) for size in (len(sources), num_targets + 1, num_targets + len(sources) + 1)]
    given = [array.ctypes.data for array in ranked]
    pieces = native.gnnflow_pieces(num_targets, *given, *(array.ctypes.data for array in (count, met, *made)))
    return CutPieces(made[0], made[1], made[2][: pieces + 1].copy())


class RankCounts(NamedTuple):
    """targets [R]: how many have in-edges from sources of a rank. edges [R]: how many come from such."""

    targets: IntArray
    edges: IntArray


def count_ranks(offsets: IntArray, sources: IntArray, ranks: IntArray, *, num_ranks: int) -> RankCounts:
    """Count targets and in-edges by the rank of the edges' sources: given as for `cut_pieces`. Needs the core."""
    native, ranked = core(), _ranked(offsets, sources, ranks, num_ranks)
    assert native is not None, "ranks are for kernels of the core"
    last, counted = np.full(num_ranks, -1), RankCounts(np.zeros(num_ranks, np.int64), np.zeros(num_ranks, np.int64))
    addresses = [array.ctypes.data for array in (*ranked, last, *counted)]
    native.gnnflow_count_ranks(len(offsets) - 1, *addresses)
    return counted


class _Ranked(NamedTuple):
    """Edges whose sources have ranks, as the core takes them: offsets [T + 1], sources [E], ranks [S]."""

    offsets: IntArray
    sources: IntArray
    ranks: npt.NDArray[np.uint16]


def _ranked(offsets: IntArray, sources: IntArray, ranks: IntArray, num_ranks: int) -> _Ranked:
    """Return edges as the core takes them, after checks."""
    assert 0 < num_ranks <= np.iinfo(np.uint16).max
    offsets, sources = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(sources, np.int64)
    assert not len(sources) or 0 <= sources.min() <= sources.max() < len(ranks)
    return _Ranked(offsets, sources, ranks.astype(np.uint16))
