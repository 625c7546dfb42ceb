"""The backward pass of the streamed execution: each layer once more, from its last phase to its first.

    per interval i          last phase, from its whole state: gradients of state, own terms and input row
    per source interval j   for each target interval i: the state over chunk (i, j) again, and its gradient, which
                            `Aggregation.part_gradient` knows from those of the whole state, so no other chunk is needed
    per interval i          its terms again: gradients of its input rows

In the middle the gradient of one source interval's terms stays in memory until it is whole. A layer whose terms need no
gradient has no middle, as the first one of most models, whose map comes behind the aggregation.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from gnnflow.executions.propagate import partial_state, sort_edges
from gnnflow.executions.streamed import Own, StreamedRun
from gnnflow.executions.streaming import Held, Piece, Rows, ahead, zeros_like
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr
from gnnflow.layers import FeatureTensors, NodeContext, State

Named = dict[str, Tensor]


def gradients(run: StreamedRun, gradient: Tensor) -> list[Tensor | None]:
    """Return the gradient of each learned parameter, in order. gradient [T, C]: that of the logits."""
    back = _Backward(run)
    back.head(gradient)
    for index in reversed(range(run.model.num_layers)):
        back.layer(index)
    return back.found


@dataclass
class _Blame:
    """The gradients of the rows after a layer, to which several phases add. filled: which intervals have any yet."""

    rows: Rows
    width: int
    filled: set[int] = field(default_factory=set)

    def read(self, interval: int) -> Tensor:
        return self.rows.read(interval).view(-1, self.width)

    def add(self, interval: int, gradient: Tensor) -> None:
        if interval in self.filled:
            gradient = self.read(interval).add_(gradient)
        self.rows.write(interval, [gradient])
        self.filled.add(interval)


@dataclass
class _LayerBlame:
    """The gradients of a layer's states and terms."""

    state: Held
    source: Held
    target: Held


@dataclass(frozen=True)
class _Read:
    """A piece, its target interval's target terms, and its whole state (where it is asked for) with its gradient."""

    block: BlockTensors
    target: Named
    whole: State
    gradient: State


