"""What a model reads and gives: enough to say whether it can score a graph it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Signature:
    """The inputs a model was trained on, and the outputs it gives."""

    feature_kind: str
    feature_width: int
    id_type: str
    edge_attributes: int
    edge_weights: bool
    label_kind: str
    num_classes: int


def signature_of(details: Mapping[str, Any]) -> Signature:
    """Return the signature of a graph, from its ingest manifest's details."""
    return Signature(
        feature_kind=details["feature"]["kind"],
        feature_width=details["feature"]["width"],
        id_type=details["id_type"],
        edge_attributes=details["attribute_width"],
        edge_weights=details["has_weight"],
        label_kind=details["label_kind"],
        num_classes=details["num_classes"],
    )


def misfits(model: Signature, graph: Signature) -> tuple[str, ...]:
    """Return what keeps a model from reading a graph, one phrase each; empty where it fits."""
    return tuple(
        f"{field.name.replace('_', ' ')} is {getattr(graph, field.name)}, the model was trained on "
        f"{getattr(model, field.name)}"
        for field in fields(Signature)
        if getattr(model, field.name) != getattr(graph, field.name)
    )
