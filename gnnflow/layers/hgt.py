"""HGT: Hu, Dong, Wang and Sun, "Heterogeneous graph transformer", WWW 2020.

Equations 3-5: per head, logit = (K_s h_u) W_att_r (Q_t h_v) mu_r / sqrt(D), a softmax over the in-neighbours of all
relations at once, message = (V_s h_u) W_msg_r, and h' = a x A_t gelu(aggregated) + (1 - a) x h with a = sigmoid of a
learned number per type (the authors' code; the paper adds both). K, Q, V and A are of the node's type, W_att, W_msg and
the prior mu of the relation. Deviations: no relative temporal encoding; if the width changes, h is not added;
dropout acts on the normalised attention.

Shapes: N nodes, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import HGTConfig
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers.attention import SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.place import Place
from gnnflow.layers.relational import RelationLayers
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms


@final
class TypeMaps(nn.Module):
    """The maps K, Q, V of one type's rows, and the map from aggregated rows to new rows."""

    def __init__(self, in_width: int, inner_width: int, out_width: int) -> None:
        super().__init__()
        self.key = nn.Linear(in_width, inner_width)
        self.query = nn.Linear(in_width, inner_width)
        self.value = nn.Linear(in_width, inner_width)
        self.out = nn.Linear(inner_width, out_width)
        self.skip = nn.Parameter(torch.ones(())) if in_width == out_width else None
        for linear in (self.key, self.query, self.value, self.out):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def updated(self, h: Tensor, aggregated: Tensor) -> Tensor:
        """Return new rows from the old ones and the aggregated rows [N, H x D]."""
        rows: Tensor = self.out(functional.gelu(aggregated))
        if self.skip is None:
            return rows
        share = torch.sigmoid(self.skip)
        return share * rows + (1.0 - share) * h


@final
class HGT(Layer):
    """Attention over the in-neighbours in one relation, between rows of two types.

    source and target: the maps of the relation's ends, registered by their owner; the same if the relation joins a type
    with itself.
    """

    aggregation = SoftmaxAttention()

    def __init__(
        self,
        in_width: int,
        out_width: int,
        *,
        heads: int,
        source: TypeMaps,
        target: TypeMaps,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(in_width, out_width)
        self.coefficient_dropout = attention_dropout
        self._ends = (source, target)  # in a tuple, so that they are not registered twice
        width = source.key.out_features // heads
        self.attend = nn.Parameter(torch.empty(heads, width, width))
        self.message_weight = nn.Parameter(torch.empty(heads, width, width))
        self.prior = nn.Parameter(torch.ones(heads))
        for each in (*self.attend, *self.message_weight):
            nn.init.xavier_uniform_(each)

    @classmethod
    def from_config(cls, config: HGTConfig, place: Place) -> Self:
        """Return the layer of a graph without types, which holds the maps of its one type."""
        maps = TypeMaps(place.in_width, config.hidden, place.width)
        layer = _layer(config, place, source=maps, target=maps)
        layer.add_module("maps", maps)
        return layer

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return value and key of a source [N, H, D], and query [N, H, D] and row of a target."""
        source, target = self._ends
        heads = (len(self.prior), -1)
        # per head a matrix [D, D] of the relation: [N, H, D] x [H, D, D]
        key = torch.einsum("nhd,hde->nhe", source.key(h).unflatten(1, heads), self.attend)
        value = torch.einsum("nhd,hde->nhe", source.value(h).unflatten(1, heads), self.message_weight)
        query = target.query(h).unflatten(1, heads) * (self.prior / sqrt(key.shape[2]))[:, None]
        return Terms({"value": value, "key": key}, {"query": query, "h": h})

    def coefficient(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        """Return the logits [E, H]."""
        return (source["key"] * target["query"]).sum(2)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the target type's map of the aggregated row, plus a share of the old row."""
        return self._ends[1].updated(own["h"], aggregated.flatten(1))


def relation_layers(config: HGTConfig, place: Place, schema: GraphSchema) -> RelationLayers:
    """Return one model layer: maps per type, matrices and prior per relation, one softmax over all relations."""
    maps = [TypeMaps(place.in_width, config.hidden, place.width) for _ in schema.types]
    ends = zip(schema.source_types, schema.target_types, strict=True)
    layers = [_layer(config, place, source=maps[source], target=maps[target]) for source, target in ends]
    return RelationLayers(schema, layers, shared=nn.ModuleList(maps), merges_states=True)


def _layer(config: HGTConfig, place: Place, *, source: TypeMaps, target: TypeMaps) -> HGT:
    return HGT(
        place.in_width,
        place.width,
        heads=config.heads,
        source=source,
        target=target,
        attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
    )
