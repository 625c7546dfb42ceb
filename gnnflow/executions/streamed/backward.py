"""The streamed execution as a step of training: logits, and a backward pass that reads the graph again.

The backward pass computes each layer once more, from its last phase to its first:

    per interval i          from its whole state its rows after the layer, and the next layer's terms, again:
                            gradients of state, own terms and input row
    per source interval j   for each target interval i: the state over chunk (i, j) again, and its gradient, which
                            `Aggregation.part_gradient` knows from the whole state's, so no other chunk is needed
    per interval i          at last the terms of the first layer again

In the middle the gradient of one source interval's terms stays in memory until it is whole; of several relations it is
gone through once for each. A layer whose terms need no gradient has no middle, as the first one of most models, whose
map comes behind the aggregation.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.executions.streamed.adding import SLOPE, target_gradients
from gnnflow.executions.streamed.edges_back import EdgesBack
from gnnflow.executions.streamed.graph import Held, Rows, StreamedGraph, read_ahead
from gnnflow.executions.streamed.rooms import (
    Key,
    LayerRelations,
    OfNodes,
    OwnRows,
    Room,
    States,
    read,
    release,
    slice_rows,
)
from gnnflow.executions.streamed.run import StreamedRun
from gnnflow.graph.arrays import IntArray
from gnnflow.kernels import empty_rows
from gnnflow.kernels.device import CPU
from gnnflow.kernels.memory import give_back
from gnnflow.layers import FeatureTensors, Model, NodeContext, State, Terms
from gnnflow.layers.encoders import BagEncoder

Name = tuple[Hashable, str]
"""Names a tensor of what is held of nodes: its key and its name there."""
INPUT: Name = ("input", "rows")
"""Names the input rows of a layer."""


def forward(model: Model, graph: StreamedGraph, targets: IntArray) -> Tensor:
    """Return the logits [T, C] of some nodes, given by their rows, ascending.

    The backward pass of what it gives reads the graph again. In training mode dropout reads torch's global generator;
    seed it to repeat a step.
    """
    learned = [each for each in model.parameters() if each.requires_grad]
    if torch.is_grad_enabled() and learned:
        return cast("Tensor", _Streamed.apply(model, graph, targets, *learned))  # type: ignore[no-untyped-call]
    run = StreamedRun(model, graph, targets, keeps=False)
    try:
        return run.logits()
    finally:
        run.release()


class _Streamed(Function):
    """Logits [T, C], whose backward pass gives the gradients of the model's parameters."""

    @staticmethod
    def forward(ctx: Any, model: Model, graph: StreamedGraph, targets: IntArray, *_: Tensor) -> Tensor:
        ctx.run = StreamedRun(model, graph, targets, keeps=True)
        return cast("Tensor", ctx.run.logits())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        try:
            return (None, None, None, *gradients(ctx.run, gradient))
        finally:
            ctx.run.release()


def gradients(run: StreamedRun, gradient: Tensor) -> list[Tensor | None]:
    """Return the gradient of each learned parameter, in order. gradient [T, C]: of the logits."""
    for each in run.model.modules():
        if isinstance(each, BagEncoder):
            # a dense gradient of a whole table for each run of rows would cost more than all else
            each.by_rows = run.device == CPU
    back = _Backward(run, gradient)
    back.head()
    above = None
    for index in reversed(range(run.model.num_layers)):
        above = back.layer(index, above)
    if above is not None:
        back.first_phase(above)
    return back.found


@dataclass(frozen=True)
class _LayerEnd:
    """Values of an interval by which the end of a layer, before the next one, is differentiated.

    whole: its states. gradient: of its rows after the layer, where these were read again. terms: the gradients of
    what the next layer made of them; none behind the last layer.
    """

    own: OwnRows
    whole: States
    gradient: Tensor | None
    terms: OfNodes


