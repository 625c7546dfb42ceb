"""A layer's terms as NumPy arrays, and side by side in one row: what the slices of a model take, give and send.

Shapes: N nodes, K packed width of a node's terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.tensors import tensor
from gnnflow.graph.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

TermArrays = Mapping[str, FloatArray]


@dataclass(frozen=True)
class SliceTerms:
    """One layer's terms of some nodes: float32 [N, ...] by name. source may be sent, target stays."""

    source: dict[str, FloatArray]
    target: dict[str, FloatArray]

    def take(self, rows: IntArray) -> SliceTerms:
        """Return the terms of the given rows."""
        parts = ({name: each[rows] for name, each in terms.items()} for terms in (self.source, self.target))
        return SliceTerms(*parts)


@dataclass(frozen=True)
class TermLayout:
    """How some of a node's terms lie side by side in one float32 row: names in order, each with its shape per node."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, terms: Mapping[str, Tensor]) -> TermLayout:
        """Return the layout of these terms, sorted by name."""
        names = tuple(sorted(terms))
        return cls(names, tuple(tuple(terms[name].shape[1:]) for name in names))

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each term."""
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def width(self) -> int:
        """Columns K of a packed row."""
        return sum(self.widths)

    def pack(self, terms: TermArrays) -> FloatArray:
        """Return the terms side by side [N, K]."""
        assert tuple(sorted(terms)) == self.names
        num_nodes = len(terms[self.names[0]])
        columns = zip(self.names, self.widths, strict=True)
        return np.concatenate([terms[name].reshape(num_nodes, width) for name, width in columns], axis=1)

    def unpack(self, rows: FloatArray) -> dict[str, FloatArray]:
        """Return the terms of packed rows [N, K], in the order of `names`."""
        ends = np.cumsum(self.widths)
        parts = np.split(rows, ends[:-1], axis=1)
        return {
            name: part.reshape(len(rows), *shape)
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }


@dataclass(frozen=True)
class TermLayouts:
    """The layouts of one layer's terms: source as it is sent, target as it is kept. target may have no terms."""

    source: TermLayout
    target: TermLayout


def terms_to_arrays(terms: Mapping[str, Tensor]) -> dict[str, FloatArray]:
    """Return terms or states as float32 arrays, sorted by name so that their order is the same everywhere."""
    return {name: terms[name].detach().cpu().numpy().astype(np.float32, copy=False) for name in sorted(terms)}


def arrays_to_terms(arrays: TermArrays) -> dict[str, Tensor]:
    """Return float32 arrays as tensors, sorted by name."""
    return {name: tensor(np.ascontiguousarray(arrays[name])) for name in sorted(arrays)}
