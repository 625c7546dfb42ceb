"""What a model reads and gives: enough to say whether it can score a graph it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnflow.graph.facts import GraphFacts, TypeFacts


@dataclass(frozen=True)
class Signature:
    """The inputs a model was trained on, and the outputs it gives.

    types: the node types with their features, and relations: those with their edge attributes; empty without types.
    """

    feature_kind: str
    feature_width: int
    id_type: str
    edge_attributes: int
    edge_weights: bool
    label_kind: str
    num_classes: int
    types: str = ""
    relations: str = ""


def signature_of(graph: GraphFacts) -> Signature:
    """Return the signature of a graph."""
    of_edges = graph.targets == "edges" and graph.label_kind != "link"
    return Signature(
        feature_kind=graph.features.kind,
        feature_width=graph.features.width,
        id_type=graph.id_type,
        edge_attributes=graph.attribute_width,
        edge_weights=graph.has_weight,
        label_kind=f"{graph.label_kind} of edges" if of_edges else graph.label_kind,
        num_classes=graph.num_classes,
        types=", ".join(_described(each) for each in graph.types),
        relations=", ".join(f"{each.name} ({each.attribute_width})" for each in graph.relations),
    )


def _described(node_type: TypeFacts) -> str:
    held = node_type.features
    return f"{node_type.name} ({'none' if held is None else f'{held.kind} {held.width}'})"


def misfits(model: Signature, graph: Signature) -> tuple[str, ...]:
    """Return what keeps a model from reading a graph, one phrase each; empty where it fits."""
    return tuple(
        f"{field.name.replace('_', ' ')} is {getattr(graph, field.name)}, the model was trained on "
        f"{getattr(model, field.name)}"
        for field in fields(Signature)
        if getattr(model, field.name) != getattr(graph, field.name)
    )
