"""The users' columns of a table, by their places among the encoded numbers that a model reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.graph.made_features import ID_FEATURES, table_columns

if TYPE_CHECKING:
    from gnnflow.graph.facts import FeatureFacts, GraphFacts

MOST_APART = 20
"""Numbers of a list column that are told apart; those of a longer list are one column."""


@dataclass(frozen=True)
class TableColumn:
    """A user's column: the encoded columns of one table's rows. owner: the number of its type or relation."""

    name: str
    owner: int
    of_edges: bool
    parts: range


def every_column(facts: GraphFacts) -> list[TableColumn]:
    """Return the users' columns of all tables that a model may read."""
    found = []
    for number, features in enumerate(facts.features_of_types):
        if features is not None:
            found += columns_of_table(facts, nodes_table(facts, number), features.width, number, of_edges=False)
    for number, relation in enumerate(facts.relations or (None,)):
        width = facts.attribute_width if relation is None else relation.attribute_width
        found += columns_of_table(facts, edges_table(facts, number), width, number, of_edges=True)
    return found


def nodes_table(facts: GraphFacts, node_type: int) -> str:
    """Return the name by which facts know a type's table."""
    return f"nodes/{facts.types[node_type].name}" if facts.types else "nodes"


def edges_table(facts: GraphFacts, relation: int) -> str:
    """Return the name by which facts know a relation's table."""
    return f"edges/{facts.relations[relation].name}" if facts.relations else "edges"


def columns_of_table(facts: GraphFacts, table: str, width: int, owner: int, *, of_edges: bool) -> list[TableColumn]:
    """Return one table's columns, their names with the type or relation; none where their places are not known."""
    place = table.partition("/")[2] or ("edge" if of_edges else "")
    lead = f"{place}: " if place else ""
    features = None if of_edges else facts.features_of_types[owner]
    found = places_of_columns(facts, table, width, most_apart=_most_apart(features)) or {}
    return [TableColumn(lead + name, owner, of_edges, parts) for name, parts in found.items()]


def names_of_numbers(facts: GraphFacts, node_type: int) -> tuple[list[str], list[str]]:
    """Return two names of each encoded number of a type's nodes: with its place in a list, and of its whole column.

    Numbers of short lists are columns, as in the importance of columns. Where places are not known, numbers are
    numbered, and all columns of the table are one.
    """
    features, table = facts.features_of_types[node_type], nodes_table(facts, node_type)
    assert features is not None, "a type without features has no numbers"
    numbers = places_of_columns(facts, table, features.width, most_apart=features.width)
    columns = places_of_columns(facts, table, features.width, most_apart=_most_apart(features))
    if numbers is None or columns is None:
        whole = ", ".join(facts.columns_read.get(table, ()))
        return [f"feature {number}" for number in range(features.width)], [whole] * features.width
    named, grouped = ([name for name, parts in each.items() for _ in parts] for each in (numbers, columns))
    return named, grouped


def places_of_columns(facts: GraphFacts, table: str, width: int, *, most_apart: int) -> dict[str, range] | None:
    """Return the encoded numbers of each column; None where several lists, or reversed relations, leave them open.

    most_apart: numbers of a list that are columns one by one, `x[0]`; a longer list is one column.
    """
    read = facts.columns_read.get(table, ())
    if read == ID_FEATURES:
        return {"id": range(width)}
    sizes = {each.state.name: len(each.state.outputs) for each in facts.encodings.get(table, ())}
    sizes |= dict.fromkeys(read[len(table_columns(read)) :], 1)  # degrees
    unknown = [name for name in read if name not in sizes]
    left = width - sum(sizes[name] for name in read if name in sizes)
    if left != len(unknown) and (len(unknown) != 1 or left < 1):
        return None
    found: dict[str, range] = {}
    start = 0
    for name in read:
        size = sizes.get(name) or (1 if left == len(unknown) else left)
        if name not in sizes and 1 < size <= most_apart:
            found |= {f"{name}[{place}]": range(start + place, start + place + 1) for place in range(size)}
        else:
            found[name] = range(start, start + size)
        start += size
    return found


def _most_apart(features: FeatureFacts | None) -> int:
    """Return the longest list whose numbers are told apart; of sparse features none is."""
    return 0 if features is not None and features.kind == "sparse" else MOST_APART