class _Backward:
    """One backward pass. blames: of the rows after each layer, where there are any."""

    def __init__(self, run: StreamedRun) -> None:
        self.run = run
        self.learned = [each for each in run.model.parameters() if each.requires_grad]
        self.found: list[Tensor | None] = [None] * len(self.learned)
        self.blames: dict[int, _Blame] = {}

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

    def layer(self, index: int) -> None:
        """Differentiate a layer: the gradients of its input rows are then those of the layer before."""
        room = self.run.layers[index]
        blame = None
        if self._terms_need_gradient(index):
            assert room.state is not None
            blame = _LayerBlame(*(self._room_like(held) for held in (room.state, room.source, room.target)))
        self._last_phase(index, blame)
        self.blames.pop(index).rows.release()
        if blame is None:
            return
        self._edge_phase(index, blame)
        self._terms_phase(index, blame)
        for held in (blame.state, blame.source, blame.target):
            held.release()

    def _room_like(self, held: Held) -> Held:
        return Held(held.columns, None if held.rows is None else self.run.graph.rows(held.columns.width))

    def _blame(self, index: int) -> _Blame:
        if index not in self.blames:
            width = self.run.model.layer(index).out_width
            self.blames[index] = _Blame(self.run.graph.rows(width), width)
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
        none = torch.zeros(0)
        with torch.enable_grad():
            h = none.new_zeros(0, layer.in_width).requires_grad_(run.needs_gradient(index))
            terms = run.terms(index, 0, h, NodeContext(none, none, none))
            csr = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 0)
            block = BlockTensors(csr, run.graph.edge(index), None)
            state = partial_state(layer, source=terms.source, target=terms.target, block=block)
        learned = [*terms.source.values(), *terms.target.values(), *state.values()]
        return any(each.requires_grad for each in learned)

    def _last_phase(self, index: int, blame: _LayerBlame | None) -> None:
        run, room = self.run, self.run.layers[index]
        assert room.state is not None
        of_rows, state_of = self.blames[index], room.state

        def load(interval: int) -> tuple[Own, State, Tensor]:
            return run.load_own(index, interval), state_of.read(interval), of_rows.read(interval)

        with ahead([partial(load, interval) for interval in run.intervals]) as found:
            for interval in run.intervals:
                own, state, gradient = next(found)
                leaves = _leaves(own, state, with_terms=blame is not None)
                with torch.enable_grad():
                    rows = run.last_phase(index, state, own)
                pulled = self._pulled([rows], [gradient], leaves)
                del rows, gradient, own, state, leaves
                if blame is not None:
                    blame.state.write(interval, _below("state/", pulled))
                    blame.target.write(interval, _below("target/", pulled))
                    if run.model.layer(index).include_self:
                        blame.source.write(interval, _below("source/", pulled))
                if "h" in pulled:
                    self._blame(index - 1).add(interval, pulled["h"])

    def _edge_phase(self, index: int, blame: _LayerBlame) -> None:
        """Differentiate the chunks, source interval by source interval."""
        by_source: list[list[Piece]] = [[] for _ in self.run.intervals]
        for piece in self.run.graph.pieces(index):
            if piece.num_edges:
                by_source[piece.source].append(piece)
        before: int = -1
        left: State = {}
        with ahead(self._loads(index, by_source, blame), number=2) as found:
            for source, pieces in enumerate(by_source):
                terms, gathered = cast("tuple[Named, Named]", next(found))
                for leaf in terms.values():
                    leaf.requires_grad_()
                for piece in pieces:
                    read = cast("_Read", next(found))
                    if piece.target == before:  # read before the last piece had taken its part
                        read = replace(read, gradient=left)
                    pulled, left = self._piece(index, piece, read, terms, blame)
                    before = piece.target
                    for name, rows in gathered.items():
                        rows.add_(pulled[f"source/{name}"])
                    del read, pulled
                blame.source.write(source, gathered)

    def _piece(self, index: int, piece: Piece, read: _Read, terms: Named, blame: _LayerBlame) -> tuple[Named, State]:
        """Return the gradients of the leaves of one piece, and that of the whole state that is left for the others."""
        aggregation, target = self.run.model.layer(index).levels.instance, read.target
        for leaf in target.values():
            leaf.requires_grad_()
        with torch.enable_grad():
            state = self.run.part_state(index, piece, read.block, terms, target)
        part = {name: rows.detach() for name, rows in state.items()}
        of_part = aggregation.part_gradient(part, read.whole, read.gradient)
        leaves = {f"source/{name}": rows for name, rows in terms.items()}
        leaves |= {f"target/{name}": rows for name, rows in target.items()}
        pulled = self._pulled(list(state.values()), [of_part[name] for name in state], leaves)
        if target:
            so_far = blame.target.read(piece.target)
            blame.target.write(
                piece.target, {name: rows.add_(pulled[f"target/{name}"]) for name, rows in so_far.items()}
            )
        left = read.gradient
        if aggregation.takes_once:
            left = {name: rows - of_part[name] for name, rows in left.items()}
            blame.state.write(piece.target, left)
        return pulled, left

    def _loads(
        self, index: int, by_source: Sequence[Sequence[Piece]], blame: _LayerBlame
    ) -> Iterator[Callable[[], object]]:
        for source, pieces in enumerate(by_source):
            yield partial(self._load_source, index, source, blame)
            for piece in pieces:
                yield partial(self._load_piece, index, piece, blame)

    def _load_source(self, index: int, interval: int, blame: _LayerBlame) -> tuple[Named, Named]:
        terms = self.run.layers[index].source.read(interval)
        with_self = self.run.model.layer(index).include_self
        return terms, blame.source.read(interval) if with_self else zeros_like(terms)

    def _load_piece(self, index: int, piece: Piece, blame: _LayerBlame) -> _Read:
        room, layer = self.run.layers[index], self.run.model.layer(index)
        assert room.state is not None
        block = piece.load()
        sort_edges(layer, block)
        whole = {} if layer.levels.instance.adds else room.state.read(piece.target)
        return _Read(block, room.target.read(piece.target), whole, blame.state.read(piece.target))

    def _terms_phase(self, index: int, blame: _LayerBlame) -> None:
        run = self.run

        def load(interval: int) -> tuple[FeatureTensors | Tensor, NodeContext, Named, Named]:
            held, nodes = run.load_input(index, interval), run.graph.nodes(interval)
            return held, nodes, blame.source.read(interval), blame.target.read(interval)

        with ahead([partial(load, interval) for interval in run.intervals]) as found:
            for interval in run.intervals:
                held, nodes, source, target = next(found)
                leaves = {"h": held.requires_grad_()} if isinstance(held, Tensor) else {}
                with torch.enable_grad():
                    terms = run.terms(index, interval, run.input_rows(held), nodes)
                outputs = [*(terms.source[name] for name in source), *(terms.target[name] for name in target)]
                pulled = self._pulled(outputs, [*source.values(), *target.values()], leaves)
                if leaves:
                    self._blame(index - 1).add(interval, pulled["h"])


def _leaves(own: Own, state: State, *, with_terms: bool) -> Named:
    """Return what the last phase of a layer is differentiated by, as leaves."""
    found: Named = {}
    if with_terms:
        for prefix, held in (("state/", state), ("source/", own.source), ("target/", own.target)):
            found |= {prefix + name: rows for name, rows in held.items()}
    if isinstance(own.h, Tensor):
        found["h"] = own.h
    for leaf in found.values():
        leaf.requires_grad_()
    return found


def _below(prefix: str, found: Named) -> Named:
    return {name.removeprefix(prefix): rows for name, rows in found.items() if name.startswith(prefix)}
