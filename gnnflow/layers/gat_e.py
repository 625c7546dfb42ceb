"""GAT-E: attention whose logit and message read the edge attributes, after GraphTheta (Li et al. 2022).

logit = LeakyReLU(a_source . W h_u + a_target . W h_v + B e_uv), with B [A, H], and message = softmax(logit) x
[W h_u | e_uv], whose attribute part is projected per head by U [H, A, D] after the sum: U commutes with it, so no edge
is ever projected. The self message has attributes zero. This form is ours; the rest is as in `gat.py`.

Shapes: N nodes, E edges, A edge attributes, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import GATEConfig
from gnnflow.graph.errors import LayerError
from gnnflow.layers.attention import SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.gat import NEGATIVE_SLOPE
from gnnflow.layers.place import Place
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms, attention_terms, heads_joined


@final
class GATE(Layer):
    """Multi-head attention over in-neighbours and the node itself, with edge attributes in logit and message."""

    include_self = True
    aggregation = SoftmaxAttention()
    uses_edge_attributes = True

    def __init__(
        self,
        in_width: int,
        head_width: int,
        *,
        attribute_width: int,
        heads: int = 1,
        concat: bool = True,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(in_width, heads * head_width if concat else head_width)
        if attribute_width < 1:
            raise LayerError(
                "gat_e needs edge attributes and the graph has none",
                where="model.kind",
                fix="Name the edge columns to use in graph.edge_features, or choose gat.",
            )
        self.heads, self.head_width, self.concat = heads, head_width, concat
        self.coefficient_dropout = attention_dropout
        self.linear = nn.Linear(in_width, heads * head_width, bias=False)
        self.attend_source = nn.Parameter(torch.empty(heads, head_width))
        self.attend_target = nn.Parameter(torch.empty(heads, head_width))
        self.attend_edge = nn.Parameter(torch.empty(attribute_width, heads))
        self.edge_linear = nn.Parameter(torch.empty(heads, attribute_width, head_width))
        self.bias = nn.Parameter(torch.zeros(self.out_width))
        weights = [self.linear.weight, self.attend_source, self.attend_target, self.attend_edge, *self.edge_linear]
        for weight in weights:
            nn.init.xavier_uniform_(weight)

    @classmethod
    def from_config(cls, config: GATEConfig, place: Place) -> Self:
        """Return the layer: heads side by side, in the last layer output_heads averaged."""
        return cls(
            place.in_width,
            place.width,
            attribute_width=place.attribute_width,
            heads=config.output_heads if place.is_last else config.heads,
            concat=not place.is_last,
            attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
        )

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = W h [N, H, D] and the node halves of the logit [N, H]."""
        weights = self.linear.weight, self.attend_source, self.attend_target
        value, of_source, of_target = attention_terms(h, *weights)
        return Terms({"value": value, "logit": of_source}, {"logit": of_target})

    def coefficient(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        """Return the logits [E, H]."""
        assert edge.attributes is not None
        logit = source["logit"] + target["logit"] + edge.attributes @ self.attend_edge
        return functional.leaky_relu(logit, NEGATIVE_SLOPE)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the value part plus the projected attribute part, heads joined, plus the bias."""
        value, attributes = aggregated[:, :, : self.head_width], aggregated[:, :, self.head_width :]
        projected = torch.einsum("nha,had->nhd", attributes, self.edge_linear)
        return heads_joined(value + projected, self.bias, concat=self.concat)
