"""A graph in files, as the streamed execution reads it.

An interval is of one node type, and edges lie by relation; a graph without types is one of one type and one relation.

Shapes: N nodes, n nodes of an interval, R relations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions.moving import mapped, to_device
from gnnflow.executions.row_exchange import told_by_all
from gnnflow.executions.streamed import EVERY, GroupSizes, Piece, Ring
from gnnflow.executions.tensors import feature_tensors
from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of
from gnnflow.graph.batch import Block, Degrees, Features, NodeFeatures, TypedFeatures
from gnnflow.graph.narrow import NarrowRows
from gnnflow.graph.schema import UNTYPED, GraphSchema
from gnnflow.kernels import empty_rows
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext, TypedInputs
from gnnflow.train.streamed.card import Card, CardRows
from gnnflow.train.streamed.chunks import ChunkFile, Ends
from gnnflow.train.streamed.files import NUMBER, NodeFile, Scratch, bytes_of
from gnnflow.train.streamed.numbering import Numbering, Run
from gnnflow.train.streamed.packed import packed, read_run

DEGREES = 3
_PACKING = 4  # pieces that are read and sorted at once for a card, each in a thread
_ANY_DEPTH = -1  # no depth is less


class _Segment(NamedTuple):
    """Rows of an interval in a file: the first of them, where they lie, and how many they and their entries are."""

    within: int
    at: int
    rows: int
    entries: int
    has_values: bool


class FeatureFile:
    """Input features by interval, dense or sparse, as they are stored. dense: where they lie if they are.

    narrow: the form of dense rows in fewer bytes than float32, which are filled up to whole numbers of 4 bytes.
    """

    def __init__(
        self,
        scratch: Scratch,
        sizes: Sequence[int],
        width: int,
        *,
        sparse: bool,
        own: range | None = None,
        narrow: NarrowRows | None = None,
    ) -> None:
        self._width, self.narrow = width, narrow
        numbers = width if narrow is None else -(-narrow.row_bytes // NUMBER)
        self.dense = None if sparse or not width else NodeFile(scratch, tuple(sizes), numbers, own)
        self._sparse = scratch.file()
        self._segments: list[list[_Segment]] = [[] for _ in sizes]

    def add(self, run: Run, features: Features, places: IntArray) -> None:
        """Write the features of a run's nodes. features: of the nodes at hand; places: the run's nodes among these."""
        if self.dense is not None:
            rows = features.take(places).stored
            if self.narrow is not None:
                filled = np.zeros((len(rows), NUMBER * self.dense.width), np.uint8)
                filled[:, : rows.shape[1]] = rows
                rows = filled.view(np.float32)
            self.dense.fill(run.interval, run.within, rows)
            return
        self._segments[run.interval].append(self._append(features.take(places), run.within))

    def _append(self, features: Features, within: int) -> _Segment:
        assert features.offsets is not None
        assert features.index is not None
        at, value = self._sparse.size, features.value
        columns: list[Array] = [np.diff(features.offsets).astype(np.int32), features.index.astype(np.int32)]
        for column in [*columns, *([] if value is None else [np.ascontiguousarray(value, np.float32)])]:
            self._sparse.append(bytes_of(column))
        return _Segment(within, at, len(features), len(features.index), value is not None)

    def read(self, interval: int, num_rows: int) -> Features:
        """Return the features of an interval's first rows."""
        if self.dense is not None:
            dense = self.dense.read(interval, num_rows=num_rows).view(-1, self.dense.width).numpy()
            if self.narrow is not None:
                dense = dense.view(np.uint8)[:, : self.narrow.row_bytes]
            return Features(self._width, dense=dense, narrow=self.narrow)
        # an interval without nodes has no segment
        segments = sorted(self._segments[interval]) or [_Segment(0, 0, 0, 0, has_values=False)]
        lengths = np.concatenate([self._numbers(each.at, each.rows) for each in segments])
        offsets = offsets_of(lengths[:num_rows])
        index, value = _room(2 * offsets[-1]).view(np.int64), _room(offsets[-1]) if segments[0].has_values else None
        first = 0
        for _, at, rows, entries, _ in segments:  # into their place, as entries are what there is most of
            begin, last = at + NUMBER * rows, min(first + entries, len(index))
            index[first:last] = self._numbers(begin, last - first)
            if value is not None:
                self._sparse.read(bytes_of(value[first:last]), begin + NUMBER * entries)
            first = last
        return Features(self._width, offsets=offsets, index=index, value=value)

    def _numbers(self, at: int, number: int) -> Array:
        """Read some numbers of a place in the file."""
        held = _room(number).view(np.int32)
        self._sparse.read(bytes_of(held), at)
        return held


