"""The keys that kinds of layers have in common, and how a class of a user's own is spelled.

`model_section.py` has the kinds.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from gnnflow.config.base import Fraction, Integer, Section

OWN_KIND = "package.module:Class"
OWN_SPELLING = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
# Keys that came later: where they are left at their defaults, what was made before them keeps its bytes.
_LATER = {"norm", "residual", "across", "jumping"}


def tag_of(kind: Any, *, own: str) -> str:
    """Return the tag of a kind in a union: itself, or `own` for what is spelled as something of a user's own."""
    return own if isinstance(kind, str) and OWN_SPELLING.fullmatch(kind) else str(kind)


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
        description="Add to each hidden layer's rows, after the activation, what came in; where widths differ, a "
        "linear map of it. A last layer that gives the scores (head: direct) has neither norm nor residual.",
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
    def _without_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
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
