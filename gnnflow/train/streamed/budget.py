"""Memory of training under `train.memory`: the cut of a graph that keeps a budget, or why none does.

    made = plan(model, size, budget=...)        intervals, edges of a piece, groups of intervals, bytes of files

A pass holds tensors of a few intervals' rows, three pieces of edges (one is computed on, two are read ahead), and what
stays throughout: weights with their optimiser, logits and labels of the targets. Rows take memory in proportion to the
nodes of an interval, so the fewest intervals that fit are the least there can be. More intervals leave room for groups
of them: with groups of g target intervals out of P, source terms are read P / g times, and so are states and target
terms in the backward pass with groups of source intervals. But P intervals have P * P chunks, each with a list of where
the edges of a row begin: the plan is the number of intervals that reads least in all.

`widths.py` has the widths of each layer. On a typed graph an interval is of one type, and the intervals of all types
have the same most number of rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import partial

from pydantic import ByteSize

from gnnflow.config.messages import show
from gnnflow.executions.streamed import (
    GroupSizes,
)
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers import Model
from gnnflow.train.streamed.files import NUMBER, mib
from gnnflow.train.streamed.graph import DEGREES
from gnnflow.train.streamed.numbering import KEPT_PER_NODE, PER_NODE, PER_TYPED_NODE
from gnnflow.train.streamed.packed import ROWS_OF_TWO_BYTES
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CPU, LayerWidths, Place, RelationWidths, largest_row, layer_widths

_MIB = 1 << 20
_MOST_INTERVALS = 1024  # of a type
_NUMBERS_OF_INTERVALS = 1 << 16  # that two bytes tell apart
_MORE_INTERVALS = 4  # times as many as have to be: with more, chunks are so small that reading them takes longest
_FILLED = 0.95  # of what is left for rows is given to groups: gaps between pieces of memory are never all in use
_FILLED_ON_RING = 0.75  # there ranks hold each other up, and what waits for them is more than is counted
_HARDLY_MORE = 1.02  # times the least that any cut reads: the first cut that reads no more is taken
_LEAST_PICKED = 16_384  # rows that a piece may pick, or all there are
_SHARE_OF_EDGES = 0.25  # of what is left for intervals and pieces: more intervals rather than less for pieces
_LEAST_EDGES = 65_536  # of a piece: what layers that define `message` take at once
_LEAST_OF_MANY_BYTES, _MANY_BYTES = 16_384, 512  # the same of edges with leaves, or of more than so many bytes

_PER_LEAF = 100  # bytes of a leaf in three pieces by edge, and in one by source
_PER_RELATION = 8 * _MIB  # bytes that torch makes of a run of rows for each relation of a type beyond the first
_OF_RING = 24 * _MIB  # bytes of a rank's connections, their threads, and small parts in memory that two ranks see
_PER_LABELLED, _PER_TARGET = 3 * 8, 2 * 8  # bytes of row, id and split; and of what is taken of them for a split
_ONE_LABEL = 8  # bytes of a number that is the label
_OF_METRICS = 14  # numbers per output of a test target: logits, and what orders and ranks all of them at once
_WEIGHTS = 12  # parameters, gradients, two moments and the best so far; 3 copies for a checkpoint, 4 in its file

# Bytes while a partition is read and filed: of an edge, of a leaf beyond an edge's first, more of an edge of several
# relations (and 8 per column), of an entry of sparse features, of a node, and of a node in each of several relations;
# and copies of its labels.
_STORED_EDGE, _STORED_LEAF, _STORED_TYPED_EDGE, _STORED_ENTRY = 120, 40, 24, 80
_STORED_NODE, _STORED_DEGREE, _READ_LABELS = 200, 100, 4

_PER_PIECE = 1 << 19  # bytes that are read in the time that a piece takes besides them: a quarter of a millisecond
_MERGED = 4  # rows of a state that are read and written where a piece is merged with what is there
_TOUCHED = 0.1  # the same where a piece is added to it, and has edges of the row: in memory, and not from a file


@dataclass(frozen=True)
class Plan:
    """The cut of a graph that keeps a budget."""

    intervals: int  # of each rank
    max_edges: int  # of a piece
    num_bytes: int  # of a rank's memory
    disk_bytes: int  # of its files
    row_bytes: int  # of num_bytes, rows of intervals that are not on their way between ranks
    copies: bool = False  # each rank keeps the sources' terms of all ranks
    of_types: tuple[int, ...] = ()  # intervals of each node type
    max_rows: int = 0  # that the leaves of a piece's edges may name; 0: any number
    together: tuple[tuple[GroupSizes, ...], ...] = ()  # intervals that stay, per layer and relation; none: one of each


@dataclass(frozen=True)
class _Cut:
    """Intervals of a rank, and the pieces that its chunks are read in."""

    of_types: tuple[int, ...]  # intervals of each type
    rows: int  # of the largest interval
    chunk: int  # about how many edges the largest chunk has
    edges: int  # of a piece
    picked: int = 0  # rows that a piece picks; 0: pieces read whole intervals


@dataclass(frozen=True)
class Needs:
    """Bytes that training a model takes on a graph."""

    size: GraphSize
    schema: GraphSchema
    place: Place
    layers: tuple[LayerWidths, ...]
    here: tuple[LayerWidths, ...]  # without what is on its way between ranks
    fixed: int  # whatever the graph
    resident: int  # weights, logits and labels during a pass
    with_loss: int  # while the loss or metrics are computed, when there are no rows and pieces
    labels: int  # of all splits, throughout
    per_row: int  # of an interval
    per_edge: int  # of a piece
    per_picked: int  # of a row that a piece picks

    @classmethod
    def of(cls, model: Model, size: GraphSize, place: Place, *, picks: bool = False) -> Needs:
        """Return what a model needs. picks: pieces of edges with leaves name the rows that they read."""
        size = replace(size, all_nodes=size.all_nodes or size.num_nodes)
        layers = here = layer_widths(model, size, place, picks=picks, on_ring=size.ranks > 1)
        if size.ranks > 1:
            here = layer_widths(model, size, place, picks=picks, on_ring=False)
        passes = [each for layer in layers for each in layer.passes]
        heads = NUMBER * max(each.heads for each in passes)
        per_edge = place.per_edge + 6 * heads + place.per_number * bool(heads)
        per_edge += 3 * NUMBER * size.edge_columns + max(each.own_bytes for each in passes)
        if size.has_leaves:
            per_edge += size.leaves * (_PER_LEAF + heads) + 6 * heads + 3 * NUMBER * max(each.leaf for each in passes)

        weights = sum(each.numel() for each in model.parameters()) * NUMBER * _WEIGHTS
        labels = size.labelled * (_PER_LABELLED + size.label_bytes)
        per_target, outputs = _PER_TARGET + size.label_bytes, NUMBER * model.inputs.num_outputs
        # ranks tell each other the outputs of a split that is scored: as bytes, as arrays and joined
        throughout = weights + 3 * size.all_targets * (per_target + outputs) + labels * (not place.on_card)
        resident, with_loss = (
            throughout + size.num_targets * (per_target + number * outputs) for number in (place.outputs, place.at_loss)
        )
        if not place.on_card and size.label_bytes > _ONE_LABEL:  # metrics of one label take less than the loss
            with_loss = max(with_loss, weights + labels + size.tested * (per_target + _OF_METRICS * outputs))
        relations = max(0, *(each.num_relations - 2 for each in layers[0].types))
        return cls(
            size,
            model.inputs.schema,
            place,
            layers,
            here,
            fixed=place.fixed + _OF_RING * (size.ranks > 1) + _PER_RELATION * relations,
            resident=resident,
            with_loss=with_loss,
            labels=labels,
            per_row=largest_row(layers, place),
            per_edge=per_edge,
            # forward three pieces' rows are read; backward the terms of two, and of one the gradients, what autograd
            # makes of them and what is added to an interval
            per_picked=6 * NUMBER * max(each.picked for each in passes),
        )

    @property
    def most_intervals(self) -> int:
        """The most intervals that the largest type may have."""
        return min(_MOST_INTERVALS, max(self.size.nodes), (_NUMBERS_OF_INTERVALS - 1) // self.schema.num_types)

    @property
    def least_edges(self) -> int:
        """The fewest edges that a piece may be bounded by."""
        return _LEAST_OF_MANY_BYTES if self.size.has_leaves or self.per_edge > _MANY_BYTES else _LEAST_EDGES

    def in_all(self, row_bytes: int, edges: int, picked: int = 0) -> int:
        """Return the bytes with so many of rows of intervals, and so many edges and picked rows."""
        held = row_bytes + edges * self.per_edge + picked * self.per_picked
        return self.fixed + max(self.with_loss, self.resident + held)

    def cut(self, intervals: int, budget: int) -> _Cut:
        """Return the cut into so many intervals of the largest type."""
        size, most = self.size, max(self.size.nodes)
        rows = math.ceil(most / intervals)
        of_types = [intervals if nodes == most else max(1, math.ceil(nodes / max(rows, 1))) for nodes in size.nodes]
        # about how many edges a chunk has; edges with leaves come from all intervals at once
        sources = [1] * len(of_types) if size.has_leaves else of_types
        ends = zip(size.edges, self.schema.source_types, self.schema.target_types, strict=True)
        chunks = (edges // (sources[source] * of_types[target] * size.ranks) for edges, source, target in ends)
        chunk = max(chunks, default=0)
        # a piece should be a chunk, where that is no large share of a budget; a hub may have more edges
        enough = int((budget - self.resident - self.fixed) * _SHARE_OF_EDGES) // self.per_edge
        return _Cut(tuple(of_types), rows, chunk, max(self.least_edges, min(enough, chunk * 21 // 20)))

    def fixed_bytes(self) -> dict[str, int]:
        """Return the bytes that do not depend on the cut of the graph, by purpose."""
        size, (nodes, edges) = self.size, self.size.largest
        text = f"{mib(self.fixed)} whatever the graph, pieces of edges, and weights with logits and labels of "
        needed = {f"{text}{size.num_targets:,} targets": self.in_all(0, 2 * self.least_edges)}
        if self.place.on_card:
            return needed
        stored = edges * (_STORED_EDGE + _STORED_LEAF * (size.leaves - 1))
        stored += nodes * (max(size.in_files) * 3 * NUMBER + _STORED_NODE) + size.largest_entries * _STORED_ENTRY
        in_order, per_node = 0 if size.ranks > 1 or size.has_leaves else size.num_nodes, PER_NODE
        if size.is_typed:
            stored += edges * (_STORED_TYPED_EDGE + 8 * size.edge_columns) + nodes * _STORED_DEGREE * len(size.edges)
            in_order, per_node = size.all_nodes, PER_NODE + PER_TYPED_NODE
        text = f"reading a partition of {nodes:,} nodes and {edges:,} in-edges"
        text += f", {size.largest_entries:,} entries of sparse features" if size.largest_entries else ""
        needed[f"{text}: a larger graph.partitions makes it less"] = stored + in_order * KEPT_PER_NODE
        needed[f"putting {in_order:,} nodes in order"] = in_order * per_node
        # labels are put in order when all is filed, and nothing else is there
        read = nodes * size.label_bytes * _READ_LABELS
        needed[f"labels of {size.labelled:,} nodes"] = max(self.labels, read)
        first, *others = needed
        return {first: needed[first]} | {each: self.place.fixed + self.labels + needed[each] for each in others}

    def file_bytes(self, cut: _Cut, *, copies: bool) -> int:
        """Return the bytes of all files. Chunks are written twice: as they come, and by target and by source."""
        size, ends = self.size, [*zip(self.schema.source_types, self.schema.target_types, strict=True)]
        # where layers compute the rows alone that reach a target, each may have edges for itself
        orders = len(self.layers) if size.may_prune else 1
        columns = 2 + size.edge_columns + orders * (3 + size.edge_columns)
        columns += 4 * size.leaves * size.has_leaves  # and the rows that a piece picks
        numbers, rows = size.num_edges * columns, 0
        for node_type, (nodes, entries) in enumerate(zip(size.nodes, size.mean_entries, strict=True)):
            at = [layer.types[node_type] for layer in self.layers]
            # room of a layer serves another, but not the room of another relation's ends
            in_turn = [each.in_turn for each in at]
            rows += nodes * (sum(each.in_files for each in at) + (sum(in_turn) if size.is_typed else max(in_turn)))
            # lists of where edges begin, of the chunks in which the type's nodes are targets, and sources
            lists = sum(
                cut.of_types[source] * (target == node_type) + cut.of_types[target] * (source == node_type)
                for source, target in ends
            )
            sparse = 2 * entries + (entries > 0)  # of an entry its column and value, and of a row how many it has
            inputs = size.in_files[node_type] + sparse + DEGREES * len(ends)
            numbers += nodes * (inputs + orders * lists * size.ranks)
            numbers += copies * (size.ranks - 1) * nodes * sum(each.source for each in at)
        # before there are rows, edges are merged from one file into another
        return NUMBER * (numbers + max(rows, size.num_edges * (2 + size.edge_columns)))


def plan(model: Model, size: GraphSize, *, budget: int, copies: bool = False, place: Place = ON_CPU) -> Plan:
    """Return how to cut a graph. Raises TrainingError, with the least budget that works, if no cut fits.

    copies: where source terms are read more than once, all ranks keep what they read of the others' nodes.
    """
    if size.has_leaves and size.ranks > 1:
        raise TrainingError(
            f"edges with leaves cannot be divided among {size.ranks} ranks under train.memory: the leaves of one edge "
            "may lie in the intervals of several ranks",
            where="train.workers",
            fix="Set it to 1, or leave train.memory out.",
        )
    needs = Needs.of(model, size, place)
    picking = Needs.of(model, size, place, picks=True) if size.has_leaves else None
    cuts = _fitting_cuts(needs, picking, budget)
    if not cuts:
        raise _too_small(needs, picking, budget)
    if picking is None or not cuts[0].picked:
        return _grouped_plan(needs, max(cuts[0].of_types), budget, copies=copies)
    # Every piece reads the intervals that its leaves lie in, so memory is best spent on the rows that a piece may pick,
    # and intervals are small; but each of them takes a piece at least. Of several cuts the one of fewest intervals.
    cut = min(cuts, key=partial(_num_pieces, picking))
    row_bytes = cut.rows * picking.per_row
    return Plan(
        sum(cut.of_types),
        cut.edges,
        picking.in_all(row_bytes, cut.edges, cut.picked),
        picking.file_bytes(cut, copies=False),
        row_bytes + cut.picked * picking.per_picked,
        of_types=cut.of_types,
        max_rows=cut.picked,
    )


def _fitting_cuts(needs: Needs, picking: Needs | None, budget: int) -> list[_Cut]:
    """Return the cut of fewest intervals that keeps a budget; of edges with leaves, all that do by picking rows.

    picking: of edges with leaves, where a type is several intervals. Empty where no cut keeps the budget.
    """
    if budget < max(needs.fixed_bytes().values()):
        return []
    for intervals in range(1, 2 if picking else needs.most_intervals + 1):
        cut = needs.cut(intervals, budget)
        if needs.in_all(cut.rows * needs.per_row, cut.edges) <= budget:
            return [cut]
    if picking is None:
        return []
    found, nodes = [], picking.size.all_nodes
    for intervals in range(2, picking.most_intervals + 1):
        cut = picking.cut(intervals, budget)
        left = budget - picking.in_all(cut.rows * picking.per_row, cut.edges)
        picked = min(nodes, left // max(picking.per_picked, 1))
        if picked >= min(nodes, _LEAST_PICKED):
            found.append(replace(cut, picked=picked))
    return found


def _num_pieces(needs: Needs, cut: _Cut) -> int:
    """Return about how many pieces a graph has whose leaves are drawn at random, which is the most."""
    size, nodes = needs.size, needs.size.all_nodes
    # so many leaves name so many different nodes of all
    leaves = -nodes * math.log1p(-cut.picked / nodes) if cut.picked < nodes else math.inf
    found = 0
    for number, target in zip(size.edges, needs.schema.target_types, strict=True):
        into = number / cut.of_types[target]
        found += cut.of_types[target] * max(1, math.ceil(into / cut.edges), math.ceil(into * size.leaves / leaves))
    return found


def _grouped_plan(needs: Needs, fewest: int, budget: int, *, copies: bool) -> Plan:
    """Return the plan of at least so many intervals, and the groups of them, by which least is read."""
    size, place, left = needs.size, needs.place, budget - needs.resident - needs.fixed
    tried = {fewest}
    if place.groups and not size.has_leaves:
        # and so many that numbers of rows have two bytes
        short = -(-max(size.nodes) // ROWS_OF_TWO_BYTES)
        tried |= {*range(fewest, _MORE_INTERVALS * fewest + 3), max(fewest, short)}
    filled = _FILLED if size.ranks == 1 else _FILLED_ON_RING
    filled *= place.groups and not size.has_leaves
    found = []
    for intervals in sorted(each for each in tried if each <= needs.most_intervals):
        cut = needs.cut(intervals, budget)
        row_bytes = int(filled * (left - cut.edges * needs.per_edge))
        found.append((cut, *_largest_groups(needs, cut, row_bytes // max(cut.rows, 1))))
    enough = _HARDLY_MORE * min(bytes_read for _, _, bytes_read in found)
    cut, together, _ = next(each for each in found if each[2] <= enough)
    row_bytes = cut.rows * largest_row(needs.layers, place, together)
    edges = max(cut.edges, min((left - row_bytes) // needs.per_edge, 2 * cut.chunk))
    # in the forward pass of some relation source terms go by more than once
    rereads = any(
        cut.of_types[of.ends[1]] > group.targets
        for layer, groups in zip(needs.layers, together, strict=True)
        for of, group in zip(layer.passes, groups, strict=True)
    )
    return Plan(
        sum(cut.of_types),
        edges,
        needs.in_all(row_bytes, edges),
        needs.file_bytes(cut, copies=copies and rereads),
        cut.rows * largest_row(needs.here, place, together),
        copies and rereads,
        cut.of_types,
        together=together,
    )


def _largest_groups(needs: Needs, cut: _Cut, room: int) -> tuple[tuple[tuple[GroupSizes, ...], ...], float]:
    """Return the largest groups per layer and relation that keep to so many bytes per row, and the bytes read."""
    found, bytes_read = [], 0.0
    for layer in needs.layers:
        of_layer = []
        for number, (of, (forward, backward)) in enumerate(zip(layer.passes, layer.phases, strict=True)):
            sources, targets = cut.of_types[of.ends[0]] * needs.size.ranks, cut.of_types[of.ends[1]]
            group = GroupSizes(
                forward.largest(room, targets, needs.place),
                1 if backward is None else backward.largest(room, sources, needs.place),
            )
            of_layer.append(group)
            bytes_read += _bytes_read(needs.size, of, group, (sources, targets), needs.size.edges[number])
        found.append(tuple(of_layer))
    return tuple(found), bytes_read


def _bytes_read(size: GraphSize, of: RelationWidths, group: GroupSizes, cut: tuple[int, int], edges: int) -> float:
    """Return about how many bytes a relation's edge phases read; the rest of their time counts as bytes too.

    cut: intervals of sources, on all ranks, and of targets, on this one. edges: on this rank.
    """
    (sources, targets), back = cut, of.backward is not None
    from_nodes, to_nodes = size.nodes[of.ends[0]] * size.ranks, size.nodes[of.ends[1]]
    numbers = math.ceil(targets / group.targets) * from_nodes * of.read
    numbers += back * math.ceil(sources / group.sources) * to_nodes * (of.state + of.target)

    def touched(rows: int) -> float:
        """Return how many of all chunks' rows have an edge, where edges are drawn at random."""
        return -rows * math.expm1(-edges / max(rows, 1))

    # numbers of states and gradients that pieces are added to, as numbers that are read
    if of.in_place:
        sums = touched(sources * to_nodes) * of.state + back * touched(targets * from_nodes) * of.source
        numbers += int(_TOUCHED * sums)
    else:
        numbers += _MERGED * (1 + back) * sources * to_nodes * of.state
    # where a row's edges begin, in a byte of each row of a chunk, by target backward too; and the edges' other ends
    ends = (1 + back) * sources * to_nodes + back * targets * from_nodes
    ends += edges * sum(
        2 if rows <= ROWS_OF_TWO_BYTES else NUMBER for rows in (from_nodes / sources, to_nodes / targets)[: 1 + back]
    )
    return NUMBER * numbers + ends + (1 + back) * sources * targets * _PER_PIECE


def _too_small(needs: Needs, picking: Needs | None, budget: int) -> TrainingError:
    """Return the error of a budget that no cut keeps: the fewest whole MiB that are enough, and what needs them."""

    def fits(size: int) -> bool:
        return bool(_fitting_cuts(needs, picking, size * _MIB))

    too_few = budget // _MIB
    enough = too_few + 1
    while not fits(enough):
        too_few, enough = enough, 2 * enough
    # between these; more memory never needs more
    least = bisect_left(range(enough), 1, too_few + 1, enough, key=fits)
    reason, most = max(needs.fixed_bytes().items(), key=lambda each: each[1])
    if (least - 1) * _MIB >= most:
        reason = f"{needs.per_row:,} bytes for each node of an interval, of which there can be {needs.most_intervals}"
        if picking is not None:
            reason += f", and {picking.per_picked:,} for each row that a piece of edges with leaves reads"
    return TrainingError(
        f"{show(ByteSize(budget))} is not enough: {mib(least * _MIB)} are needed ({reason})",
        where="train.memory",
        fix=f"Set it to {mib(least * _MIB)} or more.",
    )
