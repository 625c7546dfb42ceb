"""Gradients of what the streamed execution writes, and where they lie.

Shapes: n rows of an interval.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gnnflow.executions.propagate import partial_state
from gnnflow.executions.streamed.adding import SLOPE
from gnnflow.executions.streamed.graph import Held, Rows, StreamedGraph
from gnnflow.executions.streamed.layers import StreamedLayers
from gnnflow.executions.streamed.rooms import Key, LayerRelations, OfNodes, Own, Room, States
from gnnflow.kernels import empty_rows

Name = tuple[Hashable, str]
"""Names a tensor of what is held of nodes: its key and its name there."""
INPUT: Name = ("input", "rows")
"""Names the input rows of a layer."""


def edges_learn(run: StreamedLayers, index: int) -> bool:
    """Return whether the backward pass goes over a layer's edges.

    It does where the layer's terms, or what is sent of them along an edge, depend on a parameter.
    """
    with torch.enable_grad():
        terms = run.no_terms(index)
        states = [
            partial_state(
                layer,
                source=terms[Key("source", relation)],
                target=terms[Key("target", relation)],
                block=run.no_edges(index, relation),
            )
            for relation, layer in enumerate(run.layers[index].layers)
        ]
    learned = [*flat(terms).values(), *(each for state in states for each in state.values())]
    return any(each.requires_grad for each in learned)


@dataclass
class Blame:
    """The gradients of the rows after a layer, to which several phases add. filled: which intervals have any yet."""

    rows: Rows
    width: int
    filled: set[int] = field(default_factory=set)

    def read(self, interval: int) -> Tensor:
        """Return an interval's gradients."""
        return self.rows.read(interval).view(-1, self.width)

    def add(self, interval: int, gradient: Tensor) -> None:
        """Add to an interval's gradients."""
        if interval in self.filled:
            gradient = self.read(interval).add_(gradient)
        self.rows.write(interval, [gradient])
        self.filled.add(interval)


def room_like(graph: StreamedGraph, of: LayerRelations, room: Room) -> Room:
    """Return room for the gradients of what a layer has room for."""
    return {key: _gradients_of(graph, of, key, held) for key, held in room.items()}


def _gradients_of(graph: StreamedGraph, of: LayerRelations, key: Key, held: Held) -> Held:
    columns = held.columns.without(SLOPE)
    # gradients of sources are of this rank's nodes alone
    return Held.room(graph, columns, level=of.level_of(key), node_type=of.type_of(key))


def room_for(num_rows: int, own: Own, blame: Room | None, keys: list[Key], device: torch.device) -> dict[Name, Tensor]:
    """Return room for the gradients of what a last phase is differentiated by, as `leaves_of` names it.

    Input rows that are no targets of the layer have no gradient by it.
    """
    made: dict[Name, Tensor] = {}
    for key in keys if blame is not None else ():
        assert blame is not None
        made |= {(key, name): rows for name, rows in blame[key].empty(num_rows, device).items()}
    if isinstance(own.h, Tensor):
        made[INPUT] = empty_rows(*own.h.shape, device=own.h.device)
        made[INPUT][num_rows:] = 0
    return made


def leaves_of(own: Own, states: States, *, with_terms: bool) -> dict[Name, Tensor]:
    """Return what the last phase of a layer is differentiated by, as leaves."""
    found: dict[Name, Tensor] = {}
    if with_terms:
        found |= flat({Key("state", of): state for of, state in states.items()} | own.terms)
    if isinstance(own.h, Tensor):
        found[INPUT] = own.h
    for leaf in found.values():
        leaf.requires_grad_()
    return found


def flat(of: OfNodes) -> dict[Name, Tensor]:
    """Return tensors by key and name."""
    return {(key, name): rows for key, held in of.items() for name, rows in held.items()}


def below(key: Key, found: dict[Name, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a key, by name."""
    return {name: rows for (of, name), rows in found.items() if of == key}
