"""The inputs and outputs of a model, which decide whether it can score another graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from gnnflow.graph.labels import LABEL_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gnnflow.graph.facts import GraphFacts, RelationFacts, SelectFacts, TypeFacts
    from gnnflow.graph.labels import LabelKind

_OF_EDGES = " of edges"


@dataclass(frozen=True)
class Signature:
    """The inputs a model was trained on, and its outputs.

    types: the node types with their features; relations: with their edge attributes; both empty without types.
    neighbors: the relations that were selected instead of the graph's own; empty for direct neighbours. target: with
    types the relation whose edges are scored; empty where nodes are. columns: of each table's features or attributes,
    in their order; empty in older versions.
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
    neighbors: str = ""
    target: str = ""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def learned(self) -> LabelKind:
        """The kind of the labels of nodes or edges."""
        return cast("LabelKind", self.label_kind.removesuffix(_OF_EDGES))

    def labelled_as(self, model: Signature) -> Signature:
        """Return the signature with a model's labels where the graph has none: scoring needs no labels."""
        unlabelled = self.learned == "none" and LABEL_KINDS[model.learned].has_labels
        if not unlabelled or self.label_kind.endswith(_OF_EDGES) != model.label_kind.endswith(_OF_EDGES):
            return self
        return replace(self, label_kind=model.label_kind, num_classes=model.num_classes)


def signature_of(graph: GraphFacts, selected: SelectFacts | None = None) -> Signature:
    """Return the signature of a graph, and of its selected neighbours where they are known."""
    of_edges = _OF_EDGES if graph.targets == "edges" and graph.label_kind != "link" else ""
    return Signature(
        feature_kind=graph.features.kind,
        feature_width=graph.features.width,
        id_type=graph.id_type,
        edge_attributes=graph.attribute_width,
        edge_weights=graph.has_weight,
        label_kind=f"{graph.label_kind}{of_edges}",
        num_classes=graph.num_classes,
        types=", ".join(_described(each) for each in graph.types),
        relations=_listed(graph.relations),
        neighbors="" if selected is None else _listed(selected.relations),
        target=graph.target_relation,
        columns=graph.columns_read,
    )


def _listed(relations: Iterable[RelationFacts]) -> str:
    return ", ".join(f"{each.name} ({each.attribute_width})" for each in relations)


def _described(node_type: TypeFacts) -> str:
    held = node_type.features
    return f"{node_type.name} ({'none' if held is None else f'{held.kind} {held.width}'})"


def misfits(model: Signature, graph: Signature) -> tuple[str, ...]:
    """Return the differences that keep a model from reading a graph, one phrase each; empty where it fits."""
    differ = tuple(
        f"{each.name.replace('_', ' ')} is {_shown(graph, each.name)}, the model was trained on "
        f"{_shown(model, each.name)}"
        for each in fields(Signature)
        if each.name != "columns" and getattr(model, each.name) != getattr(graph, each.name)
    )
    if 0 < graph.num_classes < model.num_classes:
        differ = (*differ, f"where some classes have no rows any more, set graph.num_classes: {model.num_classes}")
    return differ or other_columns(model.columns, graph.columns)


def other_columns(trained_on: Mapping[str, Sequence[str]], columns: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the first column of each table that differs from the model's training, one phrase per table.

    A model knows columns by their place, so another order counts too. Both arguments are by table; empty: not known.
    """
    if not trained_on or not columns:
        return ()
    found = []
    for table in dict.fromkeys((*trained_on, *columns)):
        pairs = zip_longest(trained_on.get(table, ()), columns.get(table, ()), fillvalue="none")
        for place, (theirs, own) in enumerate(pairs, 1):
            if theirs != own:
                found.append(f"column {place} of {table} is {own}, the model was trained on {theirs}")
                break
    return tuple(found)


def _shown(signature: Signature, name: str) -> object:
    """Return a field's value; empty neighbors means direct ones."""
    value: object = getattr(signature, name)
    return value if value != "" else "direct" if name == "neighbors" else "none"