class _Backward(EdgesBack):
    """One backward pass. row_gradients: of rows after a layer that are read again. of_logits: gradients of logits."""

    def __init__(self, run: StreamedRun, of_logits: Tensor) -> None:
        super().__init__(run)
        self.row_gradients: dict[int, RowGradients] = {}
        self.of_logits = of_logits

    def head(self) -> None:
        """Differentiate `predict` where it reads rows of several layers: else the last layer's last phase does."""
        run = self.run
        if run.layers[-1].predicts:
            return
        for index in run.model.head_layers:
            self._gradients_after(index)
        give_back()  # what the loss was computed in
        with run.head_inputs() as found:
            for interval in run.intervals:
                made = self._of_head(interval, next(found))
                for index, gradient in zip(run.model.head_layers, made, strict=True):
                    self.row_gradients[index].add(interval, gradient)
                del made, gradient  # before the next ones

    def _of_head(self, interval: int, outputs: list[Tensor]) -> list[Tensor]:
        """Return the gradients, by `predict`, of the rows of an interval that it reads: zeros where no target is."""
        run, found = self.run, [torch.zeros_like(each) for each in outputs]
        for rows in run.runs(run.model.num_layers, interval):
            leaves = {index: each[rows].requires_grad_() for index, each in enumerate(outputs)}
            with torch.enable_grad():
                at, logits = run.predicted(interval, rows, list(leaves.values()))
            for index, made in self._gradients_of([logits], [self.of_logits[at]], leaves).items():
                found[index][rows] = made
        return found

    def layer(self, index: int, above: Room | None) -> Room | None:
        """Differentiate a layer and return the gradients of its terms; None where they need none.

        above: the gradients of the next layer's terms, which are given up; None behind the last layer.
        """
        run, of = self.run, self.run.layers[index]
        grads = gradient_room(run.graph, of, run.rooms[index]) if run.edges_learn(index) else None
        self._last_phase(index, grads, above)
        run.tidy()
        if index in self.row_gradients:
            self.row_gradients.pop(index).rows.release()
        if above is not None:
            release(above)
        if grads is not None:
            for relation in of.joins.order:
                for sources in self._sources(index, relation, grads):
                    self._edge_phase(index, relation, grads, sources)
            give_back()  # pieces of the edge phase are of other sizes than what comes next asks for
        return grads

    def _gradients_after(self, index: int) -> RowGradients:
        if index not in self.row_gradients:
            width = self.run.layers[index].out_width
            self.row_gradients[index] = RowGradients(self.run.graph.rows(width, level=index + 1), width)
        return self.row_gradients[index]

    def _last_phase(self, index: int, grads: Room | None, above: Room | None) -> None:
        run, room, of_rows = self.run, self.run.rooms[index], self.row_gradients.get(index)

        def load(interval: int) -> _LayerEnd:
            node_type = run.graph.types[interval]
            terms = {} if above is None else read(above, run.layers[index + 1].keys_at(node_type), interval)
            whole = {of: room[Key("state", of)].read(interval) for of in run.layers[index].states_at(node_type)}
            gradient = None if of_rows is None else of_rows.read(interval)
            return _LayerEnd(run.load_own(index, interval), whole, gradient, terms)

        with read_ahead([partial(load, interval) for interval in run.intervals]) as found:
            for interval in run.intervals:
                self._differentiate_output(index, interval, next(found), grads)

    def _differentiate_output(self, index: int, interval: int, found: _LayerEnd, grads: Room | None) -> None:
        """Differentiate the last phase of an interval, a run of rows at a time."""
        run = self.run
        keys = [*(Key("state", of) for of in found.whole), *found.own.terms]
        # the gradients of the interval's states, own terms and input rows, filled run by run [n, ...]
        made = room_for(run.graph.active(index + 1)[interval], found.own, grads, keys, run.device)
        for rows in run.runs(index + 1, interval):
            held, states = found.own.part(rows), slice_rows(found.whole, rows)
            slopes = {of: {SLOPE: state.pop(SLOPE)} for of, state in states.items() if SLOPE in state}
            leaves = leaves_of(held, states, with_terms=grads is not None)
            with torch.enable_grad():
                out = run.last_phase(index, interval, states, held)
                outputs, gradients = self._read_outputs(index, out, held, found, place=(interval, rows))
            pulled = self._gradients_of(outputs, gradients, leaves)
            for of, slope in slopes.items() if grads is not None else ():
                self._add_target_gradients(index, of, slope, pulled)
            for of, state in states.items() if grads is not None else ():
                pulled |= self._for_parts(index, of, state, pulled)
            for name, each in pulled.items():
                made[name][rows] = each
        for key in keys if grads is not None else ():
            assert grads is not None
            grads[key].write(interval, tensors_of(key, made))
        if INPUT in made:
            self._gradients_after(index - 1).add(interval, made[INPUT])

    def _read_outputs(
        self, index: int, out: Tensor, own: OwnRows, found: _LayerEnd, *, place: tuple[int, slice]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the tensors that are read after a layer, of one run of rows, and their gradients.

        own: of these rows. place: their interval and their rows in it.
        """
        interval, rows = place
        outputs, gradients = ([], []) if found.gradient is None else ([out], [found.gradient[rows]])
        if self.run.layers[index].predicts:
            at, logits = self.run.predicted(interval, rows, [out])
            outputs.append(logits)
            gradients.append(self.of_logits[at])
        after: dict[Name, Tensor] = {}
        if found.terms:
            assert own.nodes is not None
            after = flat(self.run.terms(index + 1, out, own.nodes, place=(interval, rows.start)))
        for name, each in flat(found.terms).items():
            outputs.append(after[name])
            gradients.append(each[rows])
        none = self._no_rows(out)
        return [*outputs, *none], [*gradients, *none]

    def _no_rows(self, rows: Tensor) -> list[Tensor]:
        """Return an empty tensor of a type's rows, so that parameters that nothing reads get zero gradients, not None.

        Other executions hold the rows of all types in one tensor. One relation alone leaves no parameter unread.
        """
        with torch.enable_grad():
            return [rows[:0]] if self.run.layers[0].joins.only is None else []

    def _add_target_gradients(self, index: int, relation: int, slopes: State, pulled: dict[Name, Tensor]) -> None:
        layer, edge = self.run.layers[index].layers[relation], self.run.graph.edge(index, relation)
        none, target = self.run.no_terms(index), Key("target", relation)
        like = Terms(none[Key("source", relation)], none[target])
        for name, each in target_gradients(
            layer, slopes, tensors_of(Key("state", relation), pulled), like, edge
        ).items():
            pulled[target, name] += each

    def _for_parts(self, index: int, of: int, whole: State, pulled: dict[Name, Tensor]) -> dict[Name, Tensor]:
        kind, key = self.run.layers[index].layers[of].levels.instance, Key("state", of)
        with torch.no_grad():
            made = kind.for_parts({name: rows.detach() for name, rows in whole.items()}, tensors_of(key, pulled))
        return {(key, name): rows for name, rows in made.items()}

    def first_phase(self, grads: Room) -> None:
        """Differentiate the terms of the first layer, a run of rows at a time, and free their gradients."""
        run = self.run

        def load(interval: int) -> tuple[FeatureTensors, NodeContext, OfNodes]:
            keys = run.layers[0].keys_at(run.graph.types[interval])
            return *run.first.load(interval), read(grads, keys, interval)

        with read_ahead([partial(load, interval) for interval in run.intervals]) as found:
            for interval in run.intervals:
                self._differentiate_terms(interval, *next(found))
        release(grads)

    def _differentiate_terms(
        self, interval: int, features: FeatureTensors, nodes: NodeContext, of_terms: OfNodes
    ) -> None:
        """Differentiate the terms of an interval's nodes. of_terms: their gradients."""
        run, given = self.run, flat(of_terms)
        for rows in run.runs(0, interval):
            own = nodes.part(rows)
            with torch.enable_grad():
                h = run.input_rows(interval, features.rows(rows.start, rows.stop), own)
                terms = flat(run.terms(0, h, own, place=(interval, rows.start)))
            none = self._no_rows(h)
            outputs = [*(terms[name] for name in given), *none]
            self._gradients_of(outputs, [*(each[rows] for each in given.values()), *none], {})


@dataclass
class RowGradients:
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


def gradient_room(graph: StreamedGraph, of: LayerRelations, room: Room) -> Room:
    """Return room for the gradients of all terms that a layer has room for."""
    return {key: _gradients_of(graph, of, key, held) for key, held in room.items()}


def _gradients_of(graph: StreamedGraph, of: LayerRelations, key: Key, held: Held) -> Held:
    columns = held.columns.without(SLOPE)
    # gradients of sources are of this rank's nodes alone
    return Held.room(graph, columns, level=of.level_of(key), node_type=of.type_of(key))


def room_for(
    num_rows: int, own: OwnRows, grads: Room | None, keys: list[Key], device: torch.device
) -> dict[Name, Tensor]:
    """Return room for the gradients of what a last phase is differentiated by, as `leaves_of` names it.

    Input rows that are no targets of the layer have no gradient by it.
    """
    made: dict[Name, Tensor] = {}
    for key in keys if grads is not None else ():
        assert grads is not None
        made |= {(key, name): rows for name, rows in grads[key].empty(num_rows, device).items()}
    if isinstance(own.h, Tensor):
        made[INPUT] = empty_rows(*own.h.shape, device=own.h.device)
        made[INPUT][num_rows:] = 0
    return made


def leaves_of(own: OwnRows, states: States, *, with_terms: bool) -> dict[Name, Tensor]:
    """Return the inputs of a layer's last phase, as autograd leaves."""
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


def tensors_of(key: Key, found: dict[Name, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a key, by name."""
    return {name: rows for (of, name), rows in found.items() if of == key}
