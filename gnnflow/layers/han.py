"""HAN: Wang, Ji, Shi, Wang, Cui, Yu and Ye, "Heterogeneous graph attention network", WWW 2019.

Equation 1 maps the rows of each type, with one matrix for all relations; equations 2-6 are graph attention over the
neighbours in one relation, with separate attention vectors; equations 7-9, which join the rows of relations by an
attention over them, are in `across.py`. Metapaths are relations. Deviations:

- the paper averages q . tanh(W z + b) over all nodes of the graph before the softmax over relations, which an execution
  on a part of the graph cannot do: here each node has its weights, with W, b and q of its type;
- a node is its own neighbour only in relations from a type to itself, such as metapaths; the map of another type does
  not fit its row;
- the activation follows the join, not each relation, and each relation has a bias.

Shapes: N nodes, E edges, H heads, D width of a head, I in_width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import HANConfig
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers.attention import SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.place import Place
from gnnflow.layers.relational import RelationLayers
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms, attention_terms, heads_joined

NEGATIVE_SLOPE = 0.2


@final
class HAN(Layer):
    """Multi-head additive attention over the in-neighbours in one relation, between rows of two types.

    source and target: the maps [H x D, in_width] of the relation's ends, registered by their owner; the same if the
    relation joins a type with itself. Rows come out heads x head_width wide with concat, else head_width.
    """

    aggregation = SoftmaxAttention()
    logit_slope = NEGATIVE_SLOPE

    def __init__(
        self,
        in_width: int,
        head_width: int,
        *,
        heads: int,
        source: nn.Linear,
        target: nn.Linear,
        concat: bool = True,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(in_width, heads * head_width if concat else head_width)
        self.concat = concat
        self.coefficient_dropout = attention_dropout
        self.include_self = source is target
        self._ends = (source, target)  # in a tuple, so that they are not registered twice
        self.attend_source = nn.Parameter(torch.empty(heads, head_width))
        self.attend_target = nn.Parameter(torch.empty(heads, head_width))
        self.bias = nn.Parameter(torch.zeros(self.out_width))
        for weight in (self.attend_source, self.attend_target):
            nn.init.xavier_uniform_(weight)

    @classmethod
    def from_config(cls, config: HANConfig, place: Place) -> Self:
        """Return the layer of a graph without types, which holds the map of its one type."""
        linear = _type_map(config, place)
        layer = _layer(config, place, source=linear, target=linear)
        layer.add_module("linear", linear)
        return layer

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value = W_s h [N, H, D] of a source, and both halves of the logit [N, H]."""
        source, target = self._ends
        if source is target:
            value, of_source, of_target = attention_terms(h, source.weight, self.attend_source, self.attend_target)
        else:
            value, of_source = attention_terms(h, source.weight, self.attend_source)
            # the product a W_t [H, I], since the value W_t h of a target is not needed
            weight = target.weight.view(*self.attend_target.shape, -1)
            of_target = h @ torch.einsum("hd,hdi->ih", self.attend_target, weight)
        return Terms({"value": value, "logit": of_source}, {"logit": of_target})

    def coefficient(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        """Return the logits [E, H]."""
        return functional.leaky_relu(source["logit"] + target["logit"], NEGATIVE_SLOPE)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the heads joined, plus the bias."""
        return heads_joined(aggregated, self.bias, concat=self.concat)


def relation_layers(config: HANConfig, place: Place, schema: GraphSchema) -> RelationLayers:
    """Return one model layer: a map per type, attention vectors and a bias per relation."""
    maps = [_type_map(config, place) for _ in schema.types]
    ends = zip(schema.source_types, schema.target_types, strict=True)
    layers = [_layer(config, place, source=maps[source], target=maps[target]) for source, target in ends]
    return RelationLayers(schema, layers, across=config.across, shared=nn.ModuleList(maps))


def _type_map(config: HANConfig, place: Place) -> nn.Linear:
    linear = nn.Linear(place.in_width, _heads(config, place) * place.width, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear


def _layer(config: HANConfig, place: Place, *, source: nn.Linear, target: nn.Linear) -> HAN:
    return HAN(
        place.in_width,
        place.width,
        heads=_heads(config, place),
        source=source,
        target=target,
        concat=not _gives_scores(config, place),
        attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
    )


def _heads(config: HANConfig, place: Place) -> int:
    return config.output_heads if _gives_scores(config, place) else config.heads


def _gives_scores(config: HANConfig, place: Place) -> bool:
    """Return whether a layer's heads are averaged into scores; otherwise they are concatenated."""
    return place.is_last and config.head == "direct"
