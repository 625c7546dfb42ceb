"""The `model` section: which layer, how wide and how deep, and what stands before and after the layers.

A union tagged by `kind`: each kind holds the keys its layer reads, and names the layer's class as text, so that reading
a config imports no layer. A new built-in layer is a file in `layers/` and a member of the union here. `model_keys.py`
has the keys that kinds share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from gnnflow.config.base import Fraction, Integer, Section, problem
from gnnflow.config.messages import explain
from gnnflow.config.model_keys import (
    ACROSS,
    OWN_KIND,
    OWN_SPELLING,
    AttentionKeys,
    JoinedKeys,
    Joins,
    ModelKeys,
    tag_of,
)
from gnnflow.graph.errors import LayerError

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
        "null gives each relation a matrix of its own.",
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
    def _heads_divide_hidden(self) -> Self:
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
        "pinsage", description="The weighted mean of mapped neighbours beside the own row, at unit length (PinSage)."
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
    def _pairs_of_columns_turn(self) -> Self:
        if self.encodes == "rotate" and self.layers > 1 and self.hidden % 2:
            raise problem(
                f"rotate turns pairs of columns, and hidden is {self.hidden}",
                key="encodes",
                fix="Choose an even hidden, or set it to mean.",
            )
        return self

    def check_turned(self, width: int) -> None:
        """Raise LayerError where rows of this width come into a layer that cannot turn them."""
        if self.encodes == "rotate" and width % 2:
            raise LayerError(
                f"rows of {width} columns come in, and a rotation turns pairs of columns",
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
    """A layer class of one's own."""

    kind: str = Field(
        pattern=f"^{OWN_SPELLING.pattern}$",
        examples=[OWN_KIND],
        description=f"A layer class of your own, written as {OWN_KIND}.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments for the class.")


def _tag(value: Any) -> str | None:
    """Return which member of the union reads a value; None for what is not a mapping."""
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
