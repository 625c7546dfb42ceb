"""Values that the streamed execution holds of a layer's nodes between its phases, relation by relation.

    vertex phase    source terms, terms of the targets, and rows through a map of the type's own, per node of a type
    edge phase      states, per relation into a type; or per type, where relations into one are parts of one aggregation

Shapes: n rows of an interval.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from gnnflow.executions.streamed.graph import Held, StreamedGraph, parts
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers import FeatureTensors, Layer, Model, NodeContext, RelationLayers, State

Named = dict[str, Tensor]
K = TypeVar("K", bound=Hashable)


class Key(NamedTuple):
    """A kind of values that are held of a node. number: of the relation, or of the type for "own" rows.

    kind: its "source" terms, its "target" terms, its terms as the source of a message to itself where the relation's
    other sources are not of its type ("self"), its "state", or its row through the type's own map ("own").
    """

    kind: str
    number: int


Room = dict[Key, Held]
"""Where what is held of a layer's nodes lies."""
OfNodes = dict[Key, Named]
"""The same of some nodes of one type [n, ...]."""
States = dict[int, State]
"""Whole states of some nodes, by the relation as whose they are kept."""


@dataclass(frozen=True)
class LayerRelations:
    """A layer of a model: the relations that it aggregates, and what it holds of the nodes of each type."""

    model: Model
    index: int

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layer of each relation."""
        return self.joins.layers

    @property
    def joins(self) -> RelationLayers:
        """The layers' join over relations."""
        return self.model.relations(self.index)

    @property
    def schema(self) -> GraphSchema:
        """The graph's types and relations."""
        return self.model.inputs.schema

    @property
    def out_width(self) -> int:
        """Columns of the rows after the layer."""
        return self.joins.out_width

    @cached_property
    def has_shortcut(self) -> bool:
        """True where the model adds the layer's input to its rows."""
        none = torch.zeros(0, self.layers[0].in_width, device=self.model.device)
        return self.model.shortcut(self.index, none) is not None

    @property
    def predicts(self) -> bool:
        """True where the head reads the rows after this layer alone, so that it can as they are computed."""
        return self.model.head_layers == (self.index,)

    @property
    def reads_rows(self) -> bool:
        """True where the rows after the layer are read again, and not only as they are computed."""
        if self.index in self.model.head_layers:
            return not self.predicts
        return self.index + 1 < self.model.num_layers and LayerRelations(self.model, self.index + 1).has_shortcut

    def state_of(self, relation: int) -> int:
        """Return the relation under which a relation's state is kept: the first into its type, where they merge."""
        first = self.schema.relations_into(self.schema.target_types[relation])[0]
        return first if self.joins.merges_states else relation

    def states_at(self, node_type: int) -> list[int]:
        """Return the relations whose states nodes of a type have."""
        return sorted({self.state_of(relation) for relation in self.schema.relations_into(node_type)})

    def is_last(self, relation: int) -> bool:
        """Return whether a relation is the last one into its type: after it states are whole."""
        return relation == self.schema.relations_into(self.schema.target_types[relation])[-1]

    def source_type(self, relation: int) -> int | None:
        """Return the type of a relation's sources; None where edges have leaves, which may be of any."""
        return None if self.has_leaves(relation) else self.schema.source_types[relation]

    def has_self(self, relation: int) -> bool:
        """Return whether targets send themselves messages whose terms are not among the sources'."""
        return self.layers[relation].include_self and self.source_type(relation) != self.schema.target_types[relation]

    def keys_at(self, node_type: int) -> list[Key]:
        """Return the keys of the terms that the vertex phase before the layer makes of nodes of a type."""
        found: list[Key] = []
        for relation, target_type in enumerate(self.schema.target_types):
            if self.source_type(relation) in (None, node_type):
                found.append(Key("source", relation))
            if target_type == node_type:
                found += [Key("self", relation)] * self.has_self(relation)
                found.append(Key("target", relation))
        if str(node_type) in self.joins.own:
            found.append(Key("own", node_type))
        return found

    def read_at_end(self, node_type: int) -> list[Key]:
        """Return the keys among these that the end of the layer reads."""
        return [key for key in self.keys_at(node_type) if key.kind in ("target", "own")]

    def type_of(self, key: Key) -> int | None:
        """Return the type of the nodes of which something is held; None for all."""
        if key.kind == "own":
            return key.number
        return self.source_type(key.number) if key.kind == "source" else self.schema.target_types[key.number]

    def level_of(self, key: Key) -> int:
        """Return the level of the rows of which something is held."""
        return self.index if key.kind == "source" else self.index + 1

    def room(self, graph: StreamedGraph, like: OfNodes) -> Room:
        """Return room for what is held."""
        return {key: self.room_of(graph, key, each) for key, each in like.items()}

    def room_of(self, graph: StreamedGraph, key: Key, like: Named) -> Held:
        """Return room for one of them. like: of any nodes."""
        level, of_sources = self.level_of(key), key.kind == "source"
        return Held.room(graph, like, level=level, node_type=self.type_of(key), of_sources=of_sources)

    def has_leaves(self, relation: int) -> bool:
        """Return whether a relation's edges have leaves, which may be of several types and intervals."""
        return self.model.inputs.leaves_of_relations[relation] != 1


def release(room: Room) -> None:
    """Give room back."""
    for held in room.values():
        held.release()


def read(room: Room, keys: Iterable[Key], interval: int) -> OfNodes:
    """Read an interval's rows."""
    return {key: room[key].read(interval) for key in keys}


def write(room: Room, interval: int, made: OfNodes) -> None:
    """Write an interval's rows in the background."""
    for key, each in made.items():
        room[key].write(interval, each)


def slice_rows(of: Mapping[K, Named], rows: slice) -> dict[K, Named]:
    """Return a run of the rows."""
    return {key: parts(held, rows) for key, held in of.items()}


@dataclass(frozen=True)
class OwnRows:
    """Values that the last phase of a layer reads of a target interval's own nodes, besides their states.

    terms: as targets, and their own rows. h: what its input rows are computed from, where the model adds these. nodes:
    where another layer follows, or h is to be encoded.
    """

    terms: OfNodes
    h: FeatureTensors | Tensor | None
    nodes: NodeContext | None

    def part(self, rows: slice) -> OwnRows:
        """Return some of the rows."""
        h = None if self.h is None else some_rows(self.h, rows)
        return OwnRows(slice_rows(self.terms, rows), h, None if self.nodes is None else self.nodes.part(rows))


def some_rows(held: FeatureTensors | Tensor, rows: slice) -> FeatureTensors | Tensor:
    """Return a run of the rows of what input rows are computed from."""
    return held[rows] if isinstance(held, Tensor) else held.rows(rows.start, rows.stop)


def fill(made: OfNodes, rows: slice, terms: OfNodes) -> None:
    """Write values of some nodes into the values of their interval."""
    for key, of in terms.items():
        for name, each in of.items():
            made[key][name][rows] = each
