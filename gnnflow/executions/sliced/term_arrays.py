"""A layer's terms as NumPy arrays: what the slices of a model take, give and send.

Shapes: N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.plan import TermArrays
from gnnflow.executions.tensors import tensor
from gnnflow.graph.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

_ALIGNMENT = 16


@dataclass(frozen=True)
class SliceTerms:
    """One layer's terms of some nodes: float32 [N, ...] by name. source may be sent, target stays."""

    source: dict[str, FloatArray]
    target: dict[str, FloatArray]

    def take(self, rows: IntArray) -> SliceTerms:
        """Return the terms of the given rows."""
        parts = ({name: each[rows] for name, each in terms.items()} for terms in (self.source, self.target))
        return SliceTerms(*parts)


def terms_to_arrays(terms: Mapping[str, Tensor]) -> dict[str, FloatArray]:
    """Return terms or states as float32 arrays, sorted by name so that their order is the same everywhere."""
    return {name: terms[name].detach().cpu().numpy().astype(np.float32, copy=False) for name in sorted(terms)}


def arrays_to_terms(arrays: TermArrays) -> dict[str, Tensor]:
    """Return float32 arrays as tensors, sorted by name."""
    return {name: tensor(_aligned(arrays[name])) for name in sorted(arrays)}


def _aligned(array: FloatArray) -> FloatArray:
    """Return an array in contiguous memory from a multiple of 16 bytes on, copied where it lies elsewhere.

    The last bits of a matrix product depend on that, so they would on where rows come from.
    """
    whole: FloatArray = np.ascontiguousarray(array)
    return whole if whole.ctypes.data % _ALIGNMENT == 0 else whole.copy()
