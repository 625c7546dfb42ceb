"""Random walks along in-edges, and the nodes that they visit.

Shapes: N nodes, E edges, n roots, k the most kept nodes of a root, V kept nodes of all roots.
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
    """The most visited nodes of all roots [V], root by root, best first, and their shares of visits [V].

    kept [n]: the number of kept nodes of each root. total [n]: the sum of their shares.
    """

    kept: RowArray
    nodes: RowArray
    weight: npt.NDArray[np.float32]
    total: npt.NDArray[np.float32]


def walk(
    first: int,
    keys: KeyArray,
    offsets: IntArray,
    sources: RowArray,
    *,
    word: np.uint64,
    begins: npt.NDArray[np.uint32] | None = None,
    types: npt.NDArray[np.uint8] | None,
    walks: int,
    length: int,
    top_k: int,
    threads: int = 1,
) -> Visited | None:
    """Walk from the nodes first .. first + n - 1 and count the visits; None without the core.

    keys [n], word: a root's draws are hashes of them. offsets [N + 1], sources [E]: the in-edges of all nodes.
    begins [E]: the start of each edge's part of 2^32 in its row, 0 for the first; None: all parts are equal.
    types [N]: only nodes of a root's type are counted. threads: do not change the result, and are torch's, where it
    lent them.
    """
    native = core()
    if native is None:
        return None
    keys, offsets = np.ascontiguousarray(keys, np.uint64), np.ascontiguousarray(offsets, np.int64)
    sources = np.ascontiguousarray(sources, np.int32)
    count, num_nodes = len(keys), len(offsets) - 1
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
    graph = [array.ctypes.data for array in (offsets, sources)]
    found = [array.ctypes.data for array in (leaves, visits)]
    given = (count, first, keys.ctypes.data, int(word), *graph, parts, place, walks, length, top_k)
    if native.gnnflow_walks(*given, *found, kept.ctypes.data, threads):
        raise MemoryError("walks of one root need more memory than there is")
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(kept, out=bounds[1:])
    shapes = ((bounds[-1], np.int32), (bounds[-1], np.float32), (count, np.float32))
    made = Visited(kept, *(np.empty(number, dtype) for number, dtype in shapes))
    out = [array.ctypes.data for array in made[1:]]
    native.gnnflow_visit_shares(count, top_k, *found, bounds.ctypes.data, *out, threads)
    return made


def occurrences(nodes: IntArray | RowArray, num_nodes: int) -> IntArray:
    """Return the number of occurrences of each of N nodes [N]."""
    native = core()
    if native is None or nodes.dtype != np.int32:
        return np.bincount(nodes, minlength=num_nodes)
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < num_nodes:
        raise IndexError("a node is not in the graph")
    given, counts = np.ascontiguousarray(nodes), np.zeros(num_nodes, np.int64)
    native.gnnflow_occurrences(len(given), given.ctypes.data, counts.ctypes.data)
    return counts
