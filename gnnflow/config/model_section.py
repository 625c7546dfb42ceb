"""The `model` section: the kind of layer, its width, the number of layers, encoder and head.

A union tagged by `kind`: each kind holds the keys its layer reads, and names the layer's class as text, so that reading
a config imports no layer. A new built-in layer is a file in `layers/` and a member of the union here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)

from gnnflow.config.base import OWN_SPELLING, Fraction, Integer, Section, problem, tag_of
from gnnflow.config.messages import explain
from gnnflow.graph.errors import LayerError

OWN_KIND = "package.module:Class"
# Keys that were added later: left at their defaults they do not change the bytes of earlier fingerprints.
_LATER = {"norm", "residual", "across", "jumping"}


class ModelKeys(Section):
    """The keys that every kind has."""

    kind: str
    hidden: Integer = Field(
        64, ge=1, le=65536, description="Width of the hidden layers; for attention layers, of each head."
    )
    layers: Integer = Field(2, ge=1, le=16, description="Number of layers.")
    dropout: Fraction = Field(0.5, description="Dropout before each layer and before a linear head, in training only.")
    activation: Literal["relu", "elu"] = Field("relu", description="Applied after each hidden layer.")
    norm: Literal["none", "layer"] = Field(
        "none",
        description="layer: each hidden layer's rows are normalised (mean 0, variance 1, then a learned scale and "
        "shift per column) before the activation.",
    )
    residual: bool = Field(
        default=False,
        description="Add each hidden layer's input to its rows, after the activation; where widths differ, a linear "
        "map of the input. A last layer that gives the scores (head: direct) has neither norm nor residual.",
    )
    head: Literal["direct", "linear", "jumping"] = Field(
        "direct",
        description="direct: the last layer gives the scores; linear: a linear map of the last layer; "
        "jumping: a linear map of all layers' outputs, as model.jumping joins them.",
    )
    jumping: Literal["concat", "max"] = Field(
        "concat",
        description="For head: jumping. concat: the layers' outputs side by side; max: the largest of each column, for "
        "layers of one width.",
    )
    encoder: Literal["none", "linear"] = Field(
        "none",
        description="linear maps dense features to the hidden width; sparse ones are always embedded.",
    )

    @property
    def row_width(self) -> int:
        """Width of a hidden layer's rows."""
        return self.hidden

    @model_serializer(mode="wrap")
    def _omit_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        defaults = {key: field.default for key, field in type(self).model_fields.items() if key in _LATER}
        return {key: value for key, value in values.items() if key not in defaults or value != defaults[key]}


Joins = Literal["sum", "mean", "max", "attention", "concat"]
ACROSS = (
    "On a graph with types: how what a node gets from each relation becomes one row. attention: a weight per relation "
    "and node, computed from the rows, as HAN does; concat: a linear map of the rows side by side."
)


class JoinedKeys(ModelKeys):
    """The keys of kinds that compute each relation by itself and join the results."""

    across: Joins = Field("sum", description=ACROSS)


class AttentionKeys(JoinedKeys):
    """The keys of layers with attention heads."""

    heads: Integer = Field(8, ge=1, le=256, description="Attention heads of the hidden layers.")
    output_heads: Integer = Field(1, ge=1, le=256, description="Attention heads of the last layer, averaged.")
    attention_dropout: Fraction | None = Field(
        None, description="Dropout on attention coefficients; null means the value of dropout."
    )

    @property
    def row_width(self) -> int:
        """Width of a hidden layer's rows: the heads stand side by side."""
        return self.hidden * self.heads


DEFAULT_KIND = "gcn"


class GCNConfig(JoinedKeys):
    """Graph convolution."""

    layer_class: ClassVar[str] = "gnnflow.layers.gcn:GCN"
    kind: Literal["gcn"] = Field("gcn", description="Graph convolution (GCN), also where kind is left out.")


