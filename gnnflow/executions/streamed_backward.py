"""The backward pass of the streamed execution: each layer once more, from its last phase to its first.

    per interval i          from its whole state its rows after the layer, and the next layer's terms, again:
                            gradients of state, own terms and input row
    per source interval j   for each target interval i: the state over chunk (i, j) again, and its gradient, which
                            `Aggregation.part_gradient` knows from those of the whole state, so no other chunk is needed
    per interval i          at last the terms of the first layer again

In the middle the gradient of one source interval's terms stays in memory until it is whole. A layer whose terms need no
gradient has no middle, as the first one of most models, whose map comes behind the aggregation.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from gnnflow.executions.adding import SLOPE, attended, by_targets, pulled
from gnnflow.executions.propagate import partial_state, sort_edges
from gnnflow.executions.ring import Here, Relay, passing, sources_of
from gnnflow.executions.streamed import StreamedRun
from gnnflow.executions.streamed_blame import Blame, LayerBlame, below, leaves_of, room_for
from gnnflow.executions.streamed_layers import Named, Own, sources_in
from gnnflow.executions.streaming import Piece, ahead, parts, zeros_like
from gnnflow.executions.tensors import BlockTensors
from gnnflow.layers import FeatureTensors, NodeContext, State, Terms


def gradients(run: StreamedRun, gradient: Tensor) -> list[Tensor | None]:
    """Return the gradient of each learned parameter, in order. gradient [T, C]: that of the logits."""
    back = _Backward(run)
    back.head(gradient)
    above = None
    for index in reversed(range(run.model.num_layers)):
        above = back.layer(index, above)
    if above is not None:
        back.first_phase(above)
    return back.found


@dataclass(frozen=True)
class _Read:
    """A piece, its target interval's target terms, and its whole state (where it is asked for) with its gradient."""

    block: BlockTensors
    target: Named
    whole: State
    gradient: State


@dataclass(frozen=True)
class _Behind:
    """What is read of an interval to differentiate what lies between a layer and the next.

    whole: its states. gradient: of its rows after the layer, where these were read as such. terms: the gradients of the
    source and target terms that the next layer made of them; none behind the last layer.
    """

    own: Own
    whole: State
    gradient: Tensor | None
    terms: tuple[Named, ...]


