"""R-GCN: Schlichtkrull, Kipf, Bloem et al., "Modeling relational data with graph convolutional networks", ESWC 2018.

Equation 2, h' = sum_r mean(W_r h_u over the in-neighbours in relation r) + W_0 h_v + b, and the basis decomposition of
equation 3, W_r = sum_b a_rb V_b with V shared by all relations of a layer. Deviations: W_0 and b are of the node's
type; the sum over relations may be another way to join (`model.across`); in a graph with edge weights the mean is the
weighted one. On a graph without types there is one relation, and the layer is GraphSAGE's mean.

Shapes: N nodes, E edges, D out_width, I in_width, B bases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, final

import torch
from torch import Tensor, nn

from gnnflow.config import RGCNConfig
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers.aggregation import Mean
from gnnflow.layers.base import WeightedLayer
from gnnflow.layers.place import Place
from gnnflow.layers.relational import RelationLayers, glorot_linear
from gnnflow.layers.terms import LinearUpdate, NodeContext, Terms


@final
class Bases(nn.Module):
    """The matrices V [B, D, I] of which the relations' weights are combinations."""

    def __init__(self, num_bases: int, in_width: int, out_width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_bases, out_width, in_width))
        for each in self.weight:
            nn.init.xavier_uniform_(each)


@final
class RGCN(WeightedLayer):
    """The mean of the in-neighbours in one relation, mapped.

    bases: shared by the relations, and registered by their owner; None: a separate matrix. with_self: add W_0 h + b
    here, if no type does.
    """

    aggregation = Mean()

    def __init__(self, in_width: int, out_width: int, *, bases: Bases | None = None, with_self: bool = True) -> None:
        super().__init__(in_width, out_width)
        self._bases = (bases,)  # in a tuple, so that it is not registered twice
        shape = (out_width, in_width) if bases is None else (1, len(bases.weight))
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.xavier_uniform_(self.weight)
        self.own = glorot_linear(in_width, out_width) if with_self else None

    @classmethod
    def from_config(cls, config: RGCNConfig, place: Place) -> Self:
        """Return the layer of a graph without types, which holds the bases of its one relation."""
        bases = None if config.bases is None else Bases(config.bases, place.in_width, place.width)
        layer = cls(place.in_width, place.width, bases=bases)
        if bases is not None:
            layer.add_module("bases", bases)
        return layer

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = h [N, 1, in_width]; the target keeps h if that is mapped too."""
        return Terms({"value": h[:, None]}, {} if self.own is None else {"h": h})

    @property
    def value_weight(self) -> Tensor:
        """W_r, which commutes with the mean."""
        (bases,) = self._bases
        # not a matrix product, which autocast would round: weights stay float32
        return self.weight if bases is None else (self.weight.view(-1, 1, 1) * bases.weight).sum(0)

    @property
    def linear_update(self) -> LinearUpdate:
        """The term W_0 h + b, if this layer has it."""
        return LinearUpdate() if self.own is None else LinearUpdate(self.own.bias, "h", self.own.weight)

    @property
    def fixed_terms(self) -> bool:
        """True: the rows stay the same."""
        return True

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the mapped mean, plus W_0 h + b if this layer has it."""
        rows = aggregated.flatten(1)
        return rows if self.own is None else rows + self.own(own["h"])


def relation_layers(config: RGCNConfig, place: Place, schema: GraphSchema) -> RelationLayers:
    """Return one model layer: a matrix or a combination of bases per relation, W_0 and b per type."""
    bases = None if config.bases is None else Bases(config.bases, place.in_width, place.width)
    layers = [RGCN(place.in_width, place.width, bases=bases, with_self=False) for _ in schema.relations]
    return RelationLayers(schema, layers, across=config.across, own=range(schema.num_types), shared=bases)
