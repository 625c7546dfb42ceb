"""The `train.loss` section: what training makes small.

A union tagged by `kind`. Which kinds go with which labels is `gnnflow.graph.labels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from gnnflow.config.base import Number, Section
from gnnflow.config.model_keys import OWN_SPELLING, tag_of

OWN_LOSS = "package.module:function"


class StandardLoss(Section):
    """What the labels' kind is usually trained with."""

    kind: Literal["standard"] = Field(
        "standard",
        description="Cross entropy where a label is one class, binary cross entropy for several, squared error for a "
        "number.",
    )


class FocalLoss(Section):
    """Cross entropy that counts little where the model is sure already (Lin et al., ICCV 2017, equation 4)."""

    kind: Literal["focal"] = Field(
        "focal",
        description="Cross entropy times (1 - p)^gamma, p being the truth's probability: for rare classes.",
    )
    gamma: Number = Field(2.0, ge=0, le=100, description="How fast sure targets lose their weight; 0: cross entropy.")


class HuberLoss(Section):
    """Squared error that grows in a straight line where the error is large."""

    kind: Literal["huber"] = Field(
        "huber", description="Half the squared error up to delta, linear beyond: outliers pull less."
    )
    delta: Annotated[Number, Field(gt=0)] = Field(
        1.0, description="Error from which on the loss is linear, in standard deviations of the training labels."
    )


class OwnLoss(Section):
    """A loss of one's own."""

    kind: str = Field(
        pattern=f"^{OWN_SPELLING.pattern}$",
        examples=[OWN_LOSS],
        description=f"A function of your own, written as {OWN_LOSS}: (logits, labels, weight) -> mean loss.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments for the function.")


def _tag(value: Any) -> str | None:
    """Return which member of the union reads a value; None where it names no kind."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return None if kind is None else tag_of(kind, own=OWN_LOSS)


LossConfig = Annotated[
    Annotated[StandardLoss, Tag("standard")]
    | Annotated[FocalLoss, Tag("focal")]
    | Annotated[HuberLoss, Tag("huber")]
    | Annotated[OwnLoss, Tag(OWN_LOSS)],
    Field(discriminator=Discriminator(_tag)),
]
