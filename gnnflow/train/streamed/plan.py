"""How a graph is cut so that training on it keeps a budget of memory: or why it cannot.

What a phase of the streamed execution holds at once is a few tensors of some intervals' rows, three pieces of edges
(the one computed on and those read ahead), and what is there throughout: weights with their optimiser, the logits and
labels of the targets. The first is in proportion to the nodes of an interval, so as few intervals as fit are the least
there can be. More of them leave room for groups of intervals (`groups.py`), by which less is read.

Every layer's terms and states are asked of the model itself (`widths.py`), and what phases hold of them follows
(`phases.py`). On a typed graph an interval is of one type; all have the same most number of rows, so a type has as many
intervals as its nodes ask for.

Shapes: N nodes, T targets, C outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ByteSize

from gnnflow.config.messages import show
from gnnflow.executions.streaming import GroupSizes
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers import Model
from gnnflow.train.streamed.groups import CutSize, Groups, as_large_as_fit
from gnnflow.train.streamed.numbering import KEPT_PER_NODE, PER_NODE, PER_TYPED_NODE
from gnnflow.train.streamed.phases import bytes_per_layer, bytes_per_picked
from gnnflow.train.streamed.place import ON_CPU, Place
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.space import bytes_of_files, mib
from gnnflow.train.streamed.widths import NUMBER, Asked, TypeWidths, layer_widths

_MOST_INTERVALS = 1024  # of a type
_MORE_INTERVALS = 4  # times as many as have to be: more make chunks so small that reading them takes longest
_FILLED = 0.95  # of what is left for rows is given to groups: what lies between pieces of memory is never all in use
_HARDLY_MORE = 1.05  # times what is read with the best of these: the first one is taken that reads no more
_NUMBERS_OF_INTERVALS = 1 << 16  # that two bytes tell apart

_SHARE_OF_EDGES = 0.25  # of what is left for intervals and pieces: more intervals rather than less for pieces
_LEAST_EDGES = 65_536  # of a piece: what layers that define `message` take at once
_LEAST_WITH_LEAVES = 16_384  # the same of edges with leaves, which take several times the memory
_LEAST_PICKED = 16_384  # rows that a piece may pick, or all there are
_PER_LEAF = 100  # bytes of a leaf in three pieces by edge, and in one by source
_PER_STORED_LEAF = 40  # bytes per leaf of a partition beyond an edge's first, while it is put into chunks
_PER_STORED_EDGE = 120  # bytes per edge of a partition while it is read and put into chunks
_PER_TYPED_EDGE = 24  # bytes more, and 8 per column: where relations are read one by one and put together
_PER_DEGREE = 100  # bytes per node of a partition and relation beyond the first, likewise
_PER_RELATION = 8 * 2**20  # bytes that torch makes of a run of rows for each relation of a type beyond the first
_OF_RING = 24 * 2**20  # bytes of a rank's connections, their threads, and small parts in memory that two ranks see
_PER_TARGET = 3 * 8  # row, split and label
_WEIGHTS = 4  # parameters, gradients and two moments


@dataclass(frozen=True)
class Plan:
    """How a graph is cut: into so many intervals of each rank, pieces of at most so many edges; and the most bytes.

    num_bytes: of a rank's memory; row_bytes: of them, those of rows of intervals; disk_bytes: of its files, wherever
    they lie. copies: each rank keeps the sources' terms of all ranks. of_types: how many of the intervals are of each
    node type; none where there is one. max_rows: that the leaves of a piece's edges may name; 0 for any number.
    together: how many intervals stay together, per layer and relation; none: one of each.
    """

    intervals: int
    max_edges: int
    num_bytes: int
    disk_bytes: int
    row_bytes: int
    copies: bool = False
    of_types: tuple[int, ...] = ()
    max_rows: int = 0
    together: tuple[tuple[GroupSizes, ...], ...] = ()


@dataclass(frozen=True)
class _Cut:
    """Intervals of each type, rows of the largest of them, and about how many edges the largest chunk has."""

    of_types: tuple[int, ...]
    rows: int
    chunk: int

    @classmethod
    def of(cls, size: GraphSize, schema: GraphSchema, intervals: int) -> _Cut:
        """Return the cut of so many intervals of the largest type."""
        of = size.by_type
        most = max(of.nodes)
        rows = math.ceil(most / intervals)
        cut = [intervals if nodes == most else max(1, math.ceil(nodes / max(rows, 1))) for nodes in of.nodes]
        ends = zip(of.edges, schema.source_types, schema.target_types, strict=True)
        # about how many edges a chunk has, which then is one piece; a hub may have more, which pieces bound
        into = [1] * len(cut) if size.has_leaves else cut  # edges with leaves come from all intervals at once
        chunks = (edges // (into[source] * cut[target] * size.ranks) for edges, source, target in ends)
        return cls(tuple(cut), rows, max(chunks, default=0))


@dataclass(frozen=True)
class _Needs:
    """Bytes that training takes: fixed and of what is there throughout, per row of an interval and edge of a piece.

    with_loss: while the loss is computed, when there are no rows and pieces. per_picked: of a row that a piece picks.
    """

    fixed: int
    resident: int
    with_loss: int
    per_row: int
    per_edge: int
    per_picked: int

    @classmethod
    def of(cls, model: Model, size: GraphSize, layers: list[list[TypeWidths]], place: Place) -> _Needs:
        """Return what a model needs on a graph of a size."""
        fixed, heads = place.fixed, max((each.heads for layer in layers for of in layer for each in of.into), default=0)
        fixed += _OF_RING if size.ranks > 1 else 0
        if size.typed is not None:
            fixed += _PER_RELATION * max(0, *(len(each.into) + len(each.out_of) - 2 for each in layers[0]))
        columns = 3 * NUMBER * size.edge_columns
        if size.has_leaves:
            rows = max(each.instance for layer in layers for of in layer for each in of.into)
            columns += size.leaves * (_PER_LEAF + NUMBER * heads) + 6 * NUMBER * heads + 3 * NUMBER * rows
        return cls(
            fixed,
            _resident(model, size, place.outputs),
            _resident(model, size, place.at_loss),
            max(bytes_per_layer(*pair, place) for pair in zip(layers, [*layers[1:], None], strict=True)),
            place.per_edge + columns + 6 * NUMBER * heads + place.per_number * bool(heads),
            max(map(bytes_per_picked, layers)),
        )

    def in_all(self, row_bytes: int, edges: int, picked: int = 0) -> int:
        """Return the bytes with so many of rows of intervals, and so many edges and picked rows."""
        held = row_bytes + edges * self.per_edge + picked * self.per_picked
        return self.fixed + max(self.with_loss, self.resident + held)


def plan(model: Model, size: GraphSize, *, budget: int, copies: bool = False, place: Place = ON_CPU) -> Plan:
    """Return how to cut a graph. Raises TrainingError where no cut keeps the budget, with the number that breaks it.

    copies: where there is more than one interval of a rank, all ranks keep what they read of the others' nodes.
    """
    if size.has_leaves and size.ranks > 1:
        raise TrainingError(
            f"edges with leaves cannot be divided among {size.ranks} ranks under train.memory: the leaves of one edge "
            "may lie in the intervals of any",
            where="train.workers",
            fix="Set it to 1, or leave train.memory out.",
        )
    layers, needs = _needs(model, size, place, picks=False)
    what = f"{mib(needs.fixed)} whatever the graph, pieces of edges, and weights with logits and labels of "
    needed = {f"{what}{size.num_targets:,} targets": needs.in_all(0, 2 * _least_edges(size))}
    needed |= _filing(size, place) if place.reads else {}
    if budget < max(needed.values()):
        raise _too_small(budget, needed)
    schema = model.inputs.schema
    most = min(_MOST_INTERVALS, max(size.by_type.nodes), (_NUMBERS_OF_INTERVALS - 1) // schema.num_types)
    few = 1 if size.has_leaves else most
    least = _fewest(schema, size, needs, budget=budget, most=few)
    if least is not None:
        return _cut(schema, size, layers, needs, budget=budget, copies=copies, place=place, least=least, most=few)
    if size.has_leaves:
        return _picking_cut(schema, size, *_needs(model, size, place, picks=True), budget=budget, most=most)
    cut = _Cut.of(size, schema, most)
    what = f"{needs.per_row:,} bytes for each node of an interval, of which there can be {most}"
    raise _too_small(budget, {what: needs.in_all(cut.rows * needs.per_row, _edges(size, needs, cut, budget))})


def _needs(model: Model, size: GraphSize, place: Place, *, picks: bool) -> tuple[list[list[TypeWidths]], _Needs]:
    """Return the widths of each layer, and the bytes that follow from them."""
    may_prune, of = size.may_prune or not size.num_edges, size.by_type
    spread = math.ceil(of.nodes_of_all / max(*of.nodes, 1))
    asked = Asked(of.features, spread, may_prune, size.has_leaves, picks, size.ranks > 1, place.exact)
    layers = [layer_widths(model, index, asked) for index in range(model.num_layers)]
    return layers, _Needs.of(model, size, layers, place)


def _least_edges(size: GraphSize) -> int:
    return _LEAST_WITH_LEAVES if size.has_leaves else _LEAST_EDGES


def _edges(size: GraphSize, needs: _Needs, cut: _Cut, budget: int) -> int:
    """Return the edges that a piece should have: those of a chunk where they are not too large a share of a budget."""
    enough = int((budget - needs.resident - needs.fixed) * _SHARE_OF_EDGES) // needs.per_edge
    return max(_least_edges(size), min(enough, cut.chunk * 21 // 20))


def _fewest(schema: GraphSchema, size: GraphSize, needs: _Needs, *, budget: int, most: int) -> int | None:
    """Return the fewest intervals that keep the budget; None where it takes more than `most`."""
    for intervals in range(1, most + 1):
        cut = _Cut.of(size, schema, intervals)
        if needs.in_all(cut.rows * needs.per_row, _edges(size, needs, cut, budget)) <= budget:
            return intervals
    return None


def _cut(
    schema: GraphSchema,
    size: GraphSize,
    layers: list[list[TypeWidths]],
    needs: _Needs,
    *,
    budget: int,
    copies: bool,
    place: Place,
    least: int,
    most: int,
) -> Plan:
    """Return the cut of at least so many intervals, and the groups of them, by which least is read."""
    left = budget - needs.resident - needs.fixed
    found: list[tuple[int, _Cut, Groups]] = []
    for intervals in range(least, min(most, _MORE_INTERVALS * least + 2) + 1 if place.groups else least + 1):
        cut = _Cut.of(size, schema, intervals)
        edges = _edges(size, needs, cut, budget)
        row_bytes = int(_FILLED * (left - edges * needs.per_edge))
        of_cut = CutSize(size, schema, cut.of_types, cut.rows)
        groups = as_large_as_fit(layers, of_cut, row_bytes=row_bytes if place.groups else 0, place=place)
        found.append((edges, cut, groups))
    enough = _HARDLY_MORE * min(groups.bytes_read for _, _, groups in found)
    edges, cut, groups = next(each for each in found if each[2].bytes_read <= enough)
    row_bytes = max(cut.rows * needs.per_row, groups.row_bytes)
    edges = max(edges, min((left - row_bytes) // needs.per_edge, 2 * cut.chunk))
    copies = copies and max(cut.of_types) > 1
    disk = bytes_of_files(layers, size, schema, copies=copies, intervals=cut.of_types)
    of_types = cut.of_types if size.typed is not None else ()
    num_bytes = needs.in_all(row_bytes, edges)
    return Plan(sum(cut.of_types), edges, num_bytes, disk, row_bytes, copies, of_types, together=groups.sizes)


def _picking_cut(
    schema: GraphSchema, size: GraphSize, layers: list[list[TypeWidths]], needs: _Needs, *, budget: int, most: int
) -> Plan:
    """Return the cut of a graph whose edges have leaves that reads fewest rows and keeps the budget.

    Every piece reads the intervals that its leaves lie in, so memory is best spent on the rows that a piece may pick,
    and intervals are small; but each of them takes a piece at least.
    """
    nodes = size.by_type.nodes_of_all
    least = min(nodes, _LEAST_PICKED)
    found: list[tuple[int, _Cut, int, int]] = []
    for intervals in range(2, most + 1):
        cut = _Cut.of(size, schema, intervals)
        edges = _edges(size, needs, cut, budget)
        picked = min(nodes, (budget - needs.in_all(cut.rows * needs.per_row, edges)) // max(needs.per_picked, 1))
        if picked >= least:
            found.append((_num_pieces(size, schema, cut, edges, picked), cut, edges, picked))
    if not found:
        what = f"{needs.per_row:,} bytes for each node of an interval, of which there can be {most}, and "
        what += f"{needs.per_picked:,} for each row that a piece of edges with leaves reads"
        rows = _Cut.of(size, schema, most).rows
        raise _too_small(budget, {what: needs.in_all(rows * needs.per_row, _LEAST_WITH_LEAVES, least)})
    _, cut, edges, picked = min(found, key=lambda each: each[0])  # of several the one of fewest intervals
    disk = bytes_of_files(layers, size, schema, copies=False, intervals=cut.of_types)
    of_types = cut.of_types if size.typed is not None else ()
    row_bytes = cut.rows * needs.per_row + picked * needs.per_picked
    num_bytes = needs.in_all(cut.rows * needs.per_row, edges, picked)
    return Plan(sum(cut.of_types), edges, num_bytes, disk, row_bytes, of_types=of_types, max_rows=picked)


def _num_pieces(size: GraphSize, schema: GraphSchema, cut: _Cut, edges: int, picked: int) -> int:
    """Return about how many pieces a graph has whose leaves are drawn at random, which is the most."""
    nodes = size.by_type.nodes_of_all
    # so many leaves name so many different nodes of all
    leaves = -nodes * math.log1p(-picked / nodes) if picked < nodes else math.inf
    found = 0
    for number, target in zip(size.by_type.edges, schema.target_types, strict=True):
        into = number / cut.of_types[target]
        found += cut.of_types[target] * max(1, math.ceil(into / edges), math.ceil(into * size.leaves / leaves))
    return found


def _filing(size: GraphSize, place: Place) -> dict[str, int]:
    """Return the bytes that writing the graph into files takes, by what for."""
    nodes, edges = size.largest
    per_edge = _PER_STORED_EDGE + _PER_STORED_LEAF * (size.leaves - 1)
    stored = edges * per_edge + nodes * (size.feature_width * 3 * NUMBER + 200)
    in_order, per_node = 0 if size.ranks > 1 or size.has_leaves else size.num_nodes, PER_NODE
    if size.typed is not None:
        stored += edges * (_PER_TYPED_EDGE + 8 * size.edge_columns) + nodes * _PER_DEGREE * len(size.typed.edges)
        in_order, per_node = size.typed.nodes_of_all, PER_NODE + PER_TYPED_NODE
    reading = f"reading a partition of {nodes:,} nodes and {edges:,} in-edges"
    ordering = f"putting {in_order:,} nodes in order"
    return {
        f"{reading}: a larger graph.partitions makes it less": place.fixed + stored + in_order * KEPT_PER_NODE,
        ordering: place.fixed + in_order * per_node,
    }


def _too_small(budget: int, needed: Mapping[str, int]) -> TrainingError:
    """Return the error that names what needs most. needed: bytes, by what for."""
    what, most = max(needed.items(), key=lambda each: each[1])
    return TrainingError(
        f"{show(ByteSize(budget))} is not enough: {mib(most)} are needed ({what})",
        where="train.memory",
        fix=f"Set it to {mib(most)} or more.",
    )


def _resident(model: Model, size: GraphSize, outputs: int) -> int:
    weights = sum(each.numel() for each in model.parameters()) * NUMBER * _WEIGHTS
    # logits, and while there is a loss what it keeps of them and their gradient
    own = size.num_targets * (_PER_TARGET + outputs * NUMBER * model.inputs.num_outputs)
    # what ranks tell each other when a split is scored: as bytes, as arrays and joined
    told = 3 * size.targets_of_all * (_PER_TARGET + NUMBER * model.inputs.num_outputs)
    return weights + own + told
