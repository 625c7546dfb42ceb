"""The schedules that `streamed.py` compares: in which order chunks are taken, and what is read and written for each.

    ours        chunks by target intervals forward, whose states stay, and by source intervals backward, whose gradients
                do
    by target   by target intervals both ways (destination order): backward, gradients of source terms are read and
                written whenever they go by
    by source   by source interval both ways: forward, a target interval's state is read and written for every chunk
    stage       scatter, edge function and gather (NGra, Ma et al. 2018, section 3) one after the other over all chunks,
                with rows per edge in files, and their gradients the other way round
    in turn     ours, with nothing read ahead or written behind

All read ahead and write behind as ours does, but the last. They give the same weights. Graphs are without types.
Destination order has groups of its own, as large as fit where target rows stay both ways (`plans_by_target`); the two
below it take one interval at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any
from unittest import mock

import numpy as np
import torch

from gnnflow.executions import streamed
from gnnflow.executions.streamed import Key, Passing, ahead, order, sources_in, zeros
from gnnflow.executions.streamed import backward as streamed_backward
from gnnflow.executions.streamed import edges_back as streamed_edges
from gnnflow.kernels import gather_sources, weighted_sum
from gnnflow.layers import Terms
from gnnflow.train.streamed import groups
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.phases import EdgePhase
from gnnflow.train.streamed.widths import PassWidths

SOURCE, TARGET, STATE = (Key(kind, 0) for kind in ("source", "target", "state"))


class BySource(streamed.StreamedRun):
    """Forward source interval by source interval: a target interval's state is read and written for every chunk."""

    def _edge_phase(self, index: int, relation: int) -> None:
        room = self.rooms[index]
        pieces = sorted(self.pieces(index), key=lambda piece: (piece.source, piece.target, piece.number))
        chunks = [list(held) for _, held in groupby(pieces, key=lambda piece: (piece.source, piece.target))]
        begun: set[int] = set()

        def loads() -> Iterator[Callable[[], Any]]:
            source = -1
            for chunk in chunks:
                target = chunk[0].target
                if chunk[0].source != source:
                    source = chunk[0].source
                    yield partial(self.load_sources, index, relation, self._passing(source), room[SOURCE])
                yield partial(room[TARGET].read, target)
                yield partial(room[STATE].read, target) if target in begun else lambda: None
                yield from (partial(self._load_batch, (piece,)) for piece in chunk)

        with ahead(loads(), number=2) as found:
            source, terms = -1, {}
            for chunk in chunks:
                if chunk[0].source != source:
                    source = chunk[0].source
                    terms = self.sources(index, self._passing(source), next(found))
                own, state = next(found), next(found)
                for piece in chunk:
                    (block,) = next(found)
                    state = self.add_piece(index, relation, state, piece, block, terms=Terms(terms, own))
                self.keep(index, relation, chunk[0].target, state)
                begun.add(chunk[0].target)
        finish(self, index)

    def _passing(self, source: int) -> Passing:
        return Passing(source, self.graph.sizes)


class ByTarget(streamed_backward._Backward):  # noqa: SLF001 - the same pass in another order
    """Backward by groups of target intervals: the gradient of source terms is read and written whenever they go by.

    What is of targets stays: their terms with the gradients of these, and the gradient of their state. Of source terms
    is read what gradients depend on.
    """

    def _edge_phase(self, index: int, relation: int, blame: Any, sources: Any) -> None:
        run = self.run
        pieces = [piece for piece in run.pieces(index) if piece.num_edges]
        held = [(target, list(of)) for target, of in groupby(pieces, key=attrgetter("target"))]
        of_source = attrgetter("source")
        groups = order.groups_of(held, size=run.graph.groups(index).sources, passing=of_source, rank=of_source)
        begun: set[int] = set()
        loads = self._loads_of(index, relation, groups, blame), self._passing_of(index, relation, groups, blame, begun)
        with ahead(loads[0], number=2) as found, ahead(loads[1]) as sources_of:
            own, of_targets = Staying(blame[TARGET]), {}
            for group in groups:
                own.settle()
                of_targets = {target: next(found) for target in group.staying}
                for turn in group.turns:
                    terms, gathered = next(sources_of)
                    if gathered is None:
                        gathered = zeros(blame[SOURCE], run.graph.active(index)[turn.passing], run.model.device)
                    for leaf in terms.values():
                        leaf.requires_grad_()
                    room_of: dict[Any, Any] = {**blame, TARGET: own}
                    of = streamed_edges._Source(terms, gathered, room_of)  # noqa: SLF001
                    for batch in turn.batches:
                        for piece, block in zip(batch, next(found), strict=True):
                            read = streamed_edges._Read(block, of_targets[piece.target])  # noqa: SLF001
                            assert self._pulls(index, relation, piece, read, of), "of messages summed alone"
                    blame[SOURCE].write(turn.passing, gathered)
                    begun.add(turn.passing)
            own.settle()

    def _loads_of(self, index: int, relation: int, groups: list[Any], blame: Any) -> Iterator[Callable[[], Any]]:
        staying = partial(self._load_targets, index, relation, blame=blame)
        return order.loads(groups, staying=staying, batch=partial(self._load_batch, index, relation))

    def _passing_of(
        self, index: int, relation: int, groups: list[Any], blame: Any, begun: set[int]
    ) -> Iterator[Callable[[], Any]]:
        """Yield what reads a source interval's terms, and their gradients where they have begun."""
        terms = self._read_of(index, relation, self.run.rooms[index][SOURCE])
        for turn in (turn for group in groups for turn in group.turns):
            gathered = blame[SOURCE].read if turn.passing in begun else lambda _: None
            yield partial(lambda at, of: (terms.read(at), of(at)), turn.passing, gathered)


