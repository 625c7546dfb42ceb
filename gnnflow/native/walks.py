"""Random walks along in-edges, and whom they visit.

Shapes: N nodes, E edges, n roots, k nodes kept of each at most, V kept of all.
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
    """The most visited nodes of all roots, root by root, best first [V], and their shares of the root's visits [V]."""

    roots: IntArray
    nodes: IntArray
    weight: npt.NDArray[np.float32]


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
    threads: int = 1,
) -> Visited | None:
    """Walk from the nodes first .. first + n - 1 and count whom the walks visit; None without the core.

    words [n]: what a root's draws are hashed from. offsets [N + 1] and sources [E]: the in-edges of all nodes.
    begins [E]: where each edge's part of 2^32 begins in its row, the first of a row at 0; None: all parts are alike.
    types [N]: only nodes of a root's own type are counted. threads: change no bit, and are torch's, where it lent them.
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
    leaves, visits, kept = (np.empty(shape, np.int32) for shape in ((count, top_k), (count, top_k), count))
    held = [array.ctypes.data for array in (words, offsets, sources)]
    found = [array.ctypes.data for array in (leaves, visits)]
    if native.gnnflow_walks(count, first, *held, parts, place, walks, length, top_k, *found, kept.ctypes.data, threads):
        raise MemoryError("walks of one root need more memory than there is")
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(kept, out=bounds[1:])
    made = Visited(*(np.empty(bounds[-1], dtype) for dtype in (np.int64, np.int64, np.float32)))
    out = [array.ctypes.data for array in made]
    native.gnnflow_visit_shares(count, first, top_k, *found, bounds.ctypes.data, *out, threads)
    return made
