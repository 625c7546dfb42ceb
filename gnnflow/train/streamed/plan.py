"""How a graph is cut so that training on it keeps a budget of memory: or why it cannot.

What a phase of the streamed execution holds at once is a few tensors of one interval's rows, three pieces of edges
(the one computed on and those read ahead), and what is there throughout: weights with their optimiser, the logits and
labels of the targets. The first is in proportion to the nodes of an interval, so there are as few intervals as fit.

Every layer's terms and states are asked of the model itself, from no rows.

Shapes: N nodes, T targets, C outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from pydantic import ByteSize
from torch import Tensor

from gnnflow.config.messages import show
from gnnflow.config.train_section import FIXED_MEMORY
from gnnflow.executions.adding import SLOPE, added, attended
from gnnflow.executions.base import is_cheaper_first, terms_of
from gnnflow.executions.propagate import block_messages, partial_state
from gnnflow.executions.streamed_layers import has_shortcut, reads_rows
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.errors import TrainingError
from gnnflow.kernels import Csr, native
from gnnflow.layers import EdgeContext, Layer, Model, NodeContext, Sum, Terms
from gnnflow.train.streamed.numbering import KEPT_PER_NODE, PER_NODE
from gnnflow.train.streamed.space import mib

_NUMBER = 4  # bytes
_DEGREES = 3  # numbers
_MOST_INTERVALS = 1024

_SHARE_OF_EDGES = 0.25  # of what is left for intervals and pieces: more intervals rather than less for pieces
_LEAST_EDGES = 65_536  # of a piece: what layers that define `message` take at once
_PER_STORED_EDGE = 120  # bytes per edge of a partition while it is read and put into chunks
_PER_TARGET = 3 * 8  # row, split and label
_WEIGHTS = 4  # parameters, gradients and two moments


@dataclass(frozen=True)
class Place:
    """What computing in a place takes beside rows. fixed: bytes whatever the graph.

    per_offset: bytes per row of what orders three pieces' edges by target and source. per_edge: bytes of three pieces,
    per_number: and where a layer computes numbers for each edge. reads: whether partitions are read there too. outputs:
    numbers per output of a target while the graph is gone through, at_loss: while the loss is computed, when nothing
    else is there. exact: layers are taken as the execution computes them, and not in any way it could.
    """

    fixed: int
    per_offset: int
    per_edge: int
    per_number: int
    reads: bool
    outputs: int
    at_loss: int
    exact: bool


ON_CPU = Place(
    fixed=FIXED_MEMORY["cpu"],
    per_offset=6 * 8,
    per_edge=3 * (4 + 4 + 4),  # three by target and by source
    per_number=3 * 8,  # what of one is widened for torch
    reads=True,
    outputs=1,  # the logits, or their gradient
    at_loss=3,
    exact=False,
)
ON_CARD = Place(
    fixed=FIXED_MEMORY["cuda"],
    per_offset=2 * (3 * 8 + 4) + 2 * 5 * 8,  # and the tables of targets of many edges, both ways of one piece
    per_edge=3 * (8 + 16) + 3 * 4,  # three by target and by source, one as it is copied
    per_number=0,
    reads=False,
    outputs=3,
    at_loss=5,
    exact=True,
)


@dataclass(frozen=True)
class GraphSize:
    """What is known of a graph before it is read. edge_columns: numbers per edge beside its ends; has_leaves: edges do.

    largest: the most nodes and in-edges of a partition. every_edge: no layer samples them. Of several ranks, what the
    one with the most of each has; targets_of_all: those of all ranks together, whose outputs each of them is told.
    """

    num_nodes: int
    num_edges: int
    num_targets: int
    feature_width: int
    edge_columns: int
    largest: tuple[int, int]
    has_leaves: bool = False
    ranks: int = 1
    targets_of_all: int = 0
    every_edge: bool = True


@dataclass(frozen=True)
class Plan:
    """How a graph is cut: into so many intervals of each rank, pieces of at most so many edges; and the most bytes.

    num_bytes: of a rank's memory; row_bytes: of them, those of rows of intervals; disk_bytes: of its files, wherever
    they lie. copies: each rank keeps the sources' terms of all ranks.
    """

    intervals: int
    max_edges: int
    num_bytes: int
    disk_bytes: int
    row_bytes: int
    copies: bool = False


@dataclass(frozen=True)
class _LayerWidths:
    """Numbers per node of a layer's input rows, terms, states and output rows.

    heads: per edge, of a coefficient; 0 where edges are read as they lie and nothing is computed for each. kept: of a
    whole state as the backward pass reads it. in_place: whether pieces are added to states and gradients that are
    there. learns: whether the backward pass goes over its edges. writes_rows: whether rows after it are read as such,
    and not only what the next layer makes of them.
    """

    h: int
    source: int
    target: int
    state: int
    kept: int
    out: int
    heads: int
    passed: int
    adds: bool
    in_place: bool
    learns: bool
    has_shortcut: bool
    writes_rows: bool


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
    layers = [_widths(model, index, size, exact=place.exact) for index in range(model.num_layers)]
    resident, with_loss = (_resident(model, size, outputs) for outputs in (place.outputs, place.at_loss))
    stored = size.largest[1] * _PER_STORED_EDGE + size.largest[0] * (size.feature_width * 3 * _NUMBER + 200)
    per_row = max(map(_bytes_per_row, layers, [*layers[1:], None])) + place.per_offset
    heads = max(each.heads for each in layers)
    per_edge = place.per_edge + 3 * _NUMBER * size.edge_columns + 6 * _NUMBER * heads + place.per_number * bool(heads)
    left = budget - resident - place.fixed
    needs = place.fixed + max(with_loss, resident + 2 * _LEAST_EDGES * per_edge)
    what = f"{mib(place.fixed)} whatever the graph, pieces of edges, and weights with logits and labels of "
    needed = {f"{what}{size.num_targets:,} targets": needs, **(_filing(size, stored, place) if place.reads else {})}
    if budget < max(needed.values()):
        raise _too_small(budget, needed)
    most = 1 if size.has_leaves else min(_MOST_INTERVALS, size.num_nodes)
    enough = int(left * _SHARE_OF_EDGES) // per_edge
    for intervals in range(1, most + 1):
        rows = math.ceil(size.num_nodes / intervals)
        # about how many edges a chunk has, which then is one piece; a hub may have more, which pieces bound
        chunk = size.num_edges // (intervals**2 * size.ranks)
        least = max(_LEAST_EDGES, min(enough, chunk * 21 // 20))
        needs = place.fixed + max(with_loss, resident + rows * per_row + least * per_edge)
        if needs <= budget:
            edges = max(least, min((left - rows * per_row) // per_edge, 2 * chunk))
            needs = place.fixed + max(with_loss, resident + rows * per_row + edges * per_edge)
            copies = copies and intervals > 1
            disk = _disk_bytes(layers, size, copies=copies, intervals=intervals)
            return Plan(intervals, edges, needs, disk, rows * per_row, copies)
    what = f"{per_row:,} bytes for each node of an interval, of which there can be {most}"
    raise _too_small(budget, {what: needs})


def _filing(size: GraphSize, stored: int, place: Place) -> dict[str, int]:
    """Return the bytes that writing the graph into files takes, by what for. stored: of reading one partition."""
    in_order = 0 if size.ranks > 1 or size.has_leaves else size.num_nodes
    reading = f"reading a partition of {size.largest[0]:,} nodes and {size.largest[1]:,} in-edges"
    ordering = f"putting {in_order:,} nodes in order"
    return {
        f"{reading}: a larger graph.partitions makes it less": place.fixed + stored + in_order * KEPT_PER_NODE,
        ordering: place.fixed + in_order * PER_NODE,
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
    weights = sum(each.numel() for each in model.parameters()) * _NUMBER * _WEIGHTS
    # logits, and while there is a loss what it keeps of them and their gradient
    own = size.num_targets * (_PER_TARGET + outputs * _NUMBER * model.inputs.num_outputs)
    # what ranks tell each other when a split is scored: as bytes, as arrays and joined
    told = 3 * size.targets_of_all * (_PER_TARGET + _NUMBER * model.inputs.num_outputs)
    return weights + own + told


def _bytes_per_row(layer: _LayerWidths, following: _LayerWidths | None) -> int:
    """Return the bytes per node of an interval that the largest phase of a layer holds.

    Of what a phase reads there is what it computes on and the next; of what it writes, what it fills and what is on its
    way to the file. Forward, pieces are read two ahead. Degrees are three numbers.
    """
    own = layer.target + layer.h * layer.has_shortcut + _DEGREES * (following is not None)
    # what is written behind a layer, and whose gradients are read: rows where they are read as such, and next terms
    behind = layer.out * layer.writes_rows + (following.source + following.target if following is not None else 0)
    # where pieces are not added in place: a part's state and what the two are merged with; in the backward pass the
    # whole states, a part with its gradient, what that is made of, and the gradients of terms
    parts = 0 if layer.in_place else 4 * layer.state
    differentiated = 0 if layer.in_place else 5 * layer.state + 2 * (layer.source + layer.target)
    differentiated += 0 if layer.in_place or layer.adds else 3 * layer.kept
    terms = 2 * (layer.h + _DEGREES + layer.source + layer.target)
    # passed: what waits to be taken, is on its way here, or read ahead to be sent; of gradients also what is sent; and
    # the memory that ranks of one host both see, once for each way
    edges = 2 * layer.kept + parts + 3 * layer.source + 5 * layer.passed + 2 * own + 2 * behind
    # attention keeps of each target what it needs of all its edges, and reads and writes the gradients of target terms
    attended = 4 * layer.heads + 2 * layer.target if layer.in_place and not layer.adds else 0
    edges_back = 4 * layer.source + 9 * layer.passed + 2 * (layer.state + layer.target) + differentiated + attended
    last_back = 2 * (own + layer.kept + behind)
    if layer.learns:
        last_back += 2 * (layer.state + layer.target + layer.h * layer.has_shortcut)
    else:
        edges_back = 0
    head = 6 * layer.out * layer.writes_rows
    return _NUMBER * max(terms, edges, edges_back, last_back, head)


def _widths(model: Model, index: int, size: GraphSize, *, exact: bool) -> _LayerWidths:
    layer, none = model.layer(index), torch.zeros(0)
    nodes, learned = NodeContext(none, none, none), index > 0 or model.encoder is not None
    h = none.new_zeros(0, layer.in_width).requires_grad_(learned)
    ways = _ways(layer, size, learned=learned)
    either = [terms_of(layer, h, nodes=nodes, num_targets=0, map_first=first) for first in ways]
    edge = EdgeContext(0, none, torch.zeros(0, model.inputs.attribute_width) if model.inputs.attribute_width else None)
    csr = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 0)
    block = BlockTensors(csr, edge, None)
    states = [partial_state(layer, source=each.source, target=each.target, block=block) for each in either]
    # what each way adds to in place, and keeps for the backward pass beside its state
    adding = [
        added(layer, None, source=each.source, target=each.target, block=block, with_slopes=True) for each in either
    ]
    aggregation = layer.levels.instance
    has_gates = any(SLOPE in each for each in adding)
    attends = not size.has_leaves and not exact
    attends = attends and all(attended(layer, *each, block) is not None for each in either)
    return _LayerWidths(
        layer.in_width if index else max(layer.in_width, size.feature_width),
        max(_width(each.source) for each in either),
        max(_width(each.target) for each in either),
        max(map(_width, states)),
        max(map(_width, adding)),
        layer.out_width,
        max(each.source["value"].shape[-2] for each in either)
        * any(_has_numbers(layer, each, block) for each in either),
        max(_width(each.source) for each in either) if size.ranks > 1 else 0,
        aggregation.adds,
        has_gates or attends or (aggregation.adds and layer.uses_coefficients and not layer.coefficient_dropout),
        any(rows.requires_grad for each in either for held in each for rows in held.values())
        or any(rows.requires_grad for each in states for rows in each.values()),
        has_shortcut(model, index),
        reads_rows(model, index),
    )


def _has_numbers(layer: Layer, terms: Terms, block: BlockTensors) -> bool:
    """Return whether a layer computes numbers for each edge, or has them widened for torch."""
    if not (layer.uses_coefficients and isinstance(layer.levels.instance, Sum)):
        return True
    messages = block_messages(layer, terms.source, terms.target, block)
    plain = messages.counted is None and not messages.dropout and messages.instances is None
    return not (plain and native.accepts(messages.csr, messages.value))


def _ways(layer: Layer, size: GraphSize, *, learned: bool) -> list[bool]:
    """Return whether training or scoring applies a layer's linear map first, or whether either may be.

    Of as many targets as sources numbers of rows and edges do not matter; fewer targets speak for the map behind.
    """
    found: set[bool] = set()
    for needs_gradient in {learned, False}:
        first = is_cheaper_first(layer, num_sources=1, num_targets=1, num_edges=1, needs_gradient=needs_gradient)
        found |= {False, True} if first and (_prunes(size) or not size.num_edges) else {first}
    return sorted(found)


def _width(tensors: Mapping[str, Tensor]) -> int:
    return sum(math.prod(each.shape[1:]) for each in tensors.values())


def _disk_bytes(layers: list[_LayerWidths], size: GraphSize, *, copies: bool, intervals: int) -> int:
    """Return the bytes of all files. Chunks are written twice: as they come, and by target and by source."""
    kept = sum(each.source + each.target + each.kept + each.out * each.writes_rows for each in layers)
    passing = max(each.source + each.target + each.state + 2 * each.out + each.h for each in layers)
    rows = size.num_nodes * (kept + passing) * _NUMBER
    # where layers compute the rows alone that reach a target, each may have edges of its own
    orders = len(layers) if _prunes(size) else 1
    columns = 2 + size.edge_columns + orders * (3 + size.edge_columns)
    per_node = (size.feature_width + 3) * _NUMBER
    # where the edges of its chunks begin, by target and by source
    per_node += orders * 2 * _NUMBER * intervals * size.ranks
    own = size.num_nodes * per_node + size.num_edges * columns * _NUMBER
    # before there are rows, edges are merged from one file into another
    own += max(rows, size.num_edges * (2 + size.edge_columns) * _NUMBER)
    others = (size.ranks - 1) * size.num_nodes * sum(each.source for each in layers) * _NUMBER
    return own + others * copies


def _prunes(size: GraphSize) -> bool:
    """Return whether training may compute fewer rows than there are: on one rank, where not all nodes are targets."""
    return size.ranks == 1 and not size.has_leaves and size.num_targets < size.num_nodes