class SAGEConfig(JoinedKeys):
    """GraphSAGE."""

    layer_class: ClassVar[str] = "gnnflow.layers.sage:GraphSAGE"
    kind: Literal["sage"] = Field("sage", description="A map of the own row plus one of the neighbours' (GraphSAGE).")
    aggregator: Literal["mean", "max", "sum"] = Field(
        "mean",
        description="How neighbours are combined. max: the largest of each column, behind a linear map (MP-GCN); "
        "sum: their sum (CommNet).",
    )


class GATConfig(AttentionKeys):
    """Graph attention."""

    layer_class: ClassVar[str] = "gnnflow.layers.gat:GAT"
    kind: Literal["gat"] = Field("gat", description="Attention over neighbours (GAT).")


class GINConfig(JoinedKeys):
    """Graph isomorphism network."""

    layer_class: ClassVar[str] = "gnnflow.layers.gin:GIN"
    kind: Literal["gin"] = Field("gin", description="A perceptron on the sum of neighbours (GIN).")


class GATEConfig(AttentionKeys):
    """Graph attention that reads edge attributes."""

    layer_class: ClassVar[str] = "gnnflow.layers.gat_e:GATE"
    kind: Literal["gat_e"] = Field("gat_e", description="Attention over neighbours and edge attributes (GAT-E).")


class RGCNConfig(JoinedKeys):
    """Relational graph convolution."""

    layer_class: ClassVar[str] = "gnnflow.layers.rgcn:RGCN"
    kind: Literal["rgcn"] = Field(
        "rgcn", description="The mean of the neighbours of each relation, mapped, plus a map of the own row (R-GCN)."
    )
    bases: Integer | None = Field(
        None,
        ge=1,
        le=1024,
        description="Write the relations' weights as combinations of so many matrices that all relations share; "
        "null gives each relation its own matrix.",
    )


class HANConfig(AttentionKeys):
    """Heterogeneous graph attention network."""

    layer_class: ClassVar[str] = "gnnflow.layers.han:HAN"
    kind: Literal["han"] = Field("han", description="Attention over neighbours, then over relations (HAN).")
    across: Joins = Field("attention", description=ACROSS)
    output_heads: Integer = Field(
        1, ge=1, le=256, description="Attention heads of a last layer that gives the scores (head: direct), averaged."
    )


class HGTConfig(ModelKeys):
    """Heterogeneous graph transformer."""

    layer_class: ClassVar[str] = "gnnflow.layers.hgt:HGT"
    kind: Literal["hgt"] = Field(
        "hgt", description="One attention over the neighbours of all relations, with weights per type (HGT)."
    )
    heads: Integer = Field(8, ge=1, le=256, description="Attention heads; they divide the hidden width among them.")
    attention_dropout: Fraction | None = Field(
        None, description="Dropout on attention coefficients; null means the value of dropout."
    )

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.hidden % self.heads:
            raise problem(
                f"{self.heads} heads do not divide hidden, which is {self.hidden}, evenly",
                key="heads",
                fix="Choose hidden as a multiple of heads.",
            )
        return self


class PinSageConfig(JoinedKeys):
    """PinSage."""

    layer_class: ClassVar[str] = "gnnflow.layers.pinsage:PinSage"
    kind: Literal["pinsage"] = Field(
        "pinsage",
        description="The weighted mean of mapped neighbours, joined with the own row, at unit length (PinSage).",
    )


