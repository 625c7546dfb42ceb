"""A graph in files: what the streamed execution reads it through.

Shapes: N nodes, n nodes of an interval, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from gnnflow.executions.ring import Ring
from gnnflow.executions.row_exchange import told_by_all
from gnnflow.executions.streaming import Piece
from gnnflow.executions.tensors import feature_tensors
from gnnflow.graph.arrays import Array, offsets_of
from gnnflow.graph.batch import Block, Degrees, Features
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext
from gnnflow.train.streamed.chunks import ChunkFile
from gnnflow.train.streamed.files import NodeFile, Scratch, bytes_of
from gnnflow.train.streamed.numbering import Numbering, Run
from gnnflow.train.streamed.packed import packed, read_here

_DEGREES = 3
_EVERY = -1  # no depth is less


@dataclass
class FileGraph:
    """A graph without types whose nodes, in intervals, and edges lie in files: a `StreamedGraph`.

    chunks: per layer; layers over the same in-edges have them in common. ring: where only some intervals are here.
    prunes: whether layers compute the rows alone that reach a target, or all.
    """

    scratch: Scratch
    numbering: Numbering
    chunks: tuple[ChunkFile, ...]
    inputs: FeatureFile
    degrees: NodeFile
    ring: Ring | None = None
    prunes: bool = False
    _edges_of_all: dict[int, int] = field(default_factory=dict)
    _pieces: dict[tuple[int, int], list[Piece]] = field(default_factory=dict)

    @classmethod
    def empty(
        cls,
        scratch: Scratch,
        numbering: Numbering,
        *,
        files: Sequence[int],
        max_edges: int,
        width: int,
        sparse: bool,
        ring: Ring | None = None,
    ) -> FileGraph:
        """Return a graph whose nodes and edges are still to be written. files: per layer, the number of its edges."""
        own, sizes = None if ring is None else ring.own, numbering.sizes
        chunks = {number: ChunkFile(scratch, sizes, max_edges=max_edges, ring=ring) for number in sorted(set(files))}
        inputs = FeatureFile(scratch, sizes, width, sparse=sparse, own=own)
        degrees = NodeFile(scratch, sizes, _DEGREES, own)
        return cls(scratch, numbering, tuple(chunks[number] for number in files), inputs, degrees, ring)

    def add(self, first: int, *, blocks: Sequence[Block], features: Features, nodes: Degrees) -> None:
        """Write the nodes from `first` on with their in-edges, a block per layer. Nodes come in order."""
        columns = (nodes.in_degree, nodes.out_degree, nodes.in_weight)
        degrees = np.stack([np.asarray(each, np.float32) for each in columns], 1)
        blocks_of = {id(chunks): (chunks, block) for chunks, block in zip(self.chunks, blocks, strict=True)}
        for chunks, block in blocks_of.values():
            chunks.begin(block)
        for run in self.numbering.runs(first, len(nodes)):
            self.inputs.add(run, features)
            self.degrees.fill(run.first, degrees[run.places])
            for chunks, block in blocks_of.values():
                chunks.add(run, block, self.numbering)

    def written(self) -> FileGraph:
        """Return the same graph, whose nodes all are written: where each was is forgotten."""
        if self.numbering.rows is None:
            return self
        numbering = replace(self.numbering, rows=None)
        for chunks in {id(each): each for each in self.chunks}.values():
            chunks.merge()
        return replace(self, numbering=numbering)

    @property
    def pruned(self) -> FileGraph:
        """The same files, of which layers compute the rows alone that reach a target."""
        return replace(self, prunes=True, _edges_of_all={}) if self.numbering.levels else self

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes each interval has."""
        return self.numbering.sizes

    def active(self, level: int) -> tuple[int, ...]:
        """Return how many rows of each interval are computed behind so many layers: its first ones."""
        return self.numbering.active(level) if self.prunes else self.sizes

    def sorted(self) -> FileGraph:
        """Return itself with all pieces written, which is else done when they are first asked for."""
        for layer in range(len(self.chunks)):
            self.pieces(layer)
        return self

    def num_edges(self, layer: int) -> int:
        """Return how many edges a layer aggregates, on all ranks."""
        if self.ring is None:
            return self.chunks[layer].num_edges(self._least_depth(layer))
        if not self._edges_of_all:  # all ranks ask for them together, in the first layer of the first pass
            own = np.array([each.num_edges(self._least_depth(layer)) for layer, each in enumerate(self.chunks)])
            self._edges_of_all = dict(enumerate(told_by_all(self.ring.exchange, own).sum(0).tolist()))
        return self._edges_of_all[layer]

    def pieces(self, layer: int) -> list[Piece]:
        """Return a layer's pieces in the order of target, source (as it comes by) and number.

        No node may be added from then on.
        """
        chunks, least = self.chunks[layer], self._least_depth(layer)
        if (id(chunks), least) not in self._pieces:
            self._pieces[id(chunks), least] = self._as_read(layer)
        return self._pieces[id(chunks), least]

    def plain_pieces(self, layer: int) -> list[Piece]:
        """Return a layer's pieces as they were filed: by target alone."""
        sizes = self.active(layer + 1), self.active(layer)
        least = self._least_depth(layer)
        return self.chunks[layer].pieces(num_targets=sizes[0], num_sources=sizes[1], least_depth=least)

    def _as_read(self, layer: int) -> list[Piece]:
        if self.numbering.levels and not self.prunes:
            return self.plain_pieces(layer)  # scoring reads them by target alone
        found = packed(self.plain_pieces(layer), self.scratch, read_here, threads=1)
        if not self.numbering.levels:
            self.chunks[layer].close()
        return found

    def _least_depth(self, layer: int) -> int:
        """Return the least depth of a layer's targets."""
        return layer + 1 if self.active(layer + 1) != self.sizes else _EVERY

    def edge(self, layer: int) -> EdgeContext:
        """Return the columns of a layer's edges, of no edge."""
        return self.chunks[layer].edge

    def features(self, interval: int) -> FeatureTensors:
        """Read the input features of an interval's rows that the first layer reads."""
        return feature_tensors(self.inputs.read(interval, self.active(0)[interval]))

    def nodes(self, interval: int) -> NodeContext:
        """Read the degrees of an interval's nodes."""
        return node_context(self.degrees.read(interval))

    def rows(self, width: int, *, level: int) -> NodeFile:
        """Return room for so many numbers per row of a level, of this rank's intervals."""
        own = None if self.ring is None else self.ring.own
        return self.scratch.rows(self.sizes, width, own, active=self.active(level))

    def source_rows(self, width: int, *, level: int) -> NodeFile:
        """Return such room for what edges read of their sources: of all intervals, where ranks keep copies."""
        if self.ring is None or not self.ring.copies:
            return self.rows(width, level=level)
        return self.scratch.rows(self.sizes, width, active=self.active(level))


