"""The types of a graph's nodes and the relations of its edges.

A graph without types is a graph of one type and one relation (`UNTYPED`), so whatever reads a schema serves both.
Types and relations are numbered in the order of their names: which comes first in a config changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

RELATION = re.compile(r"(?P<source>.+?)__(?P<name>.+)__(?P<target>.+?)")
"""How a relation is written: source__name__target, both ends being types."""
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]|_(?!_))*(?<!_)")
"""What a type or a relation may be called: it is part of file names, and a `_` at an end would join the separator."""
Placement = Literal["", "source", "grid"]
"""Where an edge is placed. Empty: at its target, where the store has it; source: where its source lives; grid: as in
`placement.placed_at`."""


@dataclass(frozen=True, order=True)
class Relation:
    """Edges of one kind: from nodes of type `source` to nodes of type `target`."""

    source: str
    name: str
    target: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the relation written source__name__target; None where the text is not written so."""
        found = RELATION.fullmatch(text)
        return None if found is None else cls(**found.groupdict())

    @property
    def reversed(self) -> Relation:
        """The relation of the same edges turned round, as `graph.reverse_edges` names it."""
        return Relation(self.target, f"rev_{self.name}", self.source)

    def __str__(self) -> str:
        """Return it as it is written in a config."""
        return f"{self.source}__{self.name}__{self.target}"


@dataclass(frozen=True)
class GraphSchema:
    """T node types and R relations between them, each in the order of its names."""

    types: tuple[str, ...]
    relations: tuple[Relation, ...]

    @classmethod
    def of(cls, types: Iterable[str], relations: Iterable[Relation]) -> Self:
        """Return the schema of these types and relations, in any order."""
        return cls(tuple(sorted(types)), tuple(sorted(relations, key=str)))

    @classmethod
    def named(cls, types: Iterable[str], relations: Iterable[str]) -> Self:
        """Return the schema of names that are in its order already, relations as they are written."""
        parsed = (Relation.parse(each) for each in relations)
        return cls(tuple(types), tuple(each for each in parsed if each is not None))

    @property
    def num_types(self) -> int:
        """How many node types T there are."""
        return len(self.types)

    @property
    def num_relations(self) -> int:
        """How many relations R there are."""
        return len(self.relations)

    @property
    def is_typed(self) -> bool:
        """Whether there is more than one type or relation."""
        return self.num_types > 1 or self.num_relations > 1

    def name_of(self, kind: str | Relation) -> str:
        """Return the name of a type or relation in files, keys and facts: empty where the graph is untyped."""
        return str(kind) if self.is_typed else ""

    @cached_property
    def source_types(self) -> tuple[int, ...]:
        """The number of the type that each relation starts at [R]."""
        return tuple(self.types.index(each.source) for each in self.relations)

    @cached_property
    def target_types(self) -> tuple[int, ...]:
        """The number of the type that each relation leads to [R]."""
        return tuple(self.types.index(each.target) for each in self.relations)

    def relations_into(self, node_type: int) -> tuple[int, ...]:
        """Return the numbers of the relations that lead to a type, ascending."""
        return tuple(number for number, target in enumerate(self.target_types) if target == node_type)


def qualified(what: str, name: str, mark: str = "-") -> str:
    """Return what a table, file or round of one type or relation is called; its name may be empty."""
    return f"{what}{mark}{name}" if name else what


UNTYPED = GraphSchema(("node",), (Relation("node", "edge", "node"),))
"""The schema of a graph without types."""