def _room(number: int) -> FloatArray:
    """Return room for so many numbers of 4 bytes, in memory that serves again, as for dense features."""
    return empty_rows(int(number)).numpy()


@dataclass
class FileGraph:
    """A graph whose nodes, in intervals, and edges lie in files: a `StreamedGraph`.

    chunks: of each layer and relation; layers over the same in-edges share them. inputs: features of each type, None
    for one without any. ring: where only some intervals are here. prunes: layers compute only the rows that reach a
    target. together: intervals that stay together, per layer and relation; none: one. card: to which tensors are
    copied; None: they stay here.
    """

    scratch: Scratch
    numbering: Numbering
    schema: GraphSchema
    chunks: tuple[tuple[ChunkFile, ...], ...]
    inputs: tuple[FeatureFile | None, ...]
    degrees: NodeFile
    ring: Ring | None = None
    prunes: bool = False
    together: tuple[tuple[GroupSizes, ...], ...] = ()
    card: Card | None = None
    _edges_of_all: dict[tuple[int, int], int] = field(default_factory=dict)
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
        max_rows: int = 0,
        ring: Ring | None = None,
        typed: TypedInputs | None = None,
        leaves: Sequence[int] = (),
        together: tuple[tuple[GroupSizes, ...], ...] = (),
        narrow: Sequence[NarrowRows | None] = (),
    ) -> FileGraph:
        """Return a graph whose nodes and edges are still to be written. files: per layer, the number of its edges.

        typed: of a typed graph, whose features' widths and forms are those that it names, and not width and sparse.
        max_edges and max_rows of a piece, and together: as a `Plan` has them. leaves: as
        `ModelInputs.leaves_of_relations` gives them. narrow: the form of each type's dense rows, if any is in fewer
        bytes than float32.
        """
        own, sizes = None if ring is None else ring.own, numbering.sizes
        schema = UNTYPED if typed is None else typed.schema
        several = [number != 1 for number in leaves or (1,) * schema.num_relations]
        types = zip(schema.target_types, schema.source_types, several, strict=True)
        ends = [_ends(numbering, ring, *each) for each in types]
        chunks = {
            number: tuple(ChunkFile(scratch, sizes, each, max_edges=max_edges, max_rows=max_rows) for each in ends)
            for number in sorted(set(files))
        }
        forms = [(width, sparse)] if typed is None else [(each.feature_width, each.sparse) for each in typed.types]
        rows = narrow or (None,) * len(forms)
        inputs = tuple(
            FeatureFile(scratch, numbering.of_type(sizes, number), of, sparse=is_sparse, own=own, narrow=rows[number])
            if of
            else None
            for number, (of, is_sparse) in enumerate(forms)
        )
        degrees = NodeFile(scratch, sizes, DEGREES * schema.num_relations, own)
        of_layers = tuple(chunks[number] for number in files)
        return cls(scratch, numbering, schema, of_layers, inputs, degrees, ring, together=together)

    def add(self, first: int, *, blocks: Sequence[Block], features: NodeFeatures, nodes: Degrees) -> None:
        """Write the nodes from `first` on with their in-edges, a block per layer. Nodes come in order."""
        columns = (nodes.in_degree, nodes.out_degree, nodes.in_weight)
        degrees = np.stack([np.asarray(each, np.float32) for each in columns], 1).reshape(
            len(nodes), self.degrees.width
        )
        parts = features.parts if isinstance(features, TypedFeatures) else (features,)
        into = self._begun(blocks)
        for run in self.numbering.runs(first, len(nodes)):
            node_type = self.types[run.interval]
            file, part = self.inputs[node_type], parts[node_type]
            if file is not None and part is not None:
                own = features.places[run.places] if isinstance(features, TypedFeatures) else run.places
                file.add(run, part, own)
            self.degrees.fill(run.interval, run.within, degrees[run.places])
            for chunks, block in into[node_type]:
                chunks.add(run, block, self.numbering)

    def _begun(self, blocks: Sequence[Block]) -> list[list[tuple[ChunkFile, Block]]]:
        """Return for each node type the chunks of the relations into it, each with its block, ready to be added."""
        found: list[list[tuple[ChunkFile, Block]]] = [[] for _ in self.schema.types]
        of_layers = {id(chunks): (chunks, block) for chunks, block in zip(self.chunks, blocks, strict=True)}
        for of_relations, block in of_layers.values():
            for number, (chunks, node_type) in enumerate(zip(of_relations, self.schema.target_types, strict=True)):
                relation = block.relation(number)
                chunks.begin(relation)
                found[node_type].append((chunks, relation))
        return found

    def written(self) -> FileGraph:
        """Return the same graph, whose nodes all are written: where each was is forgotten."""
        if self.numbering.rows is None:
            return self
        numbering = replace(self.numbering, rows=None)
        for chunks in {id(each): each for of_layer in self.chunks for each in of_layer}.values():
            chunks.merge()
        return replace(self, numbering=numbering)

    def on_card(self, card: Card) -> FileGraph:
        """Return the same graph for a card: pieces are written anew as it reads them, and their chunks are closed.

        Raises IndexError where an edge leads outside of its rows: on a card nothing checks that.
        """
        return replace(self, card=card, _pieces={}).sorted()

    @property
    def pruned(self) -> FileGraph:
        """The same files, of which layers compute the rows alone that reach a target."""
        return replace(self, prunes=True, _edges_of_all={}) if self.numbering.levels else self

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of nodes of each interval."""
        return self.numbering.sizes

    @property
    def types(self) -> tuple[int, ...]:
        """The number of each interval's node type."""
        return self.numbering.types or (0,) * len(self.sizes)

    def active(self, level: int) -> tuple[int, ...]:
        """Return how many rows of each interval, its first ones, are computed after so many layers."""
        return self.numbering.active(level) if self.prunes else self.sizes

    def sorted(self) -> FileGraph:
        """Return itself with all pieces written, which is else done when they are first asked for."""
        for layer, chunks in enumerate(self.chunks):
            for relation in range(len(chunks)):
                self.pieces(layer, relation)
        return self

    def num_edges(self, layer: int, relation: int = 0) -> int:
        """Return how many edges a layer aggregates in a relation, on all ranks."""
        if self.ring is None:
            return self.chunks[layer][relation].num_edges(self._least_depth(layer))
        if not self._edges_of_all:  # all ranks ask for them together, in the first layer of the first pass
            places = [(index, number) for index, chunks in enumerate(self.chunks) for number in range(len(chunks))]
            own = [self.chunks[index][number].num_edges(self._least_depth(index)) for index, number in places]
            found = told_by_all(self.ring.exchange, np.array(own)).sum(0).tolist()
            self._edges_of_all = dict(zip(places, found, strict=True))
        return self._edges_of_all[layer, relation]

    def pieces(self, layer: int, relation: int = 0) -> list[Piece]:
        """Return a layer's pieces of a relation in the order of target, source (as it comes by) and number.

        No node may be added from then on.
        """
        chunks, least = self.chunks[layer][relation], self._least_depth(layer)
        if (id(chunks), least) not in self._pieces:
            self._pieces[id(chunks), least] = self._stored_pieces(layer, relation)
        return self._pieces[id(chunks), least]

    def plain_pieces(self, layer: int, relation: int = 0) -> list[Piece]:
        """Return a layer's pieces of a relation as they were filed: by target alone."""
        sizes = self.active(layer + 1), self.active(layer)
        least = self._least_depth(layer)
        return self.chunks[layer][relation].pieces(num_targets=sizes[0], num_sources=sizes[1], least_depth=least)

    def _stored_pieces(self, layer: int, relation: int) -> list[Piece]:
        if self.card is not None:
            pieces, run = self.plain_pieces(layer, relation), self.card.run
            found = packed(pieces, self.scratch, run, threads=_PACKING, plain=True)
            self.chunks[layer][relation].close()
            return found
        if self.numbering.levels and not self.prunes:
            return self.plain_pieces(layer, relation)  # scoring reads them by target alone
        # where a type is several intervals, the rows of all are more than is in memory at once
        picks = len(self.sizes) > self.schema.num_types
        found = packed(self.plain_pieces(layer, relation), self.scratch, read_run, threads=1, picks=picks)
        if not self.numbering.levels:
            self.chunks[layer][relation].close()
        return found

    def _least_depth(self, layer: int) -> int:
        """Return the least depth of a layer's targets."""
        return layer + 1 if self.active(layer + 1) != self.sizes else _ANY_DEPTH

    def groups(self, layer: int, relation: int = 0) -> GroupSizes:
        """Return how many intervals of a relation's ends stay in memory together: as planned, or one of each."""
        return self.together[layer][relation] if self.together else GroupSizes()

    def edge(self, layer: int, relation: int = 0) -> EdgeContext:
        """Return the columns of a layer's edges in a relation, of no edge."""
        edge = self.chunks[layer][relation].edge
        return edge if self.card is None else to_device(self.card.device, edge)

    def features(self, interval: int) -> FeatureTensors:
        """Read the input features of an interval's rows that the first layer reads; no columns of a type without."""
        file, number = self.inputs[self.types[interval]], self.active(0)[interval]
        if file is None:
            features = FeatureTensors(0, dense=torch.zeros(number, 0))
        elif self.card is not None and file.dense is not None and file.narrow is None:
            rows = CardRows(file.dense, self.card).read(interval)
            return FeatureTensors(file.dense.width, dense=rows.view(-1, file.dense.width))
        else:
            features = feature_tensors(file.read(interval, number))
        return features if self.card is None else mapped(features, self.card.fetched)

    def nodes(self, interval: int) -> NodeContext:
        """Read the degrees of an interval's nodes."""
        degrees = self.degrees if self.card is None else CardRows(self.degrees, self.card)
        return node_context(degrees.read(interval), self.schema.num_relations)

    def rows(self, width: int, *, level: int, node_type: int | None = None) -> NodeFile | CardRows:
        """Return room for so many numbers per row of a level, of this rank's intervals.

        node_type: of the intervals that have rows there; None for all.
        """
        own = None if self.ring is None else self.ring.own
        return self._room(width, own, level=level, node_type=node_type)

    def source_rows(self, width: int, *, level: int, node_type: int | None = None) -> NodeFile | CardRows:
        """Return room for the terms that edges read of their sources: of all intervals, where ranks keep copies."""
        if self.ring is None or not self.ring.copies:
            return self.rows(width, level=level, node_type=node_type)
        return self._room(width, None, level=level, node_type=node_type)

    def _room(self, width: int, own: range | None, *, level: int, node_type: int | None) -> NodeFile | CardRows:
        of_type, active = self.numbering.of_type, self.active(level)
        rows = self.scratch.rows(of_type(self.sizes, node_type), width, own, active=of_type(active, node_type))
        return rows if self.card is None else CardRows(rows, self.card)


def _ends(numbering: Numbering, ring: Ring | None, target_type: int, source_type: int, several: bool) -> Ends:  # noqa: FBT001
    """Return the intervals that a relation's edges of this rank join, sources in the order in which they come by.

    several: an edge comes from several nodes, of any type.
    """
    every = range(len(numbering.sizes))
    own, order = (every, every) if ring is None else (ring.own, ring.order)
    types = numbering.types or (0,) * len(every)
    sources = [EVERY] if several else [each for each in order if types[each] == source_type]
    return Ends([each for each in own if types[each] == target_type], sources)


def node_context(degrees: Tensor, relations: int = 1) -> NodeContext:
    """Return the degrees of an interval from `FileGraph.degrees`: numbers [n], of several relations [n, R]."""
    if relations == 1:
        return NodeContext(*degrees.view(-1, DEGREES).t().contiguous().unbind())
    return NodeContext(*degrees.view(-1, DEGREES, relations).transpose(0, 1).contiguous().unbind())
