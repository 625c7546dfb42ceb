"""Orders of edges.

Shapes: T targets, S sources, E edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.native.library import core

IntArray = npt.NDArray[np.int64]


class Transposed(NamedTuple):
    """Edges by source: offsets [S + 1], the edges' numbers [E] (of one source: in their order), and targets [E]."""

    offsets: IntArray
    edges: IntArray
    targets: IntArray


def transpose(offsets: IntArray, sources: IntArray, *, num_sources: int) -> Transposed | None:
    """Return the edges of a CSR by target (offsets [T + 1], sources [E]) by source; None without the core.

    Raises IndexError where an edge comes from no source.
    """
    found = core()
    if found is None:
        return None
    offsets, sources = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(sources, np.int64)
    if len(sources) != offsets[-1] - offsets[0] or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise IndexError("offsets do not lead to the edges")
    made = Transposed(*(np.empty(size, np.int64) for size in (num_sources + 1, len(sources), len(sources))))
    addresses = [array.ctypes.data for array in (offsets, sources, *made)]
    if found.gnnflow_transpose(len(offsets) - 1, *addresses[:2], num_sources, *addresses[2:]):
        raise IndexError("an edge comes from no source")
    return made
