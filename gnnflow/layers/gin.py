"""Graph isomorphism network: Xu, Hu, Leskovec and Jegelka, "How powerful are graph neural networks?", ICLR 2019.

Equation 4.1, h' = MLP((1 + eps) h_v + sum h_u), with eps learned and a two-layer MLP. Deviations: no batch
normalisation inside the MLP, because its statistics would depend on how an execution cuts the graph; edge weights
multiply messages.

Shapes: N nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from gnnflow.layers.aggregation import Sum
from gnnflow.layers.base import WeightedLayer
from gnnflow.layers.terms import NodeContext, Terms


@final
class GIN(WeightedLayer):
    """A two-layer perceptron on (1 + eps) times the node plus the sum of its in-neighbours."""

    aggregation = Sum()

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__(in_width, out_width)
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(nn.Linear(in_width, out_width), nn.ReLU(), nn.Linear(out_width, out_width))

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return the unchanged rows: value [N, 1, in_width]."""
        return Terms({"value": h[:, None]}, {"h": h})

    @property
    def fixed_terms(self) -> bool:
        """True: the rows stay the same."""
        return True

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return MLP((1 + eps) h + sum)."""
        result: Tensor = self.mlp((1.0 + self.epsilon) * own["h"] + aggregated.flatten(1))
        return result
