"""Bytes that training under a budget takes: whatever the graph, per row of an interval, and while it is filed.

Shapes: T targets, C outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnflow.layers import Model
from gnnflow.train.streamed.cut import Cut
from gnnflow.train.streamed.numbering import KEPT_PER_NODE, PER_NODE, PER_TYPED_NODE
from gnnflow.train.streamed.phases import bytes_per_picked, bytes_per_row
from gnnflow.train.streamed.place import Place
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import NUMBER, Asked, TypeWidths, layer_widths

_SHARE_OF_EDGES = 0.25  # of what is left for intervals and pieces: more intervals rather than less for pieces
_LEAST_EDGES = 65_536  # of a piece: what layers that define `message` take at once
_LEAST_OF_MANY_BYTES = 16_384  # the same of edges that take several times the memory: with leaves, or many numbers
_MANY_BYTES = 512  # of an edge
_PER_LEAF = 100  # bytes of a leaf in three pieces by edge, and in one by source
_PER_STORED_LEAF = 40  # bytes per leaf of a partition beyond an edge's first, while it is put into chunks
_PER_STORED_EDGE = 120  # bytes per edge of a partition while it is read and put into chunks
_PER_TYPED_EDGE = 24  # bytes more, and 8 per column: where relations are read one by one and put together
# Of two intervals' sparse features half the numbers, which are 8 bytes of an index and 4 of a value: one is computed
# on, and its entries are put in the order of columns for the gradient (16 bytes); the other is being read, whole and
# once more as it lies in the file (16 at most). Where a row begins has 8 bytes.
_PER_ENTRY, _PER_SPARSE_ROW = 7, 2
_PER_STORED_ENTRY = 80  # bytes per entry of a partition's sparse features, while they are read and put into intervals
_PER_DEGREE = 100  # bytes per node of a partition and relation beyond the first, likewise
_PER_RELATION = 8 * 2**20  # bytes that torch makes of a run of rows for each relation of a type beyond the first
_OF_RING = 24 * 2**20  # bytes of a rank's connections, their threads, and small parts in memory that two ranks see
_PER_LABELLED = 3 * 8  # row, id and split, beside the label
_PER_TARGET = 2 * 8  # row and id, of what is taken of them for a split
_PER_READ_LABEL = 4  # copies of a partition's labels while they are read
_ONE_LABEL = 8  # bytes of a number that is the label
_OF_METRICS = 14  # numbers per output of a test target: logits, and what orders and ranks all of them at once
_WEIGHTS = 12  # parameters, gradients, two moments and the best so far; 3 copies for a checkpoint, 4 in its file


@dataclass(frozen=True)
class Needs:
    """Bytes that training takes: fixed and of what is there throughout, per row of an interval and edge of a piece.

    with_loss: while the loss or metrics are computed, when there are no rows and pieces. per_picked: of a row that a
    piece picks.
    """

    fixed: int
    resident: int
    with_loss: int
    per_row: int
    per_edge: int
    per_picked: int

    @classmethod
    def of(cls, model: Model, size: GraphSize, layers: list[list[TypeWidths]], place: Place) -> Needs:
        """Return what a model needs on a graph of a size. layers: their widths, by type."""
        fixed, heads = place.fixed, max((each.heads for layer in layers for of in layer for each in of.into), default=0)
        fixed += _OF_RING if size.ranks > 1 else 0
        if size.typed is not None:
            fixed += _PER_RELATION * max(0, *(len(each.into) + len(each.out_of) - 2 for each in layers[0]))
        columns = 3 * NUMBER * size.edge_columns
        columns += max((each.own_bytes for layer in layers for of in layer for each in of.into), default=0)
        if size.has_leaves:
            rows = max(each.instance for layer in layers for of in layer for each in of.into)
            columns += size.leaves * (_PER_LEAF + NUMBER * heads) + 6 * NUMBER * heads + 3 * NUMBER * rows
        return cls(
            fixed,
            _resident(model, size, place, place.outputs),
            max(_resident(model, size, place, place.at_loss), _at_metrics(model, size, place)),
            bytes_per_row(layers, place),
            place.per_edge + columns + 6 * NUMBER * heads + place.per_number * bool(heads),
            max(map(bytes_per_picked, layers)),
        )

    def in_all(self, row_bytes: int, edges: int, picked: int = 0) -> int:
        """Return the bytes with so many of rows of intervals, and so many edges and picked rows."""
        held = row_bytes + edges * self.per_edge + picked * self.per_picked
        return self.fixed + max(self.with_loss, self.resident + held)

    def edges(self, cut: Cut, budget: int) -> int:
        """Return the edges that a piece should have: those of a chunk, where they are no large share of a budget."""
        enough = int((budget - self.resident - self.fixed) * _SHARE_OF_EDGES) // self.per_edge
        return max(self.least_edges(cut.size), min(enough, cut.chunk * 21 // 20))

    def least_edges(self, size: GraphSize) -> int:
        """Return the fewest edges that a piece may be bounded by."""
        return _LEAST_OF_MANY_BYTES if size.has_leaves or self.per_edge > _MANY_BYTES else _LEAST_EDGES


def widths_of(model: Model, size: GraphSize, place: Place, *, picks: bool) -> list[list[TypeWidths]]:
    """Return the widths of each layer, by type. picks: pieces of edges with leaves name the rows that they read."""
    may_prune, of = size.may_prune or not size.num_edges, size.by_type
    spread = math.ceil(of.nodes_of_all / max(*of.nodes, 1))
    sparse = [each and _PER_ENTRY * each + _PER_SPARSE_ROW for each in of.entries_of_node]
    asked = Asked(
        [*zip(of.features, sparse, strict=True)],
        spread,
        may_prune,
        size.has_leaves,
        picks,
        goes_round=size.ranks > 1,
        exact=place.exact,
        weighted=size.edge_columns > model.inputs.attribute_width,
        makes_terms=size.ranks == 1 and place.makes_terms,
    )
    return [layer_widths(model, index, asked) for index in range(model.num_layers)]


def filing_bytes(size: GraphSize, place: Place) -> dict[str, int]:
    """Return the bytes that writing the graph into files takes, by what for."""
    nodes, edges = size.largest
    per_edge = _PER_STORED_EDGE + _PER_STORED_LEAF * (size.leaves - 1)
    stored = edges * per_edge + nodes * (size.feature_width * 3 * NUMBER + 200)
    stored += size.entries[1] * _PER_STORED_ENTRY
    in_order, per_node = 0 if size.ranks > 1 or size.has_leaves else size.num_nodes, PER_NODE
    if size.typed is not None:
        stored += edges * (_PER_TYPED_EDGE + 8 * size.edge_columns) + nodes * _PER_DEGREE * len(size.typed.edges)
        in_order, per_node = size.typed.nodes_of_all, PER_NODE + PER_TYPED_NODE
    reading = f"reading a partition of {nodes:,} nodes and {edges:,} in-edges"
    reading += f", {size.entries[1]:,} entries of sparse features" if size.entries[1] else ""
    labels, beside = _label_bytes(size), place.fixed + _label_bytes(size)
    return {
        f"{reading}: a larger graph.partitions makes it less": beside + stored + in_order * KEPT_PER_NODE,
        f"putting {in_order:,} nodes in order": beside + in_order * per_node,
        # where they lie in order is found when all is filed, and nothing else is there
        f"labels of {size.labelled:,} nodes": beside + max(labels, nodes * size.label_bytes * _PER_READ_LABEL),
    }


def _label_bytes(size: GraphSize) -> int:
    """Return the bytes of labelled nodes, whatever their split, that are there throughout."""
    return size.labelled * (_PER_LABELLED + size.label_bytes)


def _at_metrics(model: Model, size: GraphSize, place: Place) -> int:
    """Return the bytes while metrics of the test split are computed; of one label they are fewer than of the loss."""
    if not place.reads or size.label_bytes <= _ONE_LABEL:
        return 0
    own = size.tested * (_PER_TARGET + size.label_bytes + _OF_METRICS * NUMBER * model.inputs.num_outputs)
    return _weights(model) + own + _label_bytes(size)


def _weights(model: Model) -> int:
    return sum(each.numel() for each in model.parameters()) * NUMBER * _WEIGHTS


def _resident(model: Model, size: GraphSize, place: Place, outputs: int) -> int:
    # logits, and while there is a loss what it keeps of them and their gradient
    per_target, of_outputs = _PER_TARGET + size.label_bytes, NUMBER * model.inputs.num_outputs
    own = size.num_targets * (per_target + outputs * of_outputs)
    # what ranks tell each other when a split is scored: as bytes, as arrays and joined
    told = 3 * size.targets_of_all * (per_target + of_outputs)
    return _weights(model) + own + told + _label_bytes(size) * place.reads
