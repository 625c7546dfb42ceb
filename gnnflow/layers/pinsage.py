"""PinSage: Ying et al., "Graph convolutional neural networks for web-scale recommender systems", KDD 2018.

Algorithm 1: n_v = the mean of relu(Q h_u + q) over the neighbours, weighted by their share of the visits of random
walks (`neighbors: {kind: walks}` gives it as the edge's weight), h' = relu(W [h_v || n_v] + w), then h' at unit length.
The concatenation is written as two products. Deviations: a layer that gives the scores has neither relu nor unit
length, and on a graph without weights the mean is the plain one. `model.head` gives the dense layers after the last
convolution.

Shapes: N nodes, E edges, D out_width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, final

from torch import Tensor, nn

from gnnflow.config import PinSageConfig
from gnnflow.kernels import Map, affine
from gnnflow.layers.aggregation import Mean
from gnnflow.layers.base import WeightedLayer
from gnnflow.layers.place import Place
from gnnflow.layers.relational import glorot_linear
from gnnflow.layers.terms import NodeContext, Terms


@final
class PinSage(WeightedLayer):
    """A map of the node's row concatenated with the weighted mean of its mapped neighbours.

    gives_scores: omit relu and unit length, which scores do not have.
    """

    aggregation = Mean()

    def __init__(self, in_width: int, out_width: int, *, gives_scores: bool = False) -> None:
        super().__init__(in_width, out_width)
        self.gives_scores = gives_scores
        self.pool = glorot_linear(in_width, out_width)
        self.own = glorot_linear(in_width, out_width)
        self.neighbor = nn.Linear(out_width, out_width, bias=False)
        nn.init.xavier_uniform_(self.neighbor.weight)

    @classmethod
    def from_config(cls, config: PinSageConfig, place: Place) -> Self:
        """Return the layer."""
        return cls(place.in_width, place.width, gives_scores=place.is_last and config.head == "direct")

    @property
    def never_negative(self) -> bool:
        """True unless the layer gives scores: it ends in relu."""
        return not self.gives_scores

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = relu(Q h + q) [N, 1, D]; the target keeps h."""
        value = affine([Map(h, self.pool.weight)], self.pool.bias, relu=True)
        return Terms({"value": value[:, None]}, {"h": h})

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return relu(W [h || n] + w) at unit length; a row of zeros stays one."""
        maps = [Map(own["h"], self.own.weight), Map(aggregated.flatten(1), self.neighbor.weight)]
        return affine(maps, self.own.bias, relu=not self.gives_scores, unit=not self.gives_scores)