class _Backward:
    """One backward pass. blames: of the rows after each layer that are read as such."""

    def __init__(self, run: StreamedRun) -> None:
        self.run = run
        self.learned = [each for each in run.model.parameters() if each.requires_grad]
        self.found: list[Tensor | None] = [None] * len(self.learned)
        self.blames: dict[int, Blame] = {}

    def head(self, gradient: Tensor) -> None:
        """Differentiate `predict`."""
        run = self.run
        for index in run.model.head_layers:
            self._blame(index)
        for interval, outputs in run.head_inputs():
            at, _ = run.targets_in(interval)
            leaves = {str(index): rows.requires_grad_() for index, rows in enumerate(outputs) if rows is not None}
            with torch.enable_grad():
                logits = run.predicted(interval, outputs)
            for name, blame in self._pulled([logits], [gradient[at]], leaves).items():
                self.blames[int(name)].add(interval, blame)

    def layer(self, index: int, above: LayerBlame | None) -> LayerBlame | None:
        """Differentiate a layer and return the gradients of its terms; None where they need none.

        above: the gradients of the next layer's terms, which are given up; None behind the last layer.
        """
        room = self.run.layers[index]
        blame = None
        if self._terms_need_gradient(index):
            assert room.state is not None
            blame = LayerBlame.room(self.run.graph, room, index=index)
        self._last_phase(index, blame, above)
        if index in self.blames:
            self.blames.pop(index).rows.release()
        if above is not None:
            above.release()
        if blame is not None:
            self._edge_phase(index, blame)
        return blame

    def _blame(self, index: int) -> Blame:
        if index not in self.blames:
            width = self.run.model.layer(index).out_width
            self.blames[index] = Blame(self.run.graph.rows(width, level=index + 1), width)
        return self.blames[index]

    def _pulled(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor], leaves: Mapping[str, Tensor]) -> Named:
        """Return the gradients of some leaves, zeros where there are none, and count those of the parameters."""
        pairs = [(out, of) for out, of in zip(outputs, gradients, strict=True) if out.requires_grad]
        if not pairs:
            return zeros_like(leaves)
        outs, blames = zip(*pairs, strict=True)
        wanted = [*leaves.values(), *self.learned]
        found: tuple[Tensor | None, ...] = torch.autograd.grad(outs, wanted, blames, allow_unused=True)
        for place, each in enumerate(found[len(leaves) :]):
            if each is not None:
                before = self.found[place]
                self.found[place] = each if before is None else before + each
        return {
            name: torch.zeros_like(leaf) if each is None else each
            for (name, leaf), each in zip(leaves.items(), found, strict=False)
        }

    def _terms_need_gradient(self, index: int) -> bool:
        """Return whether a layer's terms, or what is sent of them along an edge, depend on a parameter."""
        run, layer = self.run, self.run.model.layer(index)
        with torch.enable_grad():
            terms = run.no_terms(index)
            state = partial_state(layer, source=terms.source, target=terms.target, block=run.no_edges(index))
        learned = [*terms.source.values(), *terms.target.values(), *state.values()]
        return any(each.requires_grad for each in learned)

    def _last_phase(self, index: int, blame: LayerBlame | None, above: LayerBlame | None) -> None:
        run, room = self.run, self.run.layers[index]
        assert room.state is not None
        of_rows, state_of = self.blames.get(index), room.state

        def load(interval: int) -> _Behind:
            terms = () if above is None else (above.source.read(interval), above.target.read(interval))
            gradient = None if of_rows is None else of_rows.read(interval)
            return _Behind(run.load_own(index, interval), state_of.read(interval), gradient, terms)

        with ahead([partial(load, interval) for interval in run.intervals]) as found:
            for interval in run.intervals:
                self._last_of(index, interval, next(found), blame)

    def _last_of(self, index: int, interval: int, read: _Behind, blame: LayerBlame | None) -> None:
        """Differentiate what lies behind the edges of an interval, some rows at a time."""
        run = self.run
        made = room_for(run.graph.active(index + 1)[interval], read.own, blame, run.device)
        for rows in run.runs(index + 1, interval):
            held, state = read.own.part(rows), parts(read.whole, rows)
            slopes = {name: state.pop(name) for name in [*state] if name == SLOPE}
            leaves = leaves_of(held, state, with_terms=blame is not None)
            with torch.enable_grad():
                out = run.last_phase(index, state, held)
                after = self._after(index, out, held, place=(interval, rows.start)) if read.terms else ()
            outputs, gradients = ([], []) if read.gradient is None else ([out], [read.gradient[rows]])
            for of, by in zip(after, read.terms, strict=True):
                outputs += [of[name] for name in by]
                gradients += [each[rows] for each in by.values()]
            pulled = self._pulled(outputs, gradients, leaves)
            if blame is not None and slopes:
                self._add_by_targets(index, slopes, pulled)
            if blame is not None:
                pulled |= self._for_parts(index, state, pulled)
            for name, each in pulled.items():
                made[name][rows] = each
        if blame is not None:
            blame.state.write(interval, below("state/", made))
            blame.target.write(interval, below("target/", made))
        if "h" in made:
            self._blame(index - 1).add(interval, made["h"])

    def _after(self, index: int, out: Tensor, held: Own, *, place: tuple[int, int]) -> Terms:
        """Return the terms that the next layer makes of some rows."""
        assert held.nodes is not None
        return self.run.terms(index + 1, out, held.nodes, place=place)

    def _add_by_targets(self, index: int, slopes: State, pulled: Named) -> None:
        layer, edge = self.run.model.layer(index), self.run.graph.edge(index)
        like = self.run.no_terms(index)
        for name, each in by_targets(layer, slopes, below("state/", pulled), like, edge).items():
            pulled[f"target/{name}"] += each

    def _for_parts(self, index: int, whole: State, pulled: Named) -> Named:
        kind = self.run.model.layer(index).levels.instance
        with torch.no_grad():
            made = kind.for_parts({name: rows.detach() for name, rows in whole.items()}, below("state/", pulled))
        return {f"state/{name}": rows for name, rows in made.items()}

    def _edge_phase(self, index: int, blame: LayerBlame) -> None:
        """Differentiate the chunks, source interval by source interval."""
        by_source: dict[int, list[Piece]] = {source: [] for source in sources_of(self.run.graph)}
        for piece in self.run.pieces(index):
            if piece.num_edges:
                by_source[piece.source].append(piece)
        passed = passing(self.run.graph, self.run.layers[index].source, [list(by_source)], blame.source)
        before: int = -1
        left: State = {}
        with ahead(self._loads(index, by_source, passed, blame)) as found, passed:
            for source, pieces in by_source.items():
                terms = cast("Named", next(found))
                gathered = blame.source.empty(self.run.graph.active(index)[source], self.run.device)
                for rows in gathered.values():
                    rows.zero_()
                for leaf in terms.values():
                    leaf.requires_grad_()
                for piece in pieces:
                    read = cast("_Read", next(found))
                    if piece.target == before:  # read before the last piece had taken its part
                        read = replace(read, gradient=left)
                    left = read.gradient
                    if not self._pulls(index, piece, read, blame=blame, terms=terms, gathered=gathered):
                        left = self._differentiate(index, piece, read, blame=blame, terms=terms, gathered=gathered)
                    before = piece.target
                    del read
                passed.gradients.write(source, gathered)
                del terms, gathered

    def _pulls(
        self, index: int, piece: Piece, read: _Read, *, blame: LayerBlame, terms: Named, gathered: Named
    ) -> bool:
        """Add a piece's part of the gradients of terms and return True, where that takes no message."""
        run, layer, whole = self.run, self.run.model.layer(index), self.run.layers[index].state
        assert whole is not None
        # what attention adds to; the gradients of other layers' target terms do not come of a piece
        source = sources_in(read.block, terms)
        attends = attended(layer, source, read.target, read.block) is not None
        so_far = blame.target.read(piece.target) if attends else {}
        run.seed_piece(index, piece)
        found = pulled(
            layer,
            Terms(sources_in(read.block, gathered), so_far),
            source=source,
            target=read.target,
            block=read.block,
            by_state=read.gradient,
            has_slopes=SLOPE in whole.columns.names,
        )
        if attends:
            blame.target.write(piece.target, so_far)
        return found

    def _differentiate(
        self, index: int, piece: Piece, read: _Read, *, blame: LayerBlame, terms: Named, gathered: Named
    ) -> State:
        """Add a piece's part of the gradients, and return what of that of the whole state is left for the others."""
        run, layer, target = self.run, self.run.model.layer(index), read.target
        aggregation = layer.levels.instance
        terms, gathered = sources_in(read.block, terms), sources_in(read.block, gathered)
        for leaf in target.values():
            leaf.requires_grad_()
        run.seed_piece(index, piece)
        with torch.enable_grad():
            state = partial_state(layer, source=terms, target=target, block=read.block)
        part = {name: rows.detach() for name, rows in state.items()}
        of_part = aggregation.part_gradient(part, read.whole, read.gradient)
        leaves = {f"source/{name}": rows for name, rows in terms.items()}
        leaves |= {f"target/{name}": rows for name, rows in target.items()}
        found = self._pulled(list(state.values()), [of_part[name] for name in state], leaves)
        for name, rows in gathered.items():
            rows.add_(found[f"source/{name}"])
        if target:
            so_far = blame.target.read(piece.target)
            sums = {name: rows.add_(found[f"target/{name}"]) for name, rows in so_far.items()}
            blame.target.write(piece.target, sums)
        left = read.gradient
        if aggregation.takes_once:
            left = {name: rows - of_part[name] for name, rows in left.items()}
            blame.state.write(piece.target, left)
        return left

    def _loads(
        self, index: int, by_source: Mapping[int, Sequence[Piece]], passed: Here | Relay, blame: LayerBlame
    ) -> Iterator[Callable[[], object]]:
        for source, pieces in by_source.items():
            yield partial(passed.terms.read, source)
            for piece in pieces:
                yield partial(self._load_piece, index, piece, blame)

    def _load_piece(self, index: int, piece: Piece, blame: LayerBlame) -> _Read:
        room, layer = self.run.layers[index], self.run.model.layer(index)
        kind = layer.levels.instance
        assert room.state is not None
        block = piece.load()
        if not block.csr.is_identity:
            sort_edges(layer, block)
            if not kind.adds or block.edge.weight is not None or block.edge_scale is not None:
                _ = block.csr.by_source.numbers  # what is known of an edge is read in that order
            if not layer.uses_coefficients and SLOPE not in room.state.columns.names:
                _ = block.csr.numbers  # its messages are computed again
        whole = {} if kind.adds or not kind.part_reads_whole else room.state.read(piece.target)
        return _Read(block, room.target.read(piece.target), whole, blame.state.read(piece.target))

    def first_phase(self, blame: LayerBlame) -> None:
        """Differentiate the terms of the first layer, some rows at a time, and give up their gradients."""
        run = self.run

        def load(interval: int) -> tuple[FeatureTensors, NodeContext, Named, Named]:
            return *run.load_first(interval), blame.source.read(interval), blame.target.read(interval)

        with ahead([partial(load, interval) for interval in run.intervals]) as found:
            for interval in run.intervals:
                held, nodes, source, target = next(found)
                for rows in run.runs(0, interval):
                    with torch.enable_grad():
                        h = run.model.encode(held.rows(rows.start, rows.stop))
                        terms = run.terms(0, h, nodes.part(rows), place=(interval, rows.start))
                    outputs = [*(terms.source[name] for name in source), *(terms.target[name] for name in target)]
                    self._pulled(outputs, [each[rows] for each in (*source.values(), *target.values())], {})
        blame.release()
