"""A graph in files: what the streamed execution reads it through.

Shapes: N nodes, n nodes of an interval, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

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
from gnnflow.train.streamed.packed import packed, read_here

_DEGREES = 3


@dataclass
class FileGraph:
    """A graph without types whose nodes, in `sizes` intervals, and edges lie in files: a `StreamedGraph`.

    chunks: per layer; layers over the same in-edges have them in common. ring: where only some intervals are here.
    """

    scratch: Scratch
    sizes: tuple[int, ...]
    chunks: tuple[ChunkFile, ...]
    inputs: FeatureFile
    degrees: NodeFile
    ring: Ring | None = None
    _edges_of_all: dict[int, int] = field(default_factory=dict)
    _pieces: dict[int, list[Piece]] = field(default_factory=dict)

    @classmethod
    def empty(
        cls,
        scratch: Scratch,
        sizes: Sequence[int],
        *,
        files: Sequence[int],
        max_edges: int,
        width: int,
        sparse: bool,
        ring: Ring | None = None,
    ) -> FileGraph:
        """Return a graph whose nodes and edges are still to be written. files: per layer, the number of its edges."""
        own = None if ring is None else ring.own
        chunks = {number: ChunkFile(scratch, sizes, max_edges=max_edges, ring=ring) for number in sorted(set(files))}
        inputs = FeatureFile(scratch, sizes, width, sparse=sparse, own=own)
        degrees = NodeFile(scratch, tuple(sizes), _DEGREES, own)
        return cls(scratch, tuple(sizes), tuple(chunks[number] for number in files), inputs, degrees, ring)

    def add(self, first: int, *, blocks: Sequence[Block], features: Features, nodes: Degrees) -> None:
        """Write the nodes from `first` on with their in-edges, a block per layer. Nodes come in order."""
        self.inputs.add(first, features)
        columns = (nodes.in_degree, nodes.out_degree, nodes.in_weight)
        self.degrees.fill(first, np.stack([np.asarray(each, np.float32) for each in columns], 1))
        written: list[ChunkFile] = []
        for chunks, block in zip(self.chunks, blocks, strict=True):
            if chunks not in written:
                chunks.add(first, block)
                written.append(chunks)

    def sorted(self) -> FileGraph:
        """Return itself with all pieces written, which is else done when they are first asked for."""
        for layer in range(len(self.chunks)):
            self.pieces(layer)
        return self

    def num_edges(self, layer: int) -> int:
        """Return how many edges a layer aggregates, on all ranks."""
        if self.ring is None:
            return self.chunks[layer].num_edges
        if not self._edges_of_all:  # all ranks ask for them together, in the first layer of the first pass
            own = np.array([each.num_edges for each in self.chunks])
            self._edges_of_all = dict(enumerate(told_by_all(self.ring.exchange, own).sum(0).tolist()))
        return self._edges_of_all[layer]

    def pieces(self, layer: int) -> list[Piece]:
        """Return a layer's pieces in the order of target, source (as it comes by) and number.

        No node may be added from then on.
        """
        chunks = self.chunks[layer]
        if id(chunks) not in self._pieces:
            self._pieces[id(chunks)] = packed(chunks, self.scratch, read_here, threads=1)
        return self._pieces[id(chunks)]

    def edge(self, layer: int) -> EdgeContext:
        """Return the columns of a layer's edges, of no edge."""
        return self.chunks[layer].edge

    def features(self, interval: int) -> FeatureTensors:
        """Read the input features of an interval's nodes."""
        return feature_tensors(self.inputs.read(interval))

    def nodes(self, interval: int) -> NodeContext:
        """Read the degrees of an interval's nodes."""
        return node_context(self.degrees.read(interval))

    def rows(self, width: int) -> NodeFile:
        """Return room for so many numbers per node of this rank's intervals."""
        return self.scratch.rows(self.sizes, width, None if self.ring is None else self.ring.own)

    def source_rows(self, width: int) -> NodeFile:
        """Return such room for what edges read of their sources: of all intervals, where ranks keep copies."""
        copies = self.ring is not None and self.ring.copies
        return self.scratch.rows(self.sizes, width) if copies else self.rows(width)


class FeatureFile:
    """Input features by interval, dense or sparse, as they are stored. dense: where they lie if they are."""

    def __init__(
        self, scratch: Scratch, sizes: Sequence[int], width: int, *, sparse: bool, own: range | None = None
    ) -> None:
        self._width, self._firsts = width, [0, *accumulate(sizes)]
        self.dense = None if sparse or not width else NodeFile(scratch, tuple(sizes), width, own)
        self._sparse = scratch.file()
        # of each interval: where rows begin, how many they and their entries are, and whether these have values
        self._segments: list[list[tuple[int, int, int, bool]]] = [[] for _ in sizes]

    def add(self, first: int, features: Features) -> None:
        """Write the features of the nodes from `first` on."""
        if self.dense is not None:
            assert features.dense is not None
            self.dense.fill(first, features.dense)
            return
        for interval, segments in enumerate(self._segments):
            start, stop = max(first, self._firsts[interval]), min(first + len(features), self._firsts[interval + 1])
            if start < stop:
                segments.append(self._append(features.take(np.arange(start - first, stop - first))))

    def _append(self, features: Features) -> tuple[int, int, int, bool]:
        assert features.offsets is not None
        assert features.index is not None
        at, value = self._sparse.size, features.value
        columns: list[Array] = [np.diff(features.offsets).astype(np.int32), features.index.astype(np.int32)]
        for column in [*columns, *([] if value is None else [np.ascontiguousarray(value, np.float32)])]:
            self._sparse.append(bytes_of(column))
        return at, len(features), len(features.index), value is not None

    def read(self, interval: int) -> Features:
        """Return the features of an interval's nodes."""
        if self.dense is not None:
            return Features(self._width, dense=self.dense.read(interval).view(-1, self._width).numpy())
        # an interval without nodes has no segment
        segments = self._segments[interval] or [(0, 0, 0, False)]
        lengths, index, value = (
            np.concatenate(column) for column in zip(*(self._read(*each) for each in segments), strict=True)
        )
        has_value = segments[0][3]
        return Features(
            self._width,
            offsets=offsets_of(lengths),
            index=index.astype(np.int64),
            value=value.view(np.float32) if has_value else None,
        )

    def _read(self, at: int, num_rows: int, num_entries: int, has_value: bool) -> list[Array]:  # noqa: FBT001
        bounds = np.cumsum([num_rows, num_entries, num_entries * has_value])
        held = np.empty(int(bounds[-1]), np.int32)
        self._sparse.read(bytes_of(held), at)
        return np.split(held, bounds[:-1])


def node_context(degrees: Tensor) -> NodeContext:
    """Return what `FileGraph.degrees` holds of an interval."""
    return NodeContext(*degrees.view(-1, _DEGREES).t().contiguous().unbind())


def even_sizes(num_nodes: int, intervals: int) -> tuple[int, ...]:
    """Return how many nodes each of some intervals has, where all have as many or one more."""
    bounds = [num_nodes * number // intervals for number in range(intervals + 1)]
    return tuple(stop - start for start, stop in pairwise(bounds))
