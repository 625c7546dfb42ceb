"""Gradients of what the streamed execution writes, and where they lie.

Shapes: n rows of an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gnnflow.executions.adding import SLOPE
from gnnflow.executions.streamed_layers import LayerRoom, Named, Own
from gnnflow.executions.streaming import Held, Rows, StreamedGraph
from gnnflow.kernels import empty_rows
from gnnflow.layers import State


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


@dataclass
class LayerBlame:
    """The gradients of a layer's states and terms."""

    state: Held
    source: Held
    target: Held

    @classmethod
    def room(cls, graph: StreamedGraph, of: LayerRoom, *, index: int) -> LayerBlame:
        """Return room for the gradients of what a layer, number `index`, has room for."""
        assert of.state is not None
        state = Held.room(graph, of.state.columns.without(SLOPE), level=index + 1)
        source = Held.room(graph, of.source.columns, level=index)
        return cls(state, source, Held.room(graph, of.target.columns, level=index + 1))

    def release(self) -> None:
        """Give the room back."""
        for held in (self.state, self.source, self.target):
            held.release()


def room_for(num_rows: int, own: Own, blame: LayerBlame | None, device: torch.device) -> Named:
    """Return room for the gradients of what a last phase is differentiated by, as `leaves_of` names it.

    Input rows that are no targets of the layer have no gradient by it.
    """
    made: Named = {}
    for prefix, held in (("state/", blame.state), ("target/", blame.target)) if blame is not None else ():
        made |= {prefix + name: rows for name, rows in held.empty(num_rows, device).items()}
    if isinstance(own.h, Tensor):
        made["h"] = empty_rows(*own.h.shape, device=own.h.device)
        made["h"][num_rows:] = 0
    return made


def leaves_of(own: Own, state: State, *, with_terms: bool) -> Named:
    """Return what the last phase of a layer is differentiated by, as leaves."""
    found: Named = {}
    if with_terms:
        for prefix, held in (("state/", state), ("target/", own.target)):
            found |= {prefix + name: rows for name, rows in held.items()}
    if isinstance(own.h, Tensor):
        found["h"] = own.h
    for leaf in found.values():
        leaf.requires_grad_()
    return found


def below(prefix: str, found: Named) -> Named:
    """Return the tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): rows for name, rows in found.items() if name.startswith(prefix)}
