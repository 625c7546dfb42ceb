"""What attention over in-edges is given that has no gradient: alike for the core and for the card.

Shapes: T targets, S sources, E edges, A edge attributes, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.dropout import dropout
from gnnflow.kernels.halves import Halves


@dataclass(frozen=True)
class Fixed:
    """Attributes [E, A], factor [E], and kept [E, H], what dropout multiplies a weight with; None where there are none.

    slope: of logits that come as halves; None where they come per edge.
    """

    csr: Csr
    slope: float | None
    attributes: Tensor | None
    factor: Tensor | None
    kept: Tensor | None

    @staticmethod
    def drawn(
        csr: Csr, logit: Tensor | Halves, *, attributes: Tensor | None = None, factor: Tensor | None, drop: float
    ) -> Fixed:
        """Draw what dropout keeps of the edges. Raises IndexError where there are not as many factors as edges."""
        first, slope = (logit.source, logit.slope) if isinstance(logit, Halves) else (logit, None)
        kept = dropout(first.new_ones(csr.num_edges, first.shape[1]), drop) if drop else None
        return Fixed(csr, slope, attributes, None if factor is None else rows_of(csr.num_edges, factor).float(), kept)

    def logits(self, first: Tensor, second: Tensor | None) -> tuple[Tensor | float | None, ...]:
        """Return logits per edge [E, H], or else halves of sources [S, H] and targets [T, H]; slope; number of heads.

        first: logits per edge, or the sources' halves; second: the targets', where there are halves.
        """
        if self.slope is None or second is None:
            return rows_of(self.csr.num_edges, first), None, None, 1.0, first.shape[1]
        halves = rows_of(self.csr.num_sources, first), rows_of(self.csr.num_targets, second)
        return None, *halves, self.slope, first.shape[1]
