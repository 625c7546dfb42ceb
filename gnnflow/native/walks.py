"""Random walks along in-edges, and whom they visit.

Shapes: N nodes, E edges, n roots, k nodes kept of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.native.library import core

IntArray = npt.NDArray[np.int64]
KeyArray = npt.NDArray[np.uint64]
RowArray = npt.NDArray[np.int32]


class Visited(NamedTuple):
    """The most visited nodes of each root [n, k], best first, their visits [n, k], and how many there are [n]."""

    nodes: RowArray
    visits: RowArray
    kept: RowArray


def walk(
    first: int,
    words: KeyArray,
    offsets: IntArray,
    sources: RowArray,
    *,
    begins: npt.NDArray[np.uint32] | None = None,
    types: npt.NDArray[np.uint8] | None,
    walks: int,
    length: int,
    top_k: int,
) -> Visited | None:
    """Walk from the nodes first .. first + n - 1 and count whom the walks visit; None without the core.

    words [n]: what a root's draws are hashed from. offsets [N + 1] and sources [E]: the in-edges of all nodes.
    begins [E]: where each edge's part of 2^32 begins in its row, the first of a row at 0; None: all parts are alike.
    types [N]: only nodes of a root's own type are counted.
    """
    native = core()
    if native is None:
        return None
    words, offsets = np.ascontiguousarray(words, np.uint64), np.ascontiguousarray(offsets, np.int64)
    sources = np.ascontiguousarray(sources, np.int32)
    count, num_nodes = len(words), len(offsets) - 1
    if not 0 <= first <= first + count <= num_nodes or offsets[-1] != len(sources):
        raise IndexError("roots or edges lie outside of the graph")
    if len(sources) and not 0 <= sources.min() <= sources.max() < num_nodes:
        raise IndexError("an edge comes from no node")
    parts = None
    if begins is not None:
        begins = np.ascontiguousarray(begins, np.uint32)
        assert len(begins) == len(sources)
        parts = begins.ctypes.data
    place = None
    if types is not None:
        types = np.ascontiguousarray(types, np.uint8)
        assert len(types) == num_nodes
        place = types.ctypes.data
    made = Visited(np.empty((count, top_k), np.int32), np.empty((count, top_k), np.int32), np.empty(count, np.int32))
    held, out = [array.ctypes.data for array in (words, offsets, sources)], [array.ctypes.data for array in made]
    if native.gnnflow_walks(count, first, *held, parts, place, walks, length, top_k, *out):
        raise MemoryError("walks of one root need more memory than there is")
    return made
