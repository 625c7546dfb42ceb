"""Graph attention: Velickovic, Cucurull, Casanova, Romero, Lio and Bengio, "Graph attention networks", ICLR 2018.

Equations 1-6: logit = LeakyReLU(a_source . W h_u + a_target . W h_v), softmax over the in-neighbours and the node
itself, heads concatenated or averaged. The logit's two halves depend on one endpoint each, so each is computed once per
node. Edge weights are not used. Attention dropout acts on the normalised coefficients, as in section 3.3.

Shapes: N nodes, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import GATConfig
from gnnflow.layers.attention import SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.place import Place
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms, attention_terms, heads_joined

NEGATIVE_SLOPE = 0.2


@final
class GAT(Layer):
    """Multi-head additive attention over in-neighbours and the node itself.

    head_width is the width of one head; rows come out heads x head_width wide with concat, else head_width.
    """

    include_self = True
    aggregation = SoftmaxAttention()
    logit_slope = NEGATIVE_SLOPE

    def __init__(
        self, in_width: int, head_width: int, *, heads: int = 1, concat: bool = True, attention_dropout: float = 0.0
    ) -> None:
        super().__init__(in_width, heads * head_width if concat else head_width)
        self.heads = heads
        self.concat = concat
        self.coefficient_dropout = attention_dropout
        self.linear = nn.Linear(in_width, heads * head_width, bias=False)
        self.attend_source = nn.Parameter(torch.empty(heads, head_width))
        self.attend_target = nn.Parameter(torch.empty(heads, head_width))
        self.bias = nn.Parameter(torch.zeros(self.out_width))
        for weight in (self.linear.weight, self.attend_source, self.attend_target):
            nn.init.xavier_uniform_(weight)

    @classmethod
    def from_config(cls, config: GATConfig, place: Place) -> Self:
        """Return the layer: heads side by side, in the last layer output_heads averaged."""
        return cls(
            place.in_width,
            place.width,
            heads=config.output_heads if place.is_last else config.heads,
            concat=not place.is_last,
            attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
        )

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = W h [N, H, D] and the two halves of the logit [N, H]."""
        weights = self.linear.weight, self.attend_source, self.attend_target
        value, of_source, of_target = attention_terms(h, *weights)
        return Terms({"value": value, "logit": of_source}, {"logit": of_target})

    def coefficient(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        """Return the logits [E, H]."""
        return functional.leaky_relu(source["logit"] + target["logit"], NEGATIVE_SLOPE)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the heads joined, plus the bias."""
        return heads_joined(aggregated, self.bias, concat=self.concat)
