"""Gated graph neural network: Li, Tarlow, Brockschmidt and Zemel, "Gated graph sequence neural networks", ICLR 2016.

Equations 2 to 6: a_v = the sum over in-edges of A_r h_u + b, with a matrix A_r per type of edge, and h' = GRU(h_v,
a_v). On a typed graph a type of edge is a relation; the sums over all relations into a node's type are one sum, which a
GRU of that type reads. Deviations: each layer has separate parameters, where the paper repeats one layer; a row whose
width differs from the output is mapped to that width first, where the paper pads with zeros; the other direction of
edges is `graph.reverse_edges`; edge weights multiply messages.

Shapes: N nodes, E edges, I in_width, D out_width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from torch import Tensor, nn

from gnnflow.config import GGNNConfig
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers.aggregation import Sum
from gnnflow.layers.base import WeightedLayer
from gnnflow.layers.place import Place
from gnnflow.layers.relational import RelationLayers, glorot_linear
from gnnflow.layers.terms import NodeContext, Terms


class Recurrence(nn.Module):
    """A GRU from the aggregated row [N, D] and the node's row [N, I] to a new row [N, D]."""

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.own = None if in_width == out_width else glorot_linear(in_width, out_width)
        self.cell = nn.GRUCell(out_width, out_width)

    def forward(self, aggregated: Tensor, h: Tensor) -> Tensor:
        """Return GRU(h, aggregated), where h is mapped first if its width differs."""
        rows: Tensor = self.cell(aggregated, h if self.own is None else self.own(h))
        return rows


@final
class GGNN(WeightedLayer):
    """The sum of the mapped in-neighbours, from which a GRU updates the node's row.

    recurrence: of the target's type, registered by its owner; None: a separate one.
    """

    aggregation = Sum()

    def __init__(self, in_width: int, out_width: int, *, recurrence: Recurrence | None = None) -> None:
        super().__init__(in_width, out_width)
        self.neighbor = nn.Linear(in_width, out_width, bias=False)
        nn.init.xavier_uniform_(self.neighbor.weight)
        made = Recurrence(in_width, out_width) if recurrence is None else recurrence
        self._recurrence = (made,)  # in a tuple, so that a shared one is not registered twice
        if recurrence is None:
            self.add_module("recurrence", made)

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = A_r h [N, 1, D]; the target keeps h."""
        return Terms({"value": self.neighbor(h)[:, None]}, {"h": h})

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return GRU(h, the sum)."""
        (recurrence,) = self._recurrence
        rows: Tensor = recurrence(aggregated.flatten(1), own["h"])
        return rows


def relation_layers(config: GGNNConfig, place: Place, schema: GraphSchema) -> RelationLayers:
    """Return one model layer: a matrix per relation, one sum over all relations, and a GRU per target type."""
    types = sorted(set(schema.target_types))
    recurrences = {number: Recurrence(place.in_width, place.width) for number in types}
    layers = [GGNN(place.in_width, place.width, recurrence=recurrences[number]) for number in schema.target_types]
    shared = nn.ModuleList(recurrences.values())
    return RelationLayers(schema, layers, shared=shared, merges_states=True)
