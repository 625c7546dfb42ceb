"""The `model` section: which layer, how wide and how deep, and what stands before and after the layers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field

from gnnflow.config.base import Fraction, Integer, Section, problem

BuiltInKind = Literal["gcn", "sage", "gat", "gin", "gat_e"]
BUILT_IN_KINDS: tuple[str, ...] = get_args(BuiltInKind)
_OWN_LAYER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _known_or_importable(kind: str) -> str:
    if kind not in BUILT_IN_KINDS and not _OWN_LAYER.fullmatch(kind):
        raise problem(
            f"is not allowed: must be one of {', '.join(BUILT_IN_KINDS)}",
            fix="Name a layer class of your own as package.module:Class.",
        )
    return kind


ModelKind = Annotated[str, AfterValidator(_known_or_importable)]


class ModelConfig(Section):
    """Encoder, layers and head."""

    kind: ModelKind = Field(
        "gcn", description="gcn, sage, gat, gin, gat_e, or a layer class of your own as package.module:Class."
    )
    hidden: Integer = Field(
        64, ge=1, le=65536, description="Width of the hidden layers; for attention layers, of each head."
    )
    layers: Integer = Field(2, ge=1, le=16, description="Number of layers.")
    dropout: Fraction = Field(0.5, description="Dropout before each layer and before a linear head, in training only.")
    attention_dropout: Fraction | None = Field(
        None, description="Dropout on attention coefficients; null means the value of dropout."
    )
    heads: Integer = Field(8, ge=1, le=256, description="Attention heads of the hidden layers (gat and gat_e).")
    output_heads: Integer = Field(
        1, ge=1, le=256, description="Attention heads of the last layer, averaged (gat and gat_e)."
    )
    aggregator: Literal["mean", "max"] = Field("mean", description="How sage combines neighbours.")
    activation: Literal["relu", "elu"] = Field("relu", description="Applied after each hidden layer.")
    head: Literal["direct", "linear", "jumping"] = Field(
        "direct",
        description="direct: the last layer gives the scores; linear: a linear map of the last layer; "
        "jumping: a linear map of all layers' outputs side by side.",
    )
    encoder: Literal["none", "linear"] = Field(
        "none",
        description="linear maps dense features to the hidden width; sparse ones are always embedded.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments for a layer class of your own.")
