"""The edges of a graph as chunks in one file: those from one interval of nodes to another lie together.

The file is written once, run of nodes after run of nodes in the order of their ids, so a chunk lies in as many segments
as runs had edges of it. A piece is what is read at once: segments of one chunk that have a bounded number of edges.

Shapes: E edges of a segment, L leaves of them, A edge attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
import torch

from gnnflow.executions.ring import Ring
from gnnflow.executions.streaming import Piece
from gnnflow.executions.tensors import BlockTensors, block_tensors
from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.layers import EdgeContext
from gnnflow.train.streamed.files import NodeFile, Scratch, bytes_of


@dataclass(frozen=True)
class _Segment:
    """Where some edges of a chunk lie in the file, and how many they and their leaves are."""

    at: int
    num_edges: int
    num_leaves: int


class ChunkFile:
    """The in-edges that a layer aggregates, by chunk. sizes: nodes of each interval. max_edges: of a piece.

    ring: says whose in-edges these are, and in which order sources come by; None where all are here.

    Where edges have leaves there must be one interval: the leaves of one edge may be any nodes.
    """

    def __init__(self, scratch: Scratch, sizes: Sequence[int], *, max_edges: int, ring: Ring | None = None) -> None:
        self._own = range(len(sizes)) if ring is None else ring.own
        self._order: Sequence[int] = self._own if ring is None else ring.order
        self._sizes, self._firsts = tuple(sizes), np.array([0, *accumulate(sizes)])
        self._scratch, self._file, self._max_edges = scratch, scratch.file(), max_edges
        self._segments: dict[tuple[int, int], list[_Segment]] = {}
        self._scale: NodeFile | None = None
        self._columns: tuple[bool, bool, int, bool] = (False, False, 0, False)
        self.num_edges = 0

    def add(self, first: int, block: Block) -> None:
        """Write the in-edges of the nodes from `first` on; sources are rows of the whole graph. Nodes come in order."""
        edges, last = block.edges, first + block.num_targets
        has_leaves = edges.leaves is not None and len(self._sizes) == 1
        assert has_leaves or edges.leaves is None or edges.leaf_counts.max(initial=1) == 1, "leaves of many intervals"
        width = 0 if edges.attributes is None else edges.attributes.shape[1]
        self._columns = (has_leaves, edges.weight is not None, width, block.edge_scale is not None)
        if block.sample_scale is not None:
            self._scale = self._scale or NodeFile(self._scratch, self._sizes, 1, self._own)
            self._scale.fill(first, block.sample_scale)
        self.num_edges += edges.num_edges
        begin = int(np.searchsorted(self._firsts, first, side="right")) - 1
        for interval in range(begin, len(self._sizes)):
            start, stop = max(first, self._firsts[interval]), min(last, self._firsts[interval + 1])
            if start >= last:
                break
            self._add_interval(interval, block, slice(start - first, stop - first), first=first)

    def _add_interval(self, interval: int, block: Block, rows: slice, *, first: int) -> None:
        edges = block.edges
        run = slice(*edges.offsets[[rows.start, rows.stop]].tolist())
        targets = np.repeat(np.arange(rows.start, rows.stop), np.diff(edges.offsets[rows.start : rows.stop + 1]))
        targets = (targets + (first - self._firsts[interval])).astype(np.int32)
        leaves = self._columns[0]
        if leaves:
            of, order = np.zeros(run.stop - run.start, np.int64), np.arange(run.stop - run.start)
        else:
            of = np.searchsorted(self._firsts, edges.sources[run], side="right") - 1
            # in few bits they are sorted by their digits
            order = np.argsort(of.astype(np.uint16), kind="stable")
        counts = np.bincount(of, minlength=len(self._sizes))
        for source, stop in enumerate(np.cumsum(counts).tolist()):
            held = order[stop - counts[source] : stop]
            for start in range(0, len(held), self._max_edges):
                part = held[start : start + self._max_edges]
                self._append((interval, source), block, part + run.start, targets[part])

    def _append(self, chunk: tuple[int, int], block: Block, positions: IntArray, targets: Array) -> None:
        edges = block.edges
        sources = edges.sources_of(positions)
        columns: list[Array] = [targets, (sources - self._firsts[chunk[1]]).astype(np.int32)]
        if self._columns[0]:
            columns.append(edges.leaf_counts[positions].astype(np.int32))
        floats = (edges.weight, edges.attributes, block.edge_scale)
        columns += [np.ascontiguousarray(each[positions], np.float32) for each in floats if each is not None]
        at = self._file.size
        for column in columns:
            self._file.append(bytes_of(column))
        self._segments.setdefault(chunk, []).append(_Segment(at, len(positions), len(sources)))

    def pieces(self) -> list[Piece]:
        """Return all pieces by target, and then by source interval; an empty one where a target has no other."""
        found: list[Piece] = []
        for target in self._own:
            before = len(found)
            for source in self._order:
                for number, held in enumerate(self._grouped(self._segments.get((target, source), []))):
                    num_edges = sum(each.num_edges for each in held)
                    found.append(Piece(target, source, number, num_edges, partial(self._load, target, source, held)))
            if len(found) == before:
                found.append(Piece(target, target, 0, 0, partial(self._load, target, target, [])))
        return found

    def _grouped(self, segments: Sequence[_Segment]) -> list[list[_Segment]]:
        groups: list[list[_Segment]] = []
        held = 0
        for each in segments:
            if not groups or held + each.num_edges > self._max_edges:
                groups.append([])
                held = 0
            groups[-1].append(each)
            held += each.num_edges
        return groups

    def close(self) -> None:
        """Close the file. Pieces cannot be read any more."""
        self._file.close()
        self._segments.clear()

    @property
    def edge(self) -> EdgeContext:
        """The columns, of no edge."""
        _, weighted, width, _ = self._columns
        return EdgeContext(0, torch.zeros(0) if weighted else None, torch.zeros(0, width) if width else None)

    def _load(self, target: int, source: int, segments: Sequence[_Segment]) -> BlockTensors:
        """Read a piece as a block."""
        has_leaves, weighted, width, scaled = self._columns
        parts = [self._read(each) for each in segments] or [self._read(_Segment(0, 0, 0))]
        columns = [held[0] if len(held) == 1 else np.concatenate(held) for held in zip(*parts, strict=True)]
        floats = iter(columns[3 if has_leaves else 2 :])
        num_targets = self._sizes[target]
        edges = InEdges(
            offsets_of(np.bincount(columns[0], minlength=num_targets)),
            columns[1].astype(np.int64),
            weight=next(floats) if weighted else None,
            attributes=next(floats) if width else None,
            leaves=offsets_of(columns[2]) if has_leaves else None,
        )
        sample = None if self._scale is None else _floats(self._scale, target)
        block = block_tensors(Block(edges, self._sizes[source], sample, next(floats) if scaled else None))
        _ = block.csr.is_sound  # a pass over the edges, here where they are read
        return block

    def _read(self, segment: _Segment) -> list[Array]:
        has_leaves, weighted, width, scaled = self._columns
        lengths = [segment.num_edges, segment.num_leaves, *[segment.num_edges] * has_leaves]
        floats = [1] * weighted + [width] * bool(width) + [1] * scaled
        bounds = np.cumsum([*lengths, *(segment.num_edges * each for each in floats)])
        held = np.empty(int(bounds[-1]), np.int32)
        if len(held):
            self._file.read(bytes_of(held), segment.at)
        parts = np.split(held, bounds[:-1])
        return [
            part if place < len(lengths) else _shaped(part, floats[place - len(lengths)])
            for place, part in enumerate(parts)
        ]


def _shaped(part: Array, width: int) -> FloatArray:
    floats = part.view(np.float32)
    return floats.reshape(-1, width) if width > 1 else floats


def _floats(rows: NodeFile, interval: int) -> FloatArray:
    held: FloatArray = rows.read(interval).numpy()
    return held
