"""The backward pass of the streamed execution over the edges of a relation, group by group of source intervals.

What needs no message computed again is added in place (`adding.py`); of other layers each piece's state is computed
again and differentiated, for which `Aggregation.part_gradient` knows its gradient from the whole state's.

Where pieces pick their sources, as edges with leaves do that lie in several intervals, it goes piece by piece.

Shapes: n rows of an interval.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TypeVar, cast

import torch
from torch import Tensor

from gnnflow.executions.propagate import partial_state, sort_edges
from gnnflow.executions.streamed.adding import SLOPE, add_gradients, attended, reads_values
from gnnflow.executions.streamed.graph import EVERY, Held, Piece, WithoutValues, read_ahead, sources_of
from gnnflow.executions.streamed.layers import sources_in
from gnnflow.executions.streamed.order import Group, Sources, fill_with_zeros, groups_of, loads
from gnnflow.executions.streamed.relay import LocalTerms, Relay, passing_terms
from gnnflow.executions.streamed.rooms import Key, Named, Room
from gnnflow.executions.streamed.run import StreamedRun
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels.memory import give_back_if_full
from gnnflow.layers import State, Terms

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class _TargetRows:
    """A target interval's target terms, and its whole state (where it is asked for) with its gradient.

    One piece after the other of the same interval may take its part of the gradient.
    """

    terms: Named
    whole: State
    gradient: State


@dataclass(frozen=True)
class _PieceRows:
    """A piece and the rows of its target interval."""

    block: BlockTensors
    of_targets: _TargetRows


@dataclass(frozen=True)
class _Sources:
    """Source terms that an edge phase goes over. terms: as far as they are read; groups: the order of pieces."""

    passed: LocalTerms | Relay
    terms: Held | WithoutValues
    groups: Sequence[Group[Sources, int]]


@dataclass(frozen=True)
class _Source:
    """A source interval's terms, what their gradients are so far, and all gradients of the layer."""

    terms: Named
    gathered: Named
    grads: Room


