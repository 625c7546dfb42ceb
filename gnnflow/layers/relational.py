"""One layer of a model: a layer per relation, and a join of their rows per type.

    for each relation r into type t:  z_r = layer_r on r's in-edges, after the update of layer_r
    h' of type t = across_t(z of all r into t)  +  own_t h, if the type has a map own_t

The joined row passes a map of its type if the layer asks for one.

A type without relations into it has only the map own_t. If `merges_states` is set, the relations into a type are parts
of one aggregation: their states are merged before they are finalized, and the first relation's layer updates the rows.

Parameters that relations share are registered here once; their layers refer to them.

A graph without types has one relation: its layer gives the rows, and nothing is joined (`only`).

The join is the topmost level of aggregation. Each node is joined separately, so the way an execution cuts the graph
does not change the result.

Shapes: T targets of one type, R relations, W width.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any, final

import torch
from torch import Tensor, nn

from gnnflow.config.model_section import Joins
from gnnflow.graph.schema import GraphSchema
from gnnflow.kernels import scored_mean
from gnnflow.layers.base import Layer

ATTENTION_WIDTH = 128
"""Width of the semantic attention's hidden rows, as in section 5.3 of the paper on HAN."""


@final
class SemanticAttention(nn.Module):
    """A weighted mean of a node's rows; the weights are a softmax over its relations of q . tanh(W z + b).

    Equations 7-9 of HAN (Wang et al. 2019), with separate weights for each node: see `han.py`.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, ATTENTION_WIDTH)
        self.query = nn.Linear(ATTENTION_WIDTH, 1, bias=False)
        for linear in (self.linear, self.query):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        """Return the weighted means [T, W]."""
        return scored_mean(rows, self.linear.weight, self.linear.bias, self.query.weight[0])


@final
class Across(nn.Module):
    """The join of rows [T, W], one per relation into a type, to the rows [T, W] of its nodes.

    concat: a linear map of the concatenated rows, as for JK-Net's rows per distance (FlexGraph, figure 5). A single
    relation's rows stay the same under every join.
    """

    def __init__(self, join: Joins, width: int, *, relations: int = 1) -> None:
        super().__init__()
        self.join = join
        maps = join == "concat" and relations > 1
        self.linear = nn.Linear(relations * width, width) if maps else None
        if self.linear is not None:
            nn.init.xavier_uniform_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
        self.attention = SemanticAttention(width) if join == "attention" else None

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        """Return the joined rows; relations are added in the given order."""
        if self.attention is not None:
            joined: Tensor = self.attention(rows)
            return joined
        if self.linear is not None:
            beside: Tensor = self.linear(torch.cat(list(rows), 1))
            return beside
        if self.join == "max":
            return reduce(torch.maximum, rows)
        total = reduce(torch.add, rows)
        return total / len(rows) if self.join == "mean" else total


@final
class RelationLayers(nn.Module):
    """The layers of all relations [R], in the schema's order, and their join.

    own: the numbers of the types whose rows also pass a linear map; types without relations into them always do.
    shared: parameters that several layers refer to. out_width: the width to which joined rows are mapped, per type.
    """

    def __init__(
        self,
        schema: GraphSchema,
        layers: Sequence[Layer],
        *,
        across: Joins = "sum",
        own: Collection[int] = (),
        shared: nn.Module | None = None,
        merges_states: bool = False,
        out_width: int | None = None,
    ) -> None:
        super().__init__()
        assert len({(layer.in_width, layer.out_width) for layer in layers}) == 1, "relations give rows of one width"
        assert not (merges_states and any(layer.include_self for layer in layers)), "a self message belongs to no part"
        self.schema = schema
        self.merges_states = merges_states
        self.in_width, width = layers[0].in_width, layers[0].out_width
        self.out_width = width if out_width is None else out_width
        self.shared = shared
        self.relations = nn.ModuleList(layers)
        reached = [number for number in range(schema.num_types) if schema.relations_into(number)]
        mapped = [number for number in range(schema.num_types) if number in own or number not in reached]
        into = {number: len(schema.relations_into(number)) for number in reached}
        self.across = nn.ModuleDict({str(number): Across(across, width, relations=into[number]) for number in reached})
        joined = [] if out_width is None else reached
        self.out = nn.ModuleDict({str(number): glorot_linear(width, self.out_width) for number in joined})
        self.own = nn.ModuleDict({str(number): glorot_linear(self.in_width, self.out_width) for number in mapped})
        # in a tuple, so that it is not registered a second time
        self._only = (layers[0] if len(layers) == 1 and not mapped and not joined else None,)

    def layer(self, relation: int) -> Layer:
        """Return the layer of a relation, by its number in the schema."""
        layer = self.relations[relation]
        assert isinstance(layer, Layer)
        return layer

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of all relations, in the schema's order."""
        return tuple(self.layer(number) for number in range(self.schema.num_relations))

    @property
    def order(self) -> tuple[int, ...]:
        """The relations in the order in which they are computed: type after type of their targets."""
        schema = self.schema
        return tuple(relation for of in range(schema.num_types) for relation in schema.relations_into(of))

    @property
    def only(self) -> Layer | None:
        """The layer whose rows are the new rows unchanged; None where rows are joined, or mapped after it."""
        return self._only[0]

    def joined(self, node_type: int, rows: Sequence[Tensor], h: Tensor) -> Tensor:
        """Return the new rows [T, W] of nodes of one type.

        rows: of each relation into the type [T, W], in the schema's order; one if states are merged. h: the input rows
        of the same nodes [T, in_width].
        """
        return rows[0] if self.only is not None else self.joined_with(node_type, rows, self.own_rows(node_type, h))

    def own_rows(self, node_type: int, h: Tensor) -> Tensor | None:
        """Return the linear map of input rows of one type [T, W]; None if the type has none."""
        name = str(node_type)
        return self.own[name](h) if name in self.own else None

    def joined_with(self, node_type: int, rows: Sequence[Tensor], own: Tensor | None) -> Tensor:
        """Return the new rows [T, W] of nodes of one type. own: the result of `own_rows`."""
        name = str(node_type)
        found: Any = None if name not in self.across else self.across[name](rows)
        if name in self.out:
            found = self.out[name](found)
        if own is None:
            result: Tensor = found
            return result
        return own if found is None else found + own


def glorot_linear(in_width: int, out_width: int) -> nn.Linear:
    """Return a linear map with Glorot's weights and a bias of zeros."""
    linear = nn.Linear(in_width, out_width)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