class Staying:
    """Rows of intervals that are read once and written once until they are settled."""

    def __init__(self, held: Any) -> None:
        self._held = held
        self._rows: dict[int, Any] = {}

    def read(self, interval: int) -> Any:
        """Return an interval's rows."""
        if interval not in self._rows:
            self._rows[interval] = self._held.read(interval)
        return self._rows[interval]

    def write(self, interval: int, rows: Any) -> None:
        """Keep an interval's rows."""
        self._rows[interval] = rows

    def settle(self) -> None:
        """Have what is kept written."""
        for interval, rows in self._rows.items():
            self._held.write(interval, rows)
        self._rows = {}


def by_target_phase(of: PassWidths) -> EdgePhase:
    """Return what the backward pass of destination order holds of rows."""
    # of sources terms as they go by, and gradients that are read, added to and on their way to the file
    target = of.state + 2 * of.target
    return EdgePhase(2 * of.read_back + 4 * of.source + target, target, target)


def read_by_target(relation: Any, sizes: Any) -> int:
    """Return the bytes that destination order reads, as `groups._Relation.bytes_read` counts ours."""
    of, (sources, targets), (from_nodes, to_nodes) = relation.of, relation.cut, relation.nodes
    back = relation.phases[1] is not None
    numbers = -(-targets // sizes.targets) * from_nodes * (of.made_of or of.source)
    numbers += back * -(-targets // sizes.sources) * from_nodes * (of.read_back + 2 * of.source)
    edges = (1 + back) * sources * to_nodes + back * targets * from_nodes
    edges += relation.edges * (1 + back) * groups._end_bytes(from_nodes / sources)  # noqa: SLF001
    return int(4 * numbers + edges + (1 + back) * sources * targets * groups._PER_PIECE)  # noqa: SLF001


@contextmanager
def plans_by_target() -> Iterator[None]:
    """Have plans made for destination order, with the groups and intervals by which it reads least."""
    with (
        mock.patch.object(groups, "backward_phase", by_target_phase),
        mock.patch.object(groups._Relation, "bytes_read", read_by_target),  # noqa: SLF001
    ):
        yield


class EdgeRows:
    """A row for each edge of every piece, in a file. They are read ahead and written behind."""

    def __init__(self, scratch: Any, pieces: list[Any], width: int) -> None:
        self._scratch, self._file, self._width = scratch, scratch.file(), width
        firsts = np.cumsum([0, *(piece.num_edges or 0 for piece in pieces)])
        self._at = {id(piece): int(first) * width * 4 for piece, first in zip(pieces, firsts, strict=False)}

    def write(self, piece: Any, rows: torch.Tensor) -> None:
        """Have a piece's rows written."""
        held, at = rows.contiguous().numpy().reshape(-1).view(np.uint8).data, self._at[id(piece)]
        self._scratch.behind(self, partial(self._file.write, held, at))

    def read(self, piece: Any) -> torch.Tensor:
        """Return a piece's rows."""
        held = torch.empty(piece.num_edges, self._width)
        if held.numel():
            self._file.read(held.numpy().reshape(-1).view(np.uint8).data, self._at[id(piece)])
        return held

    def settle(self) -> None:
        """Wait until all is written."""
        self._scratch.settle(self)

    def close(self) -> None:
        """Close the file."""
        self.settle()
        self._file.close()


class Stage(streamed.StreamedRun):
    """Scatter, edge function and gather one after the other over all chunks; rows per edge go through files."""

    def _edge_phase(self, index: int, relation: int) -> None:
        terms, pieces, sizes = self.rooms[index][SOURCE], self.pieces(index), self.graph.sizes

        def read(piece: Any) -> Any:
            return piece.load(), self.load_sources(index, relation, Passing(piece.source, sizes), terms)

        with ahead([partial(read, piece) for piece in pieces], number=2) as found:
            file: EdgeRows | None = None
            for piece in pieces:  # scatter: a row per edge, and its scale
                block, source = next(found)
                source = sources_in(block, self.sources(index, Passing(piece.source, sizes), source))
                scale = gather_sources(block.csr, source["scale"][:, None])
                rows = torch.cat([gather_sources(block.csr, source["value"]).flatten(1), scale], 1)
                file = file or EdgeRows(self.graph.scratch, pieces, rows.shape[1])  # type: ignore[attr-defined]
                file.write(piece, rows)
        assert file is not None
        file.settle()
        made = EdgeRows(self.graph.scratch, pieces, rows.shape[1] - 1)  # type: ignore[attr-defined]
        with ahead([partial(file.read, piece) for piece in pieces], number=2) as found:
            for piece in pieces:  # edge function: its row times the scale
                rows = next(found)
                made.write(piece, rows[:, :-1] * rows[:, -1:])
        file.close()
        made.settle()
        self._gather(index, pieces, made)
        made.close()
        finish(self, index)

    def _gather(self, index: int, pieces: list[Any], made: EdgeRows) -> None:
        """Write the states that rows of edges add up to."""
        with ahead([partial(both, piece, made) for piece in pieces], number=2) as found:
            for target, held in groupby(pieces, key=lambda piece: piece.target):
                total = None
                for _ in held:
                    block, rows = next(found)
                    part = weighted_sum(block.csr.edges, None, rows[:, None])
                    total = part if total is None else total.add_(part)
                assert total is not None
                scale = self.rooms[index][TARGET].read(target)["scale"]
                self.keep(index, 0, target, {"sum": total * scale[:, None, None]})


class StageBack(streamed_backward._Backward):  # noqa: SLF001 - the same pass, stage by stage
    """The stages of `Stage` the other way round, each over all chunks."""

    def _edge_phase(self, index: int, relation: int, blame: Any, sources: Any) -> None:
        run, room = self.run, self.run.rooms[index]
        pieces = [piece for piece in run.pieces(index) if piece.num_edges]
        width = room[SOURCE].read(0)["value"].flatten(1).shape[1]
        back, made = (EdgeRows(run.graph.scratch, pieces, width) for _ in range(2))  # type: ignore[attr-defined]

        def of_target(piece: Any) -> Any:
            return piece.load(), blame[STATE].read(piece.target)["sum"], room[TARGET].read(piece.target)["scale"]

        with ahead([partial(of_target, piece) for piece in pieces], number=2) as found:
            for piece in pieces:  # of gather: the gradient of the edge's target
                block, gradient, scale = next(found)
                rows = gradient.flatten(1) * scale[:, None]
                back.write(piece, rows.repeat_interleave(block.csr.degree, 0))
        back.settle()

        def with_scale(piece: Any) -> Any:
            return piece.load(), back.read(piece), room[SOURCE].read(piece.source)

        with ahead([partial(with_scale, piece) for piece in pieces], number=2) as found:
            for piece in pieces:  # of the edge function: times the scale
                block, rows, source = next(found)
                made.write(piece, rows * gather_sources(block.csr, sources_in(block, source)["scale"][:, None]))
        back.close()
        made.settle()
        pieces.sort(key=lambda piece: piece.source)
        with ahead([partial(both, piece, made) for piece in pieces], number=2) as found:
            for source, held in groupby(pieces, key=lambda piece: piece.source):  # of scatter: to the sources
                gathered = zeros(blame[SOURCE], run.graph.active(index)[source], run.model.device)
                for _ in held:
                    block, rows = next(found)
                    gathered["value"].flatten(1).index_add_(0, block.csr.sources, rows)
                blame[SOURCE].write(source, gathered)
        made.close()


def both(piece: Any, rows: Any) -> tuple[Any, Any]:
    """Read a piece, and its rows of edges or its source interval's terms."""
    return piece.load(), rows.read(piece if isinstance(rows, EdgeRows) else piece.source)


def finish(run: streamed.StreamedRun, index: int) -> None:
    """Run what lies behind a layer over whole states that lie in a file."""

    def load(interval: int) -> Any:
        return {0: run.rooms[index][STATE].read(interval)}, run.load_own(index, interval)

    with ahead([partial(load, interval) for interval in run.intervals]) as found:
        for interval in run.intervals:
            run.finish(index, interval, *next(found))


SCHEDULES: dict[str, tuple[type[streamed.StreamedRun], Any]] = {
    "ours": (streamed.StreamedRun, streamed_backward._Backward),  # noqa: SLF001
    "in turn": (streamed.StreamedRun, streamed_backward._Backward),  # noqa: SLF001
    "by target": (streamed.StreamedRun, ByTarget),
    "by source": (BySource, streamed_backward._Backward),  # noqa: SLF001
    "stage": (Stage, StageBack),
}


@contextmanager
def in_turn(loads: Iterable[Callable[[], Any]], *, number: int = 1) -> Iterator[Iterator[Any]]:
    """Stand for `ahead`: what is read is read when it is asked for."""
    yield (load() for load in loads)


class InTurn(Scratch):
    """Files that are written at once."""

    def behind(self, rows: Any, work: Callable[[], None]) -> None:
        """Write now."""
        work()