class FeatureFile:
    """Input features by interval, dense or sparse, as they are stored. dense: where they lie if they are."""

    def __init__(
        self, scratch: Scratch, sizes: Sequence[int], width: int, *, sparse: bool, own: range | None = None
    ) -> None:
        self._width = width
        self.dense = None if sparse or not width else NodeFile(scratch, tuple(sizes), width, own)
        self._sparse = scratch.file()
        # of each interval: its rows from where on, where they lie, how many they and their entries are, and whether
        # these have values
        self._segments: list[list[tuple[int, int, int, int, bool]]] = [[] for _ in sizes]

    def add(self, run: Run, features: Features) -> None:
        """Write the features of a run's nodes, given those of the nodes at hand."""
        if self.dense is not None:
            assert features.dense is not None
            self.dense.fill(run.first, features.dense[run.places])
            return
        self._segments[run.interval].append((run.first, *self._append(features.take(run.places))))

    def _append(self, features: Features) -> tuple[int, int, int, bool]:
        assert features.offsets is not None
        assert features.index is not None
        at, value = self._sparse.size, features.value
        columns: list[Array] = [np.diff(features.offsets).astype(np.int32), features.index.astype(np.int32)]
        for column in [*columns, *([] if value is None else [np.ascontiguousarray(value, np.float32)])]:
            self._sparse.append(bytes_of(column))
        return at, len(features), len(features.index), value is not None

    def read(self, interval: int, num_rows: int) -> Features:
        """Return the features of an interval's first rows."""
        if self.dense is not None:
            return Features(self._width, dense=self.dense.read(interval, num_rows).view(-1, self._width).numpy())
        # an interval without nodes has no segment
        segments = sorted(self._segments[interval]) or [(0, 0, 0, 0, False)]
        lengths, index, value = (
            np.concatenate(column) for column in zip(*(self._read(*each[1:]) for each in segments), strict=True)
        )
        has_value = segments[0][4]
        offsets = offsets_of(lengths[:num_rows])
        return Features(
            self._width,
            offsets=offsets,
            index=index[: offsets[-1]].astype(np.int64),
            value=value.view(np.float32)[: offsets[-1]] if has_value else None,
        )

    def _read(self, at: int, num_rows: int, num_entries: int, has_value: bool) -> list[Array]:  # noqa: FBT001
        bounds = np.cumsum([num_rows, num_entries, num_entries * has_value])
        held = np.empty(int(bounds[-1]), np.int32)
        self._sparse.read(bytes_of(held), at)
        return np.split(held, bounds[:-1])


def node_context(degrees: Tensor) -> NodeContext:
    """Return what `FileGraph.degrees` holds of an interval."""
    return NodeContext(*degrees.view(-1, _DEGREES).t().contiguous().unbind())
