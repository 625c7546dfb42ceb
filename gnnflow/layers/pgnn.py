"""P-GNN: You, Ying and Leskovec, "Position-aware graph neural networks", ICML 2019.

Algorithm 1 over the nearest member u_i of each of K anchor sets, as the authors' code has it instead of all members.
`neighbors: {kind: anchors}` gives an edge for each set that has a member near enough, with weight s(v, u_i) =
1 / (distance + 1) and the number of the set as its attribute:

    M_i = s(v, u_i) W [h_v || h_i]
    structure   h' = the mean of M_i over the sets                  every layer
    position    z_i = w . M_i, at unit length                       the last layer, where `model.anchor_sets` says so

W [h_v || h_i] is W_v h_v + W_u h_i, and the mean of both is one weighted sum of h_i and one number per node.
Deviations: no relu on M_i, which the code has and the paper does not; the mean is over the sets with a member near
enough; and anchor sets stay the same in every epoch, so that scores can be computed anywhere.

Shapes: N nodes, E edges, D width, K anchor sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import PGNNConfig
from gnnflow.layers.aggregation import Slots, Sum
from gnnflow.layers.base import Layer
from gnnflow.layers.place import Place
from gnnflow.layers.relational import glorot_linear
from gnnflow.layers.terms import EdgeContext, LinearUpdate, NodeContext, Terms

SHORTEST = 1e-6
"""A row shorter than this is not brought to unit length: its direction is noise, and its gradient would be huge."""


@final
class PGNN(Layer):
    """The mean message from the anchor sets, or with `anchor_sets` one number per set."""

    def __init__(self, in_width: int, width: int, *, anchor_sets: int | None = None) -> None:
        super().__init__(in_width, width if anchor_sets is None else anchor_sets)
        self.aggregation = Sum() if anchor_sets is None else Slots(anchor_sets)
        self.own = glorot_linear(in_width, width)
        self.neighbor = nn.Linear(in_width, width, bias=False)
        nn.init.xavier_uniform_(self.neighbor.weight)
        self.position = None if anchor_sets is None else nn.Linear(width, 1, bias=False)

    @classmethod
    def from_config(cls, config: PGNNConfig, place: Place) -> Self:
        """Return the layer; the last one gives positions if the config sets the number of anchor sets."""
        return cls(place.in_width, place.width, anchor_sets=config.anchor_sets if place.is_last else None)

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = h [N, 1, in_width], and s h of the target; s is the mean of its edges' weights.

        For positions: value = [w . W_u h | 1] [N, 1, 2], and w . W_v h of the target [N].
        """
        if self.position is not None:
            scores = functional.linear(self.neighbor(h), self.position.weight)
            own = functional.linear(functional.linear(h, self.own.weight), self.position.weight)
            return Terms({"value": torch.cat([scores, torch.ones_like(scores)], 1)[:, None]}, {"own": own})
        share = node.in_degree.clamp(min=1.0).reciprocal()
        return Terms({"value": h[:, None]}, {"h": h * (share * node.in_weight)[:, None].to(h), "scale": share})

    @property
    def value_weight(self) -> Tensor | None:
        """W_u, which commutes with the mean."""
        return self.neighbor.weight if self.position is None else None

    @property
    def linear_update(self) -> LinearUpdate | None:
        """W_v s h and the bias."""
        return LinearUpdate(self.own.bias, "h", self.own.weight) if self.position is None else None

    @property
    def fixed_terms(self) -> bool:
        """True unless the rows are scored here: they stay the same."""
        return self.position is None

    def coefficient(
        self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
    ) -> Tensor | None:
        """Return s of each edge [E, 1]."""
        return edge.weight_column(self.own.weight)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the mean message, or each set's number, at unit length [N, K]."""
        if self.position is None:
            rows: Tensor = self.own(own["h"]) + aggregated.flatten(1)
            return rows
        # per set s x the score of its member, and s itself [N, K, 2]
        sums = aggregated.view(len(aggregated), aggregated.shape[2] // 2, 2)
        return functional.normalize(sums[:, :, 0] + sums[:, :, 1] * own["own"], dim=1, eps=SHORTEST)
