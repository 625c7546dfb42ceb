"""MAGNN: Fu, Zhang, Meng and King, "MAGNN: metapath aggregated graph neural network", WWW 2020.

A relation is a metapath and an edge one path along it: its n leaves are the nodes of the path except the root, from the
root outward (`neighbors: {kind: metapaths}`). With h the rows of the encoders per type (equation 1):

    h_P = (h_v + sum over leaves p of h_p * r_1 * ... * r_p) / (n + 1)     equation 4: mean (r = 1) or RotatE
    logit = LeakyReLU(a . [h_v || h_P]), softmax over the paths to v, per head             equation 5
    z = elu(sum of share x h_P), heads concatenated                                        equations 6, 7
    across the metapaths of v's type: `model.across: attention`                            equations 8, 9
    h' = W z per type                                                                      equation 10

* is the complex product, with the halves of a row as real and imaginary part, and r_p has a length of one. No path has
a row: a leaf's row is rotated once per node and position, the root's part of h_P is added after the sum, and its part
of the logit is in the target's half. r belongs to the pair of types that a step joins, and is inverted on the way back,
as in the authors' code; if the name of a relation is not a list of types, r belongs to the position in the path.

Deviations: the authors' code reads h_P alone in the logit unless `attn_switch` is set; here both are read, as the paper
says. The negative slope is their 0.01. Equation 8 averages over all nodes of a type before the softmax, which no
execution on a part of the graph can do, so each node has its weights (as in `han`). The activation after W is the
model's. Dropout of the attention acts only on the leaves' part of h_P.

Shapes: N nodes, E instances, P positions, H heads, D in_width, W out_width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import MAGNNConfig
from gnnflow.graph.errors import LayerError
from gnnflow.graph.schema import GraphSchema
from gnnflow.kernels import elu
from gnnflow.layers.aggregation import Sum
from gnnflow.layers.attention import SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.levels import Levels
from gnnflow.layers.place import Place
from gnnflow.layers.relational import RelationLayers, glorot_linear
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms

NEGATIVE_SLOPE = 0.01


@final
class Rotations(nn.Module):
    """The angles [D / 2] by which each kind of step rotates a row, shared by all paths."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.angles = nn.ParameterDict()

    def hold(self, kinds: Iterable[str]) -> None:
        """Add random angles for the kinds of steps that have none yet."""
        for kind in kinds:
            if kind not in self.angles:
                self.angles[kind] = nn.Parameter(torch.empty(self.width // 2).uniform_(-torch.pi, torch.pi))


@final
class MAGNN(Layer):
    """Attention of several heads over the paths of one metapath, each the mean of its nodes' rows.

    leaves: nodes of a path except the root. steps: per leaf the kind of the step to it, and True for the direction of
    the kind; with them rows are rotated. joins_heads: map the heads to out_width here, if no type does.
    """

    aggregation = Levels(instance=SoftmaxAttention(), leaf=Sum())
    logit_slope = NEGATIVE_SLOPE

    def __init__(
        self,
        in_width: int,
        out_width: int,
        *,
        heads: int = 8,
        leaves: int = 1,
        rotations: Rotations | None = None,
        steps: Sequence[tuple[str, bool]] = (),
        attention_dropout: float = 0.0,
        joins_heads: bool = True,
    ) -> None:
        super().__init__(in_width, out_width if joins_heads else heads * in_width)
        self.nodes = leaves + 1
        self.positions = leaves if rotations is not None else 1
        self.coefficient_dropout = attention_dropout
        self._rotations = (rotations,)  # in a tuple, so that it is not registered twice
        self._steps = tuple(steps)
        self.attend_root = nn.Parameter(torch.empty(heads, in_width))
        self.attend_path = nn.Parameter(torch.empty(heads, in_width))
        nn.init.xavier_normal_(self.attend_root, gain=1.414)
        nn.init.xavier_normal_(self.attend_path, gain=1.414)
        self.out = glorot_linear(heads * in_width, out_width) if joins_heads else None

    @classmethod
    def from_config(cls, config: MAGNNConfig, place: Place) -> Self:
        """Return the layer of a graph of one relation, which maps the heads itself."""
        rotations = _rotations(config, place)
        layer = _layer(config, place, rotations=rotations, steps=(("0_0", True),) * place.leaves, joins_heads=True)
        if rotations is not None:
            layer.add_module("rotations", rotations)
        return layer

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return a leaf's part of h_P, per position if rotated [N, (P,) 1, D], and both halves of the logit."""
        share = 1.0 / self.nodes
        rows = h * share
        value = rows
        if self._rotations[0] is not None:
            value = self._rotate(rows) if self.positions > 1 else self._rotate(rows)[:, 0]
        # a . h_P without the root's part, which is in the root's half
        of_leaf = value @ self.attend_path.T.to(value)
        of_root = h @ (self.attend_root + share * self.attend_path).T.to(h)
        # a root without a path has no sum
        own = rows * (node.in_degree > 0)[:, None].to(rows)
        return Terms({"value": value.unsqueeze(-2), "logit": of_leaf}, {"logit": of_root, "h": own})

    def _rotate(self, rows: Tensor) -> Tensor:
        """Return the rows rotated for each position [N, P, D]: by all steps between it and the root."""
        (rotations,) = self._rotations
        assert rotations is not None
        # RotatE (equation 4): the sum of the steps' angles to each position [P, D / 2], negative against a direction
        signed = [rotations.angles[kind] if forward else -rotations.angles[kind] for kind, forward in self._steps]
        angle = torch.stack(signed).cumsum(0)
        # a row is D / 2 complex numbers; a rotation multiplies them by e^(i angle)
        real, imaginary = rows[:, None].chunk(2, 2)
        cosine, sine = angle.cos().to(rows), angle.sin().to(rows)
        return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], 2)

    def coefficient(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        """Return the logits [E, H]."""
        return functional.leaky_relu(source["logit"] + target["logit"], NEGATIVE_SLOPE)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the concatenated heads, each with the root's part of the paths, or mapped to out_width."""
        rows = elu(aggregated + own["h"][:, None]).flatten(1)
        return rows if self.out is None else self.out(rows)


def relation_layers(config: MAGNNConfig, place: Place, schema: GraphSchema, *, leaves: Sequence[int]) -> RelationLayers:
    """Return one model layer: attention per metapath, shared steps, and a map of the heads per type.

    leaves: of each relation's edges.
    """
    rotations = _rotations(config, place)
    layers = []
    for number, size in enumerate(leaves):
        steps = _steps(schema, number, size)
        layers.append(_layer(config, replace(place, leaves=size), rotations=rotations, steps=steps, joins_heads=False))
    return RelationLayers(schema, layers, across=config.across, shared=rotations, out_width=place.width)


def _rotations(config: MAGNNConfig, place: Place) -> Rotations | None:
    if config.encodes == "mean":
        return None
    config.check_rotated_width(place.in_width)
    return Rotations(place.in_width)


def _layer(
    config: MAGNNConfig,
    place: Place,
    *,
    rotations: Rotations | None,
    steps: Sequence[tuple[str, bool]],
    joins_heads: bool,
) -> MAGNN:
    if place.leaves < 1:
        raise LayerError(
            "edges have different numbers of leaves, but MAGNN encodes paths of one length",
            where="model.kind",
            fix="Select neighbours along metapaths, or aggregate with another kind of layer.",
        )
    if rotations is not None:
        rotations.hold(kind for kind, _ in steps)
    return MAGNN(
        place.in_width,
        place.width,
        heads=config.heads,
        leaves=place.leaves,
        rotations=rotations,
        steps=steps,
        attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
        joins_heads=joins_heads,
    )


def _steps(schema: GraphSchema, number: int, leaves: int) -> tuple[tuple[str, bool], ...]:
    """Return per leaf of a relation's paths the kind of the step to it, and True for the kind's direction."""
    relation = schema.relations[number]
    names = relation.name.split("-")
    is_path = len(names) == leaves + 1 and (names[0], names[-1]) == (relation.target, relation.source)
    if not is_path or not set(names) <= set(schema.types):
        return tuple((f"relation_{number}_{place}", True) for place in range(leaves))
    types = [schema.types.index(name) for name in names]
    return tuple((f"{min(pair)}_{max(pair)}", pair[0] <= pair[1]) for pair in pairwise(types))
