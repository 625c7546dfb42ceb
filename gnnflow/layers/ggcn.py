"""G-GCN: graph convolution with gated edges, in the form that NGra computes (Ma et al. 2018).

The gates are of Marcheggiani and Titov, "Encoding sentences with graph convolutional networks for semantic role
labeling", EMNLP 2017; theirs are one number per edge, NGra's one per edge and column.

h' = W (the sum over in-neighbours u of sigmoid(W_t h_v + W_s h_u) * h_u) + b, products of rows by column. Deviations:
the gates and W have a bias; edge weights multiply messages. The halves of a gate depend on one endpoint each, so each
is mapped once per node. A node's own row arrives through a self-loop of the graph alone.

Shapes: N nodes, E edges, I in_width, D out_width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from gnnflow.layers.aggregation import Sum
from gnnflow.layers.base import Layer
from gnnflow.layers.relational import glorot_linear
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms


@final
class GGCN(Layer):
    """A map of the sum of in-neighbours, whose columns pass gates that both endpoints decide."""

    aggregation = Sum()

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__(in_width, out_width)
        self.source_gate = glorot_linear(in_width, in_width)
        self.target_gate = torch.nn.Linear(in_width, in_width, bias=False)
        torch.nn.init.xavier_uniform_(self.target_gate.weight)
        self.linear = glorot_linear(in_width, out_width)

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = h and the halves of the gate, each [N, 1, I]."""
        source = {"value": h[:, None], "gate": self.source_gate(h)[:, None]}
        return Terms(source, {"gate": self.target_gate(h)[:, None]})

    def message(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        """Return gate x value x the edge's weight [E, 1, I]."""
        passed = torch.sigmoid(source["gate"] + target["gate"]) * source["value"]
        weight = edge.weight_column(passed)
        return passed if weight is None else weight[:, :, None] * passed

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return W times the gated sum, plus the bias."""
        rows: Tensor = self.linear(aggregated.flatten(1))
        return rows
