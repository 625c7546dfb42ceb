"""The edges of a graph as chunks in one file: those from one interval of nodes to another lie together.

A file has the edges of one relation: their targets are in the intervals of one node type, and so are their sources. It
is written once, run of nodes after run of nodes (`numbering.py`), so a chunk lies in as many segments as runs
had edges of it; where these are many they are merged. A piece is what is read at once: segments of one chunk that have
a bounded number of edges. Those into the rows that lie first come first, so edges of a piece are in the order of their
targets, and a layer that computes the first rows alone reads the first segments.

Shapes: E edges of a segment, L leaves of them, A edge attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import torch

from gnnflow.executions.streamed import EVERY, Piece
from gnnflow.executions.tensors import BlockTensors, block_tensors
from gnnflow.graph.arrays import Array, IntArray, offsets_of
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.layers import EdgeContext
from gnnflow.train.streamed.files import NodeFile, Scratch, ScratchFile, bytes_of
from gnnflow.train.streamed.numbering import Numbering, Run


@dataclass(frozen=True)
class _Segment:
    """A place in the file that holds edges of a chunk; numbers of edges and leaves. depth: of targets."""

    at: int
    num_edges: int
    num_leaves: int
    depth: int = 0


@dataclass(frozen=True)
class Ends:
    """The intervals that edges of a relation join: targets of this rank, and sources in the order in which they come.

    sources: only `EVERY` where an edge has leaves, which may be of several types and intervals.
    """

    targets: Sequence[int]
    sources: Sequence[int]


class ChunkFile:
    """The in-edges that a layer aggregates in one relation, by chunk. sizes: nodes of each interval.

    max_edges: of a piece. max_rows: and how many rows the leaves of its edges may name, but for an edge of more.
    """

    def __init__(self, scratch: Scratch, sizes: Sequence[int], ends: Ends, *, max_edges: int, max_rows: int) -> None:
        self._sizes, self._firsts, self._ends = tuple(sizes), offsets_of(np.array(sizes)), ends
        self._scratch, self._file, self._max_edges, self._max_rows = scratch, scratch.file(), max_edges, max_rows
        self._segments: dict[tuple[int, int], list[_Segment]] = {}
        self._num_edges: dict[int, int] = {}  # by the least depth of their targets; known once all are written
        self._scale: NodeFile | None = None
        self._columns: tuple[bool, bool, int, bool] = (False, False, 0, False)

    def begin(self, block: Block) -> None:
        """Take note of which columns edges have; of no edge too."""
        edges = block.edges
        has_leaves = list(self._ends.sources) == [EVERY]
        width = 0 if edges.attributes is None else edges.attributes.shape[1]
        self._columns = (has_leaves, edges.weight is not None, width, block.edge_scale is not None)

    def add(self, run: Run, block: Block, numbering: Numbering) -> None:
        """Write the in-edges of a run's nodes. block: of the nodes at hand; its sources are dense ids."""
        edges = block.edges
        if block.sample_scale is not None:
            self._scale = self._scale or self._room_of_targets()
            self._scale.fill(run.interval, run.within, block.sample_scale[run.places])
        picked = edges.prefix(run.places, limit=None)
        positions, first = picked.positions, run.within
        targets = np.repeat(np.arange(first, first + len(run.places), dtype=np.int32), picked.counts)
        for source, held in self._by_source(edges, positions, numbering):
            start = 0
            while start < len(held):
                part = held[start : start + self._max_edges]
                rows = numbering.rows_of(edges.sources_of(positions[part]))
                if self._columns[0]:
                    counts = edges.leaf_counts[positions[part]]
                    part = part[: _within(rows, counts, self._max_rows)]
                    rows = rows[: counts[: len(part)].sum()]
                self._append((run.interval, source), block, positions[part], (targets[part], rows), depth=run.depth)
                start += len(part)

    def _room_of_targets(self) -> NodeFile:
        own = frozenset(self._ends.targets)
        sizes = tuple(size if number in own else 0 for number, size in enumerate(self._sizes))
        return NodeFile(self._scratch, sizes, 1)

    def _by_source(self, edges: InEdges, positions: IntArray, numbering: Numbering) -> Iterator[tuple[int, IntArray]]:
        """Yield the source intervals of edges at some positions, and which of these come from there."""
        if self._columns[0]:
            yield self._ends.sources[0], np.arange(len(positions))
            return
        rows = numbering.rows_of(edges.sources_of(positions))
        # in few bits they are sorted by their digits
        of = (np.searchsorted(self._firsts, rows, side="right") - 1).astype(np.uint16)
        del rows
        order, counts = np.argsort(of, kind="stable"), np.bincount(of, minlength=len(self._sizes))
        for source, stop in enumerate(np.cumsum(counts).tolist()):
            yield source, order[stop - counts[source] : stop]

    def _append(
        self, chunk: tuple[int, int], block: Block, positions: IntArray, ends: tuple[Array, Array], *, depth: int
    ) -> None:
        edges, (targets, sources) = block.edges, ends
        first = 0 if chunk[1] == EVERY else self._firsts[chunk[1]]
        columns: list[Array] = [targets, (sources - first).astype(np.int32)]
        if self._columns[0]:
            columns.append(edges.leaf_counts[positions].astype(np.int32))
        floats = (edges.weight, edges.attributes, block.edge_scale)
        columns += [np.ascontiguousarray(each[positions], np.float32) for each in floats if each is not None]
        self._segments.setdefault(chunk, []).append(self._written(columns, len(positions), len(sources), depth))

    def _written(self, columns: Sequence[Array], num_edges: int, num_leaves: int, depth: int) -> _Segment:
        at = self._file.size
        for column in columns:
            self._file.append(bytes_of(column))
        return _Segment(at, num_edges, num_leaves, depth)

    def merge(self) -> None:
        """Write what lies in many segments again, in segments of as many edges as a piece may have."""
        before, self._file = self._file, self._scratch.file()
        for chunk, segments in self._segments.items():
            # by the rows that they lead to: of one depth as they were written
            segments.sort(key=lambda each: -each.depth)
            of_depths = (list(held) for _, held in groupby(segments, key=lambda each: each.depth))
            self._segments[chunk] = [
                self._written(
                    self._joined(held, before),
                    sum(each.num_edges for each in held),
                    sum(each.num_leaves for each in held),
                    held[0].depth,
                )
                for of_depth in of_depths
                for held in self._grouped(of_depth, before)
            ]
        before.close()

    def num_edges(self, least_depth: int) -> int:
        """Return how many edges lead to targets of at least a depth."""
        if least_depth not in self._num_edges:  # every run of rows asks which of map and sum comes first
            held = (each for segments in self._segments.values() for each in segments)
            self._num_edges[least_depth] = sum(each.num_edges for each in held if each.depth >= least_depth)
        return self._num_edges[least_depth]

    def pieces(self, *, num_targets: Sequence[int], num_sources: Sequence[int], least_depth: int) -> list[Piece]:
        """Return the pieces by target, and then by source interval; an empty one where a target has no other.

        That comes from the target itself, where it is of the sources' type, and else from the first source.

        least_depth: of their targets. num_targets and num_sources: rows of each interval, as targets and as sources.
        """
        found: list[Piece] = []

        def piece(target: int, source: int, number: int, held: Sequence[_Segment]) -> Piece:
            sizes = num_targets[target], sum(num_sources) if source == EVERY else num_sources[source]
            load = partial(self._load, target, held, sizes)
            return Piece(target, source, number, sum(each.num_edges for each in held), load)

        sources = self._ends.sources
        for target in self._ends.targets:
            before = len(found)
            for source in sources:
                segments = [each for each in self._segments.get((target, source), []) if each.depth >= least_depth]
                found += [piece(target, source, *each) for each in enumerate(self._grouped(segments, self._file))]
            if len(found) == before:
                found.append(piece(target, target if target in sources else sources[0], 0, []))
        return found

    def _grouped(self, segments: Sequence[_Segment], file: ScratchFile) -> list[list[_Segment]]:
        """Return groups of segments to read at once. file: where they lie."""
        groups: list[list[_Segment]] = []
        held, named = 0, np.zeros(0, np.int32)
        for each in segments:
            rows = np.unique(self._read(each, file)[1]) if self._columns[0] and self._max_rows else named
            both = np.union1d(named, rows)
            if not groups or held + each.num_edges > self._max_edges or len(both) > self._max_rows > 0:
                groups.append([])
                held, both = 0, rows
            groups[-1].append(each)
            held, named = held + each.num_edges, both
        return groups

    def close(self) -> None:
        """Close the file. Pieces cannot be read any more."""
        self._file.close()

    @property
    def edge(self) -> EdgeContext:
        """The columns, of no edge."""
        _, weighted, width, _ = self._columns
        return EdgeContext(0, torch.zeros(0) if weighted else None, torch.zeros(0, width) if width else None)

    def _load(self, target: int, segments: Sequence[_Segment], sizes: tuple[int, int]) -> BlockTensors:
        """Read a piece as a block. sizes: how many targets and sources it has."""
        has_leaves, weighted, width, scaled = self._columns
        columns = self._joined(segments, self._file)
        floats = iter(columns[3 if has_leaves else 2 :])
        num_targets, num_sources = sizes
        edges = InEdges(
            offsets_of(np.bincount(columns[0], minlength=num_targets)),
            columns[1].astype(np.int64),
            weight=next(floats) if weighted else None,
            attributes=next(floats).reshape(-1, width) if width else None,
            leaves=offsets_of(columns[2]) if has_leaves else None,
        )
        sample = None if self._scale is None else self._scale.read(target, num_rows=num_targets).numpy()
        held = Block(edges, num_sources, sample, next(floats) if scaled else None)
        block = block_tensors(held, keeps_leaves=True)  # pieces of one relation are computed in one way
        _ = block.csr.is_sound  # a pass over the edges, here where they are read
        return block

    def _joined(self, segments: Sequence[_Segment], file: ScratchFile) -> list[Array]:
        parts = [self._read(each, file) for each in segments] or [self._read(_Segment(0, 0, 0), file)]
        return [held[0] if len(held) == 1 else np.concatenate(held) for held in zip(*parts, strict=True)]

    def _read(self, segment: _Segment, file: ScratchFile) -> list[Array]:
        has_leaves, weighted, width, scaled = self._columns
        lengths = [segment.num_edges, segment.num_leaves, *[segment.num_edges] * has_leaves]
        floats = [1] * weighted + [width] * bool(width) + [1] * scaled
        bounds = np.cumsum([*lengths, *(segment.num_edges * each for each in floats)])
        held = np.empty(int(bounds[-1]), np.int32)
        if len(held):
            file.read(bytes_of(held), segment.at)
        whole = len(lengths)
        parts = np.split(held, bounds[:-1])
        return [part if place < whole else part.view(np.float32) for place, part in enumerate(parts)]


def _within(rows: Array, counts: IntArray, max_rows: int) -> int:
    """Return how many of some edges, of the first ones, name so many different rows at most; one at least.

    rows [L]: of the leaves of one edge after the other. counts [E]: how many each has. max_rows: 0 for any number.
    """
    first = np.unique(rows, return_index=True)[1] if max_rows else rows[:0]
    if len(first) <= max_rows:
        return len(counts)
    # the leaf that names one row too many: its edge is the first that is left out
    leaf = np.partition(first, max_rows)[max_rows]
    return max(1, int(np.searchsorted(np.cumsum(counts), leaf, side="right")))
