"""GraphSAGE: Hamilton, Ying and Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017.

Algorithm 1 with the mean aggregator, h' = W_self h_v + W_neigh mean(h_u) + b (the concatenation written as two
products), and the pooling aggregator of equation 3, h' = W_self h_v + W_neigh max(relu(W_pool h_u + b_pool)) + b.
Deviations: rows are not normalised to unit length (line 7), and in a graph with edge weights the mean is the weighted
one; over a sample drawn in proportion to the weights it is the self-normalised estimate of that mean (`Mean`), which
applies each weight once. First weights are uniform within 1 / sqrt(in_width), as in PyG's SAGEConv, or Glorot's where
pairs are scored, and biases zero (decision 38). The pooling aggregator is NGra's MP-GCN. With a sum in the mean's place
it is CommNet (Sukhbaatar, Szlam and Fergus, "Learning multiagent communication with backpropagation", NeurIPS 2016), as
NGra has it: Ma et al., "Towards efficient large-scale graph neural network computing", 2018.

Shapes: N nodes, E edges, D out_width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self, final

import torch
from torch import Tensor, nn

from gnnflow.config import SAGEConfig
from gnnflow.layers.aggregation import Aggregation, Max, Mean, Sum
from gnnflow.layers.base import Layer
from gnnflow.layers.place import Place
from gnnflow.layers.terms import EdgeContext, LinearUpdate, NodeContext, Terms

_AGGREGATIONS: Mapping[str, Aggregation] = {"mean": Mean(), "max": Max(), "sum": Sum()}


@final
class GraphSAGE(Layer):
    """W_self h plus the mean or sum, or the maximum after a pooling layer, of the in-neighbours."""

    def __init__(
        self,
        in_width: int,
        out_width: int,
        *,
        aggregator: Literal["mean", "max", "sum"] = "mean",
        first_weights: Literal["inputs", "glorot"] = "inputs",
    ) -> None:
        super().__init__(in_width, out_width)
        self.aggregation = _AGGREGATIONS[aggregator]
        self.own = nn.Linear(in_width, out_width)
        self.pool = nn.Linear(in_width, out_width) if aggregator == "max" else None
        self.neighbor = nn.Linear(in_width if self.pool is None else out_width, out_width, bias=False)
        for linear in (self.own, self.pool, self.neighbor):
            if linear is None:
                continue
            if first_weights == "glorot":
                nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    @classmethod
    def from_config(cls, config: SAGEConfig, place: Place) -> Self:
        """Return the layer with the configured aggregator."""
        first_weights: Literal["inputs", "glorot"] = "glorot" if place.scores_pairs else "inputs"
        return cls(place.in_width, place.width, aggregator=config.aggregator, first_weights=first_weights)

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value [N, 1, in_width or D]: h, or relu(W_pool h + b_pool); the target keeps h."""
        value = h if self.pool is None else torch.relu(self.pool(h))
        return Terms({"value": value[:, None]}, {"h": h})

    @property
    def value_weight(self) -> Tensor | None:
        """W_neigh, which commutes with a mean or sum and not with the maximum."""
        return self.neighbor.weight if self.pool is None else None

    @property
    def linear_update(self) -> LinearUpdate | None:
        """W_self h and the bias, if W_neigh maps the aggregated rows."""
        return LinearUpdate(self.own.bias, "h", self.own.weight) if self.pool is None else None

    @property
    def fixed_terms(self) -> bool:
        """True unless the rows pass the pooling layer first: they stay the same."""
        return self.pool is None

    def coefficient(
        self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
    ) -> Tensor | None:
        """Return the edge's weight for a mean or sum, one for the maximum [E, 1]."""
        return None if self.pool is not None else edge.weight_column(self.own.weight)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return W_self h + the aggregated neighbours."""
        neighbors = aggregated.flatten(1) if self.pool is None else self.neighbor(aggregated.flatten(1))
        result: Tensor = self.own(own["h"]) + neighbors
        return result
