"""Graph convolution: Kipf and Welling, "Semi-supervised classification with graph convolutional networks", ICLR 2017.

Equation 2, H' = D^-1/2 (A + I) D^-1/2 H W + b, with D = in-weights + 1 of the full graph. Both square roots depend on
one endpoint each, so they are scales of nodes and the edge keeps its weight alone. On a directed graph D is the
in-weight of either endpoint, which is the paper's degree where edges go both ways.

Shapes: N nodes, E edges, D out_width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from torch import Tensor, nn

from gnnflow.layers.aggregation import Sum
from gnnflow.layers.base import WeightedLayer
from gnnflow.layers.terms import LinearUpdate, NodeContext, Terms


@final
class GCN(WeightedLayer):
    """Sum over in-neighbours and itself of weight / sqrt(d_u d_v) x W h_u, plus a bias."""

    include_self = True
    aggregation = Sum()

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__(in_width, out_width)
        self.linear = nn.Linear(in_width, out_width, bias=False)
        self.bias = nn.Parameter(self.linear.weight.new_zeros(out_width))
        nn.init.xavier_uniform_(self.linear.weight)

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = h [N, 1, in_width], and the scale 1 / sqrt(d) [N] of either side."""
        scale = (node.in_weight + 1.0).rsqrt()
        return Terms({"value": h[:, None], "scale": scale}, {"scale": scale})

    @property
    def value_weight(self) -> Tensor:
        """W, which commutes with the sum."""
        return self.linear.weight

    @property
    def linear_update(self) -> LinearUpdate:
        """The bias."""
        return LinearUpdate(self.bias)

    @property
    def fixed_terms(self) -> bool:
        """True: degrees and weights of edges come from the graph."""
        return True

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Add the bias."""
        return aggregated.flatten(1) + self.bias