class MAGNNConfig(ModelKeys):
    """Metapath aggregated graph neural network."""

    layer_class: ClassVar[str] = "gnnflow.layers.magnn:MAGNN"
    kind: Literal["magnn"] = Field("magnn", description="Attention over the paths of each metapath (MAGNN).")
    encodes: Literal["mean", "rotate"] = Field(
        "mean",
        description="How the nodes of a path become one row. mean: their mean; rotate: the mean of rows turned by each "
        "step of the path (RotatE).",
    )
    heads: Integer = Field(8, ge=1, le=256, description="Attention heads of each metapath.")
    attention_dropout: Fraction | None = Field(
        None, description="Dropout on attention coefficients; null means the value of dropout."
    )
    across: Joins = Field("attention", description=ACROSS)

    @model_validator(mode="after")
    def _check_rotation(self) -> Self:
        if self.encodes == "rotate" and self.layers > 1 and self.hidden % 2:
            raise problem(
                f"rotate turns pairs of columns, and hidden is {self.hidden}",
                key="encodes",
                fix="Choose an even hidden, or set it to mean.",
            )
        return self

    def check_rotated_width(self, width: int) -> None:
        """Raise LayerError where a layer that rotates rows gets an odd number of columns."""
        if self.encodes == "rotate" and width % 2:
            raise LayerError(
                f"the layer's input has {width} columns, and a rotation turns pairs of columns",
                where="model.encodes",
                fix="Choose an even model.hidden and, on a graph without types, set model.encoder: linear.",
            )


class PGNNConfig(JoinedKeys):
    """Position-aware graph neural network."""

    layer_class: ClassVar[str] = "gnnflow.layers.pgnn:PGNN"
    kind: Literal["pgnn"] = Field(
        "pgnn", description="Messages from the nearest member of each anchor set, by its distance (P-GNN)."
    )
    anchor_sets: Integer | None = Field(
        None,
        ge=1,
        le=65536,
        description="Let the last layer give a column per anchor set, the positions, and say how many sets there are; "
        "null gives rows of the hidden width.",
    )


class GGCNConfig(JoinedKeys):
    """Gated graph convolution."""

    layer_class: ClassVar[str] = "gnnflow.layers.ggcn:GGCN"
    kind: Literal["ggcn"] = Field(
        "ggcn", description="The sum of neighbours, each column through a gate of both endpoints (G-GCN)."
    )


class GGNNConfig(ModelKeys):
    """Gated graph neural network."""

    layer_class: ClassVar[str] = "gnnflow.layers.ggnn:GGNN"
    kind: Literal["ggnn"] = Field(
        "ggnn", description="A GRU on the sum of neighbours, mapped by the relation they come over (GG-NN)."
    )


class OwnLayerConfig(JoinedKeys):
    """A user's own layer class."""

    kind: str = Field(
        pattern=f"^{OWN_SPELLING.pattern}$",
        examples=[OWN_KIND],
        description=f"A layer class of your own, written as {OWN_KIND}.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments for the class.")


def _tag(value: Any) -> str | None:
    """Return the tag of the union's member that reads a value; None for no mapping."""
    if isinstance(value, Mapping):
        kind = value.get("kind", DEFAULT_KIND)
    elif isinstance(value, ModelKeys):
        kind = value.kind
    else:
        return None
    return tag_of(kind, own=OWN_KIND)


ModelConfig = Annotated[
    Annotated[GCNConfig, Tag("gcn")]
    | Annotated[SAGEConfig, Tag("sage")]
    | Annotated[GATConfig, Tag("gat")]
    | Annotated[GINConfig, Tag("gin")]
    | Annotated[GATEConfig, Tag("gat_e")]
    | Annotated[RGCNConfig, Tag("rgcn")]
    | Annotated[HANConfig, Tag("han")]
    | Annotated[HGTConfig, Tag("hgt")]
    | Annotated[PinSageConfig, Tag("pinsage")]
    | Annotated[MAGNNConfig, Tag("magnn")]
    | Annotated[PGNNConfig, Tag("pgnn")]
    | Annotated[GGCNConfig, Tag("ggcn")]
    | Annotated[GGNNConfig, Tag("ggnn")]
    | Annotated[OwnLayerConfig, Tag(OWN_KIND)],
    Field(discriminator=Discriminator(_tag)),
]


class _Holder(Section):
    model: ModelConfig


def model_from_dict(values: Mapping[str, Any]) -> ModelConfig:
    """Return the validated model section of plain values. Raises ConfigError as reading a whole config does."""
    raw = {"model": dict(values)}
    try:
        return _Holder.model_validate(raw).model
    except ValidationError as error:
        raise explain(error, raw, model=_Holder) from None
