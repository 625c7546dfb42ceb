"""Inputs and results of attention over in-edges, alike for the core and for CUDA.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.dropout import dropout


class Halves(NamedTuple):
    """The logit of an edge and head is LeakyReLU(source [S, H] + target [T, H]), with the given negative slope."""

    source: Tensor
    target: Tensor
    slope: float


class SoftmaxSums(NamedTuple):
    """maximum [T, H]: the largest logit, -inf without in-edges; denominator [T, H] relates to it; mean [T, H, W].

    The mean is zero where the denominator is.
    """

    maximum: Tensor
    denominator: Tensor
    mean: Tensor


@dataclass(frozen=True)
class EdgeInputs:
    """Inputs without a gradient: attributes [E, A], factor [E] and the dropout mask kept [E, H]; None where absent.

    slope: the negative slope of logits given as halves; None for logits given per edge.
    """

    csr: Csr
    slope: float | None
    attributes: Tensor | None
    factor: Tensor | None
    kept: Tensor | None

    @staticmethod
    def draw(
        csr: Csr, logit: Tensor | Halves, *, attributes: Tensor | None = None, factor: Tensor | None, drop: float
    ) -> EdgeInputs:
        """Draw the dropout mask of the edges. Raises IndexError unless there is one factor per edge."""
        first, slope = (logit.source, logit.slope) if isinstance(logit, Halves) else (logit, None)
        # the multiple of each edge and head that dropout leaves: zero or the scale [E, H]
        kept = dropout(first.new_ones(csr.num_edges, first.shape[1]), drop) if drop else None
        factor = None if factor is None else rows_of(csr.num_edges, factor).float()
        return EdgeInputs(csr, slope, attributes, factor, kept)

    def logits(self, first: Tensor, second: Tensor | None) -> tuple[Tensor | float | None, ...]:
        """Return five arguments: logits per edge [E, H] or both halves [S, H] and [T, H]; the slope; the heads.

        first: logits per edge, or the sources' halves. second: the targets' halves, or None.
        """
        if self.slope is None or second is None:
            return rows_of(self.csr.num_edges, first), None, None, 1.0, first.shape[1]
        halves = rows_of(self.csr.num_sources, first), rows_of(self.csr.num_targets, second)
        return None, *halves, self.slope, first.shape[1]
