"""A model over a graph larger than memory, in one process (NGra, Ma et al. 2018, section 4; NeuGraph, USENIX ATC 2019).

    logits = forward(model, graph, targets)         in every step; its backward pass goes over the graph again

Nodes are cut into intervals and edges into chunks by the intervals of both ends (`graph.py`). A layer is three
phases, of which each holds rows of one or two intervals:

    per interval i            terms of its nodes, once per node however many chunks read them      vertex phase
    per group of targets i    for each source interval j: chunks (i, j), added to the states       edge phase
                              finalize, update, and the terms of the next layer                     vertex phase

With several relations an interval is of one type, and the edge phase goes relation after relation; the vertex phase
behind an interval's last relation reads what the others left and joins it.

The states of a group of target intervals stay in memory until they are whole (`order.py`); the source terms
and edges of the next pieces are read in threads meanwhile, and what is written is written in another. A node's message
to itself is an edge like others, the first of chunk (i, i). Vertex phases take some rows of an interval at a time.
Those behind one layer and before the next are one: rows between the two are in the cache and in no file, unless
something else reads them. What the backward pass needs of a layer is its terms and whole states, which lie where they
were written; rows and messages it computes again. It takes the chunks the other way round, by source interval, so that
the gradients of a group of source intervals' terms stay until they are whole (`backward.py`).

What is computed of some nodes or edges is in `layers.py`; terms of the first layer that lie in no file are in
`first_terms.py`. The order of sums depends on how the graph is cut and on nothing else.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor

from gnnflow.executions.streamed.first_terms import FirstTerms
from gnnflow.executions.streamed.graph import Held, Piece, read_ahead, sources_of
from gnnflow.executions.streamed.layers import StreamedLayers
from gnnflow.executions.streamed.order import Group, Passing, groups_of, loads
from gnnflow.executions.streamed.relay import passing_terms
from gnnflow.executions.streamed.rooms import Key, Named, OwnRows, States, fill, release, slice_rows, write
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import empty_rows
from gnnflow.kernels.memory import give_back
from gnnflow.layers import State, Terms


@dataclass(frozen=True)
class Growing:
    """A target interval while its states grow."""

    own: OwnRows
    states: States


class StreamedRun(StreamedLayers):
    """One pass of a model over a graph: its layers one after the other, each interval by interval."""

    def logits(self) -> Tensor:
        """Run all layers and return the targets' logits [T, C]."""
        self.found = torch.empty(len(self.targets), self.model.inputs.num_outputs, device=self.device)
        with torch.no_grad():
            self.run_layers()
            if not self.layers[-1].predicts:
                self._predict()
        found = self.found
        del self.found  # a pass that waits for its backward pass does not hold them as well
        return found

    def _predict(self) -> None:
        """Compute logits from the rows after several layers."""
        give_back()  # pieces of the edge phase are of other sizes than what comes next asks for
        with self.head_inputs() as found:
            for interval in self.intervals:
                outputs = next(found)
                for rows in self.runs(self.model.num_layers, interval):
                    at, logits = self.predicted(interval, rows, [each[rows] for each in outputs])
                    self.found[at] = logits
                del outputs  # before the next one comes

    def run_layers(self) -> None:
        """Compute the rows after every layer that still reach a target."""
        self._make_room(0)
        self._first_phase()
        self.tidy()
        for index in range(self.model.num_layers):
            self.make_output_room(index)
            for relation in self.layers[index].joins.order:
                self._edge_phase(index, relation)
            self._finish_alone(index)
            if not self.keeps:
                release(self.rooms[index])
            self.tidy()

    def release(self) -> None:
        """Give all room back."""
        for rows in self.outputs.values():
            rows.release()
        for room in self.rooms if self.keeps else []:
            release(room)
        self.outputs.clear()
        self.rooms.clear()
        give_back()  # what this pass leaves between others' memory serves the next one badly

    def tidy(self) -> None:
        """Give back what a phase left between others' memory: holes that serve no other, a tenth of a budget."""
        give_back(pieces=False)

    def _make_room(self, index: int) -> None:
        self.rooms.append(self.layers[index].room(self.graph, self.no_terms(index)) if index else self.first.room())

    def make_output_room(self, index: int) -> None:
        """Make room for the rows that `finish` writes of a layer."""
        if self.reads_rows(index):
            self.outputs[index] = self.graph.rows(self.layers[index].out_width, level=index + 1)
        if index + 1 < self.model.num_layers:
            self._make_room(index + 1)

    def _first_phase(self) -> None:
        """Compute the terms of the first layer that lie in files."""
        with read_ahead([partial(self.first.load_for_files, interval) for interval in self.intervals]) as found:
            for interval in self.intervals:
                write(self.rooms[0], interval, self.first.for_files(interval, *next(found)))

    @cached_property
    def first(self) -> FirstTerms:
        """The terms of the first layer."""
        return FirstTerms(self)

    def load_sources(self, index: int, relation: int, passing: Passing, terms: Held) -> object:
        """Read the source terms of a layer that go by, or the rows that they are computed from."""
        if passing.own:
            return passing.read(self.rooms[index][Key("self", relation)])
        return passing.read(terms) if index or not self.first.computes_on_read else self.first.load(passing.interval)

    def sources(self, index: int, passing: Passing, read: Any) -> Named:
        """Return the source terms of which that was read."""
        return read if index or not self.first.computes_on_read else self.first.sources(passing.interval, *read)

    def _edge_phase(self, index: int, relation: int) -> None:
        """Aggregate group after group of target intervals, whose states stay in memory until they are whole."""
        of, groups = self.layers[index], self._groups(index, relation)
        of_state = of.state_of(relation)
        wanted = [[turn.passing.interval for turn in group.turns if not turn.passing.own] for group in groups]
        passed = passing_terms(self.graph, of.source_type(relation), self.rooms[index][Key("source", relation)], wanted)
        staying, goes_by = partial(self._load_targets, index, relation), (each for of in groups for each in of.turns)
        read = loads(groups, staying=staying, batch=self._load_batch)
        by = (partial(self.load_sources, index, relation, turn.passing, passed.terms) for turn in goes_by)
        with read_ahead(read, number=2) as found, read_ahead(by) as sources, passed:
            for group in groups:
                held = {each: cast("Growing", next(found)) for each in group.staying}
                for turn in group.turns:
                    source = self.sources(index, turn.passing, next(sources))
                    for batch in turn.batches:
                        blocks = cast("list[BlockTensors]", next(found))
                        for piece, block in zip(batch, blocks, strict=True):
                            of_target = held[piece.target]
                            terms = Terms(source, of_target.own.terms[Key("target", relation)])
                            state = of_target.states.get(of_state)
                            state = self.add_piece(index, relation, state, piece, block, terms=terms)
                            of_target.states[of_state] = state
                        del blocks, block, of_target, terms, state
                    del source  # before the next one comes
                for interval in group.staying:
                    self._whole(held.pop(interval), index, relation, interval)

    def _whole(self, held: Growing, index: int, relation: int, interval: int) -> None:
        """Write a whole state where it is read again, and after the last relation finish the interval."""
        of = self.layers[index]
        of_state, is_last = of.state_of(relation), of.is_last(relation)
        if self.keeps or not is_last:
            self.keep(index, of_state, interval, held.states[of_state])
        if is_last:
            self.finish(index, interval, held.states, held.own)

    def _finish_alone(self, index: int) -> None:
        """Compute the rows of types that no relation leads to."""
        schema = self.layers[index].schema
        for interval in self.intervals:
            if not schema.relations_into(self.graph.types[interval]):
                self.finish(index, interval, {}, self.load_own(index, interval))

    def finish(self, index: int, interval: int, states: States, own: OwnRows) -> None:
        """Finish a layer for an interval after its edges: from whole states to rows, next terms or logits."""
        written, follows = self.outputs.get(index), index + 1 < self.model.num_layers
        num_rows, width = self.graph.active(index + 1)[interval], self.layers[index].out_width
        out = empty_rows(num_rows, width, device=self.device) if written is not None else None
        keys = self.layers[index + 1].keys_at(self.graph.types[interval]) if follows else []
        terms = self.empty_terms(index + 1, interval, keys) if follows else None
        for rows in self.runs(index + 1, interval):
            held = own.part(rows)
            after = self.last_phase(index, interval, slice_rows(states, rows), held)
            if out is not None:
                out[rows] = after
            if self.layers[index].predicts:
                at, logits = self.predicted(interval, rows, [after])
                self.found[at] = logits
            if terms is not None and held.nodes is not None:
                fill(terms, rows, self.terms(index + 1, after, held.nodes, place=(interval, rows.start)))
        if written is not None and out is not None:
            written.write(interval, [out])
        if terms is not None:
            write(self.rooms[index + 1], interval, terms)

    def _groups(self, index: int, relation: int) -> list[Group[int, Passing]]:
        """Return the order in which the edge phase goes over its pieces."""
        of, sizes = self.layers[index], self.graph.sizes
        apart, pieces = of.has_self(relation), self.pieces(index, relation)
        turns = {each: turn for turn, each in enumerate(sources_of(self.graph, of.source_type(relation)))}

        def is_own(piece: Piece) -> bool:
            return apart and piece.number < 0

        return groups_of(
            [(target, list(held)) for target, held in groupby(pieces, key=lambda piece: piece.target)],
            size=self.graph.groups(index, relation).targets,
            passing=lambda piece: Passing(piece.source, sizes, piece.rows, own=is_own(piece)),
            rank=lambda piece: -1 if is_own(piece) else turns.get(piece.source, -1),
        )

    def _load_targets(self, index: int, relation: int, interval: int) -> Growing:
        """Read what an edge phase needs of a target interval, and for its last relation what `finish` needs."""
        of, room = self.layers[index], self.rooms[index]
        key, of_state = Key("target", relation), of.state_of(relation)
        if not of.is_last(relation):
            own = OwnRows({key: room[key].read(interval)}, None, None)
            earlier = [of_state] if of_state < relation else []
        else:
            own = self.load_own(index, interval)
            earlier = [each for each in of.states_at(self.graph.types[interval]) if each < relation]
        return Growing(own, {each: room[Key("state", each)].read(interval) for each in earlier})

    def _load_batch(self, batch: tuple[Piece, ...]) -> list[BlockTensors]:
        blocks = [piece.load() for piece in batch]
        for block in blocks:
            _ = block.csr.numbers  # read here, and not where they are computed on
        return blocks

    def keep(self, index: int, relation: int, interval: int, state: State) -> None:
        """Write a state, for the backward pass or the next relation."""
        room, key = self.rooms[index], Key("state", relation)
        if key not in room:
            room[key] = self.layers[index].room_of(self.graph, key, state)
        room[key].write(interval, state)

    def head_inputs(self) -> AbstractContextManager[Iterator[list[Tensor]]]:
        """Give the rows of one interval after the other that `predict` reads: after each layer of `head_layers`."""
        return read_ahead([partial(self._load_outputs, interval) for interval in self.intervals])

    def _load_outputs(self, interval: int) -> list[Tensor]:
        return [self.rows_after(index, interval) for index in self.model.head_layers]
