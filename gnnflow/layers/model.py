"""A model: an encoder, layers and a prediction head, which any execution can run in pieces.

Nothing here runs the layers over a graph; executions call the pieces in order:

    h = encode(features)
    for each layer l: h = post(l, relations(l) on pre(l, h), shortcut(l, h))
    logits = predict(all layers' outputs)
    scores = score(source rows of logits, target rows)      if targets are pairs

Norm and residual are per row, so the way an execution cuts the graph does not change them.

Shapes: N nodes, F features, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import ModelConfig
from gnnflow.graph.errors import LayerError
from gnnflow.graph.hashing import seed_word
from gnnflow.graph.labels import LabelUnit
from gnnflow.graph.schema import UNTYPED, GraphSchema
from gnnflow.kernels import Map, affine, dropout, elu
from gnnflow.kernels.draws import initial_draws
from gnnflow.layers.base import Layer
from gnnflow.layers.decoders import DecoderInputs, build_decoder
from gnnflow.layers.encoders import BagEncoder, LinearEncoder, TypeEncoder
from gnnflow.layers.kinds import build_layer, build_relations
from gnnflow.layers.place import Place
from gnnflow.layers.relational import RelationLayers
from gnnflow.layers.terms import FeatureTensors, NodeContext, TypeRows
from gnnflow.layers.typed import TypedFeatureTensors, TypedInputs

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "elu": elu}


@dataclass(frozen=True)
class ModelInputs:
    """The part of a model that the graph decides.

    feature_width F and sparse describe the input features; num_outputs C is the number of classes, labels or 1;
    attribute_width is 0 without edge attributes. decoder: if targets are pairs; C is then the width of the rows that
    pairs are scored from. typed: the types and relations of a typed graph; feature_width and sparse are then for the
    target type. leaves: the number of source nodes of each relation's edges, 0 if it varies; None: one. unit: of the
    scores, if these are numbers; None: no unit.
    """

    feature_width: int
    num_outputs: int
    sparse: bool = False
    attribute_width: int = 0
    decoder: DecoderInputs | None = None
    typed: TypedInputs | None = None
    leaves: tuple[int, ...] | None = None
    unit: LabelUnit | None = None

    @property
    def leaves_of_relations(self) -> tuple[int, ...]:
        """The number of source nodes of each relation's edges, in the schema's order."""
        return self.leaves or (1,) * self.schema.num_relations

    @property
    def schema(self) -> GraphSchema:
        """The graph's types and relations."""
        return UNTYPED if self.typed is None else self.typed.schema


@dataclass(frozen=True)
class ModelSpec:
    """The description of a model: its section of the config, and the part that the graph decides."""

    config: ModelConfig
    inputs: ModelInputs

    def build(self, *, seed: int | None = None) -> Model:
        """Return a model with fresh parameters, as `build_model`."""
        return build_model(self.config, self.inputs, seed=seed)