class EdgesBack:
    """Gradients of a pass over the edges. found: of the model's parameters so far, in order."""

    def __init__(self, run: StreamedRun) -> None:
        self.run = run
        self.learned = [each for each in run.model.parameters() if each.requires_grad]
        self.found: list[Tensor | None] = [None] * len(self.learned)

    def _gradients_of(
        self, outputs: Sequence[Tensor], gradients: Sequence[Tensor], leaves: Mapping[K, Tensor]
    ) -> dict[K, Tensor]:
        """Return the gradients of some leaves, zeros where there are none, and count the gradients of parameters."""
        pairs = [(out, of) for out, of in zip(outputs, gradients, strict=True) if out.requires_grad]
        if not pairs:
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        outs, given = zip(*pairs, strict=True)
        # gradients of the leaves, then of all learned parameters; None where the outputs do not depend on one
        wanted = [*leaves.values(), *self.learned]
        found: tuple[Tensor | None, ...] = torch.autograd.grad(outs, wanted, given, allow_unused=True)
        for place, each in enumerate(found[len(leaves) :]):
            if each is not None:
                self._count(place, each)
        return {
            name: torch.zeros_like(leaf) if each is None else each
            for (name, leaf), each in zip(leaves.items(), found, strict=False)
        }

    def _count(self, place: int, gradient: Tensor) -> None:
        """Add to a parameter's gradient, in separate memory: what autograd gives may be part of another one."""
        before = self.found[place]
        if before is None:
            before = self.found[place] = torch.zeros_like(self.learned[place])
        before.add_(gradient)

    def _sources(self, index: int, relation: int, grads: Room) -> Iterator[_Sources]:
        """Yield the sources of a relation's edges, and of messages to oneself where these are other nodes."""
        run, of, key = self.run, self.run.layers[index], Key("source", relation)
        pieces, sizes = run.pieces(index, relation), run.graph.active(index)
        apart, has_edges = of.has_self(relation), any(piece.num_edges for piece in pieces)
        wanted = [EVERY] if of.has_leaves(relation) else sources_of(run.graph, of.source_type(relation))
        size = run.graph.groups(index, relation).sources
        own = [piece for piece in pieces if apart and piece.number < 0]
        others = [piece for piece in pieces if not (apart and piece.number < 0)]
        # what is learned of edges has a gradient also where there are none
        others = [piece for piece in others if piece.num_edges or not has_edges]
        if any(piece.rows is not None for piece in others):
            held = [(Sources.of(piece, sizes), [piece]) for piece in others]
            fill_with_zeros(grads[key], run.intervals, sizes, run.device)
        else:
            by_source: dict[int, list[Piece]] = {source: [] for source in wanted}
            for piece in others:
                by_source[piece.source].append(piece)
            held = [(Sources(source, sizes), of_source) for source, of_source in by_source.items()]
        passed = passing_terms(
            run.graph, of.source_type(relation), run.rooms[index][key], [wanted], grads[key], together=size
        )
        yield _Sources(passed, self._read_of(index, relation, passed.terms), _by_source(held, size))
        if own:
            key, sizes = Key("self", relation), run.graph.active(index + 1)
            held = [(Sources.of(piece, sizes), [piece]) for piece in own]
            here = LocalTerms(run.rooms[index][key], grads[key])
            yield _Sources(here, here.terms, _by_source(held, 1))

    def _read_of(self, index: int, relation: int, terms: Held) -> Held | WithoutValues:
        """Return the source terms of a relation that gradients depend on."""
        run, of = self.run, self.run.layers[index]
        if run.graph.ring is not None or of.has_leaves(relation):
            return terms
        none, block = run.no_terms(index), run.no_edges(index, relation)
        source, target = none[Key("source", relation)], none[Key("target", relation)]
        if reads_values(of.layers[relation], source=source, target=target, block=block):
            return terms
        return WithoutValues.of(terms, run.graph.active(index))

    def _edge_phase(self, index: int, relation: int, grads: Room, sources: _Sources) -> None:
        """Differentiate the chunks, group after group of sources, whose gradients stay until they are whole."""
        passed, target, of_targets = sources.passed, -1, _TargetRows({}, {}, {})
        edges = partial(self._load_batch, index, relation)
        read = loads(sources.groups, staying=lambda source: source.read(sources.terms), batch=edges)
        goes_by = groupby(turn.passing for group in sources.groups for turn in group.turns)  # of one, for all its turns
        by = (partial(self._load_targets, index, relation, interval, grads) for interval, _ in goes_by)
        with read_ahead(read, number=2) as found, read_ahead(by) as targets, passed:
            for group in sources.groups:
                held = {each: self._begun(each, passed, cast("Named", next(found)), grads) for each in group.staying}
                for turn in group.turns:
                    if turn.passing != target:
                        del of_targets  # before the next one comes
                        target, of_targets = turn.passing, next(targets)
                    for batch in turn.batches:
                        blocks = cast("list[BlockTensors]", next(found))
                        for piece, block in zip(batch, blocks, strict=True):
                            of_source = held[Sources.of(piece, ())]
                            of_targets = self._piece(index, relation, piece, _PieceRows(block, of_targets), of_source)
                        del blocks, block, of_source
                for source in group.staying:
                    source.write(passed.gradients, held.pop(source).gathered)

    def _begun(self, source: Sources, passed: LocalTerms | Relay, terms: Named, grads: Room) -> _Source:
        """Return a source interval's terms, ready to be differentiated by."""
        gathered = source.no_gradients(passed.gradients, terms, self.run.device)
        for leaf in terms.values():
            leaf.requires_grad_()
        return _Source(terms, gathered, grads)

    def _piece(self, index: int, relation: int, piece: Piece, read: _PieceRows, of_source: _Source) -> _TargetRows:
        """Add a piece's part of the gradients, and return what the next piece of its target interval reads."""
        if self._add_in_place(index, relation, piece, read, of_source):
            return read.of_targets
        left = self._differentiate(index, relation, piece, read, of_source)
        return replace(read.of_targets, gradient=left)

    def _add_in_place(self, index: int, relation: int, piece: Piece, read: _PieceRows, of_source: _Source) -> bool:
        """Add a piece's part of the gradients of terms and return True, where that takes no message."""
        run, of, target = self.run, self.run.layers[index], of_source.grads[Key("target", relation)]
        layer, whole = of.layers[relation], run.rooms[index][Key("state", of.state_of(relation))]
        # what attention adds to; the gradients of other layers' target terms do not come of a piece
        source = sources_in(read.block, of_source.terms)
        attends = attended(layer, source, read.of_targets.terms, read.block) is not None
        so_far = target.read(piece.target) if attends else {}
        run.seed_piece(index, relation, piece)
        found = add_gradients(
            layer,
            Terms(sources_in(read.block, of_source.gathered), so_far),
            source=source,
            target=read.of_targets.terms,
            block=read.block,
            by_state=read.of_targets.gradient,
            has_slopes=SLOPE in whole.columns.names,
        )
        if attends:
            target.write(piece.target, so_far)
        return found

    def _differentiate(self, index: int, relation: int, piece: Piece, read: _PieceRows, of_source: _Source) -> State:
        """Add a piece's part of the gradients, and return what of the whole state's is left for other pieces."""
        run, of, target = self.run, self.run.layers[index], read.of_targets.terms
        layer = of.layers[relation]
        aggregation = layer.levels.instance
        grads = of_source.grads
        terms, gathered = (sources_in(read.block, each) for each in (of_source.terms, of_source.gathered))
        for leaf in target.values():
            leaf.requires_grad_()
        give_back_if_full()
        run.seed_piece(index, relation, piece)
        with torch.enable_grad():
            state = partial_state(layer, source=terms, target=target, block=read.block)
        part = {name: rows.detach() for name, rows in state.items()}
        of_part = aggregation.part_gradient(part, read.of_targets.whole, read.of_targets.gradient)
        leaves = {f"source/{name}": rows for name, rows in terms.items()}
        leaves |= {f"target/{name}": rows for name, rows in target.items()}
        found = self._gradients_of(list(state.values()), [of_part[name] for name in state], leaves)
        for name, rows in gathered.items():
            rows.add_(found[f"source/{name}"])
        if target:
            by_target = grads[Key("target", relation)]
            so_far = by_target.read(piece.target)
            sums = {name: rows.add_(found[f"target/{name}"]) for name, rows in so_far.items()}
            by_target.write(piece.target, sums)
        left = read.of_targets.gradient
        if aggregation.takes_once:
            # what is left of the whole state's gradient for other pieces [n, ...]
            left = {name: rows - of_part[name] for name, rows in left.items()}
            grads[Key("state", of.state_of(relation))].write(piece.target, left)
        return left

    def _load_batch(self, index: int, relation: int, batch: tuple[Piece, ...]) -> list[BlockTensors]:
        return [self._load_block(index, relation, piece) for piece in batch]

    def _load_targets(self, index: int, relation: int, interval: int, grads: Room) -> _TargetRows:
        of, room = self.run.layers[index], self.run.rooms[index]
        target, state = Key("target", relation), Key("state", of.state_of(relation))
        kind = of.layers[relation].levels.instance
        whole = {} if kind.adds or not kind.part_reads_whole else room[state].read(interval)
        return _TargetRows(room[target].read(interval), whole, grads[state].read(interval))

    def _load_block(self, index: int, relation: int, piece: Piece) -> BlockTensors:
        """Read of a piece's edges what the pass reads: here, and not where they are computed on."""
        of, room = self.run.layers[index], self.run.rooms[index]
        layer = of.layers[relation]
        block = piece.load()
        if not block.csr.is_identity:
            sort_edges(layer, block)
            if not layer.levels.instance.adds or block.edge.weight is not None or block.edge_scale is not None:
                _ = block.csr.by_source.numbers  # what is known of an edge is read in that order
            if not layer.uses_coefficients and SLOPE not in room[Key("state", of.state_of(relation))].columns.names:
                _ = block.csr.numbers  # its messages are computed again
        return block


def _by_source(held: Sequence[tuple[Sources, Sequence[Piece]]], size: int) -> list[Group[Sources, int]]:
    """Return the order in which pieces are differentiated, so many sources with their gradients at once."""
    of_target = attrgetter("target")
    return groups_of(held, size=size, passing=of_target, rank=of_target)