class Model(nn.Module):
    """Encoder, layers and head. Build it with `build_model`."""

    def __init__(
        self,
        config: ModelConfig,
        inputs: ModelInputs,
        *,
        encoder: nn.Module | None,
        layers: Sequence[Layer | RelationLayers],
    ) -> None:
        super().__init__()
        self.config = config
        self.inputs = inputs
        self.encoder = encoder
        self.layers = nn.ModuleList(layers)
        # in a tuple, so that it is not registered: on a graph without types weights are named as in one layer
        self._relations = tuple(
            each if isinstance(each, RelationLayers) else RelationLayers(inputs.schema, [each]) for each in layers
        )
        widths_read = [layers[index].out_width for index in self.head_layers]
        width = max(widths_read) if self._takes_largest else sum(widths_read)
        self.head = None if config.head == "direct" else nn.Linear(width, inputs.num_outputs)
        self._activation = _ACTIVATIONS[config.activation]
        # Made last and only if needed, so that the random draws of all other parameters stay the same.
        hidden = [index for index in range(config.layers) if not self._gives_scores(index)]
        normed = hidden if config.norm == "layer" else []
        self.norms = nn.ModuleDict({str(index): nn.LayerNorm(layers[index].out_width) for index in normed})
        self._joined = frozenset(hidden if config.residual else [])
        widths = {index: (layers[index].in_width, layers[index].out_width) for index in sorted(self._joined)}
        self.joins = nn.ModuleDict({str(index): _join(*pair) for index, pair in widths.items() if pair[0] != pair[1]})
        self.decoder = None if inputs.decoder is None else build_decoder(inputs.decoder, inputs.num_outputs)

    @property
    def device(self) -> torch.device:
        """The device of its parameters and computations."""
        return next((each.device for each in self.parameters()), torch.device("cpu"))

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return self.config.layers

    @property
    def head_layers(self) -> tuple[int, ...]:
        """Indices of the layers whose outputs `predict` reads."""
        return tuple(range(self.num_layers)) if self.config.head == "jumping" else (self.num_layers - 1,)

    @property
    def embedding_layers(self) -> tuple[int, ...]:
        """Indices of the layers whose outputs `embedding` reads: under a direct head, the layer before the scores."""
        return (max(self.num_layers - 2, 0),) if self.config.head == "direct" else self.head_layers

    def encode(self, features: FeatureTensors | TypedFeatureTensors, nodes: NodeContext | None = None) -> Tensor:
        """Return the rows the first layer starts from [N, W]. nodes: of the same rows, for types without features."""
        if isinstance(self.encoder, TypeEncoder):
            if isinstance(features, FeatureTensors):
                features = TypedFeatureTensors((features,), TypeRows(len(features)))
            typed: Tensor = self.encoder(features, nodes)
            return typed
        assert isinstance(features, FeatureTensors)
        if self.encoder is not None:
            rows: Tensor = self.encoder(features)
            return rows
        assert features.dense is not None
        return features.dense

    def encode_type(self, node_type: int, features: FeatureTensors, nodes: NodeContext | None) -> Tensor:
        """Return the input rows of the first layer for nodes of one type [N, W].

        nodes: of the same rows, used only on typed graphs.
        """
        if isinstance(self.encoder, TypeEncoder):
            assert nodes is not None
            return self.encoder.of_type(node_type, features, nodes)
        return self.encode(features)

    def relations(self, index: int) -> RelationLayers:
        """Return the layers of all relations by their index, counted from 0; a graph without types has one relation."""
        return self._relations[index]

    @property
    def drops(self) -> bool:
        """True if dropout is active now."""
        return self.training and self.config.dropout > 0

    def pre(self, index: int, h: Tensor) -> Tensor:
        """Return a layer's input after dropout."""
        return self._dropped(h)

    def shortcut(self, index: int, h: Tensor) -> Tensor | None:
        """Return the residual [N, out_width] of rows h [N, in_width] of a layer's input; None without one."""
        if index not in self._joined:
            return None
        name = str(index)
        rows: Tensor = self.joins[name](h) if name in self.joins else h
        return rows

    def begins_with_relu(self, index: int) -> bool:
        """Return whether `post` begins with relu."""
        return not self._gives_scores(index) and str(index) not in self.norms and self.config.activation == "relu"

    def post(self, index: int, out: Tensor, shortcut: Tensor | None, *, is_activated: bool = False) -> Tensor:
        """Return a layer's output after norm, activation and residual.

        shortcut: the result of `shortcut` for the same rows. The last layer under a direct head gives scores, which
        stay the same. is_activated: the relu at the beginning has been applied.
        """
        if self._gives_scores(index):
            return out
        name, only = str(index), self.relations(index).only
        if only is not None and only.never_negative:
            is_activated |= self.begins_with_relu(index)
        rows = out if is_activated else self._activation(self.norms[name](out) if name in self.norms else out)
        assert (shortcut is None) == (index not in self._joined), f"layer {index} and its shortcut do not agree"
        return rows if shortcut is None else rows + shortcut

    def _gives_scores(self, index: int) -> bool:
        return self.config.head == "direct" and index == self.num_layers - 1

    def predict(self, outputs: Sequence[Tensor | None]) -> Tensor:
        """Return logits [N, C] from one output [N, W] per layer; only outputs of `head_layers` are used."""
        rows = self._read(outputs, self.head_layers)
        if self.head is not None:
            rows = affine([Map(self._dropped(rows), self.head.weight)], self.head.bias)
        return rows if self.decoder is not None else self._to_label_unit(rows)

    def score(self, source: Tensor, target: Tensor, attributes: Tensor | None = None) -> Tensor:
        """Return the scores of pairs [P, C] from the rows [P, W] that `predict` gives for their ends.

        attributes [P, A]: of edges, if the decoder takes them.
        """
        assert self.decoder is not None, "a model of nodes scores no pairs"
        return self._to_label_unit(self.decoder(source, target, attributes))

    def score_all(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return the scores [S, T] of all pairs of sources [S, W] and targets [T, W], for links."""
        assert self.decoder is not None, "a model of nodes scores no pairs"
        return self.decoder.score_all(sources, targets)

    def _to_label_unit(self, scores: Tensor) -> Tensor:
        unit = self.inputs.unit
        # always in float32: half precision would round a large mean to its first digits
        return scores if unit is None else scores.float() * unit.deviation + unit.mean

    def embedding(self, outputs: Sequence[Tensor | None]) -> Tensor:
        """Return the embedding of each node [N, W]; only outputs of `embedding_layers` are used."""
        return self._read(outputs, self.embedding_layers)

    @property
    def _takes_largest(self) -> bool:
        return self.config.head == "jumping" and self.config.jumping == "max"

    def _read(self, outputs: Sequence[Tensor | None], indices: Sequence[int]) -> Tensor:
        read = [outputs[index] for index in indices]
        rows = [output for output in read if output is not None]
        assert len(rows) == len(read), f"outputs of layers {list(indices)} are needed"
        if self._takes_largest:
            return reduce(torch.maximum, rows)
        return rows[0] if len(rows) == 1 else torch.cat(rows, 1)

    def _dropped(self, h: Tensor) -> Tensor:
        return dropout(h, self.config.dropout) if self.drops else h


def build_model(config: ModelConfig, inputs: ModelInputs, *, seed: int | None = None) -> Model:
    """Return a model with fresh parameters. Raises LayerError if it cannot be built.

    seed: what the parameters are a function of; without one they follow torch's global generator.
    """
    with initial_draws(None if seed is None else int(seed_word("weights", seed))):
        return _built(config, inputs)


def _built(config: ModelConfig, inputs: ModelInputs) -> Model:
    for name in ("num_outputs",) if inputs.typed else ("feature_width", "num_outputs"):
        if getattr(inputs, name) < 1:
            raise LayerError(f"{name} is {getattr(inputs, name)}", where="model", fix="It must be at least 1.")
    encoder, width = _build_encoder(config, inputs)
    layers: list[Layer | RelationLayers] = []
    for index in range(config.layers):
        is_last = index == config.layers - 1
        asked = inputs.num_outputs if is_last and config.head == "direct" else config.hidden
        leaves = inputs.leaves_of_relations
        place = Place(
            width,
            asked,
            is_last=is_last,
            attribute_width=inputs.attribute_width,
            leaves=leaves[0],
            scores_pairs=inputs.decoder is not None,
        )
        layers.append(
            build_relations(config, place, inputs.schema, leaves=leaves) if inputs.typed else build_layer(config, place)
        )
        width = layers[-1].out_width
    if config.head == "direct" and width != inputs.num_outputs:
        raise LayerError(
            f"the last layer gives {width} columns and the task has {inputs.num_outputs} outputs",
            where="model.head",
            fix="Set head: linear, or let the layer's update() return out_width columns.",
        )
    widths = [layer.out_width for layer in layers]
    if config.head == "jumping" and config.jumping == "max" and len(set(widths)) > 1:
        raise LayerError(
            f"the layers give {', '.join(map(str, widths))} columns, but the maximum over layers needs one width",
            where="model.jumping",
            fix="Set jumping: concat, or give all layers one width (output_heads of attention layers).",
        )
    return Model(config, inputs, encoder=encoder, layers=layers)


def _build_encoder(config: ModelConfig, inputs: ModelInputs) -> tuple[nn.Module | None, int]:
    if inputs.typed is not None:
        # as wide as the layers' rows: what is narrower, such as one head, passes too little of the features on
        products = inputs.decoder is not None and inputs.decoder.kind != "mlp"
        return TypeEncoder(inputs.typed, config.row_width, degrees_from_zero=products), config.row_width
    if inputs.sparse:
        return BagEncoder(inputs.feature_width, config.hidden), config.hidden
    if config.encoder == "linear":
        return LinearEncoder(inputs.feature_width, config.hidden), config.hidden
    return None, inputs.feature_width


def _join(in_width: int, out_width: int) -> nn.Linear:
    linear = nn.Linear(in_width, out_width, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear
