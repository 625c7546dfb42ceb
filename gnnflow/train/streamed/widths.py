"""Numbers per node that the passes of a layer hold under `train.memory`, from the model's plans (`executions/plan.py`).

`layer_widths` has them in the order of computation that takes most; `largest_row` is what the largest phase holds for a
row of an interval. `budget.py` makes a cut of the graph from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from gnnflow.config.train_section import FIXED_MEMORY
from gnnflow.executions.plan import (
    EdgeColumns,
    RelationPlan,
    TermLayout,
    own_edge_bytes,
    plan_relation,
    possible_orders,
)
from gnnflow.executions.propagate import block_messages
from gnnflow.executions.streamed import (
    MOST_AT_ONCE,
    GroupSizes,
    Key,
    LayerRelations,
    attended,
    gated,
    reads_features,
    reads_values,
)
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import native
from gnnflow.layers import Layer, Model, Sum
from gnnflow.train.streamed.files import NUMBER
from gnnflow.train.streamed.graph import DEGREES
from gnnflow.train.streamed.size import GraphSize

# Half the numbers of two intervals' sparse features, which are 8 bytes of an index and 4 of a value: one is computed
# on, and its entries are put in the order of columns for the gradient (16 bytes); the other is being read, whole and
# once more as it lies in the file (16 at most). Where a row begins has 8 bytes.
_PER_ENTRY, _PER_SPARSE_ROW = 7, 2

# Intervals of source terms on their way round a ring: two read ahead, and what is computed on, waits to be taken and is
# coming, which lies in memory of the rank before, as the same of this rank does for the next one: each maps both.
_PASSED = 2 + 2 * 3
# With their gradients: what came and what is sent, in memory of either, a part that is made and two on their way home.
_PASSED_BACK = _PASSED + 2 * 2 + 3


@dataclass(frozen=True)
class Place:
    """Costs of computing on the processor, or on a card."""

    fixed: int  # bytes whatever the graph
    per_offset: int  # bytes per row of the order of three pieces' edges, by target and source
    per_edge: int  # bytes of an edge in three pieces
    per_number: int  # bytes more of an edge where a layer computes numbers for each
    outputs: int  # numbers per output of a target during a pass
    at_loss: int  # the same while the loss is computed, when nothing else is there
    sources: int  # intervals whose terms are in memory at once as they go by
    on_card: bool = False  # the machine reads partitions, and the card does not
    groups: bool = True  # several intervals of a relation may stay together


ON_CPU = Place(
    fixed=FIXED_MEMORY["cpu"],
    per_offset=6 * 8,
    per_edge=3 * (4 + 4 + 4),  # three by target and by source
    per_number=3 * 8,  # what of one is widened for torch
    outputs=1,  # the logits, or their gradient
    at_loss=3,
    sources=2,
)
ON_CARD = Place(
    fixed=FIXED_MEMORY["cuda"],
    per_offset=2 * (3 * 8 + 4) + 2 * 5 * 8,  # and the tables of targets of many edges, both ways of one piece
    per_edge=3 * (8 + 16) + 3 * 4,  # three by target and by source, one as it is copied
    per_number=0,
    outputs=3,
    at_loss=5,
    sources=3,
    on_card=True,
    groups=False,  # not tried on one
)


# What a phase holds, in numbers per row of an interval: of what it reads, what it computes on and the next; of what it
# writes, what it fills and what is on its way to the file.


@dataclass(frozen=True)
class Phase:
    """Numbers per row in an edge phase: of what goes by, and of each interval of the group that stays.

    ahead: of a second interval of the next group, which is read before this one is done, where groups have several.
    """

    passing: int
    staying: int
    ahead: int

    def row_bytes(self, group: int, place: Place) -> int:
        """Return the bytes per row with a group of so many intervals."""
        numbers = self.passing + group * self.staying + self.ahead * (group > 1)
        return NUMBER * numbers + place.per_offset * min(group, MOST_AT_ONCE)

    def largest(self, room: int, most: int, place: Place) -> int:
        """Return the largest group of at most `most` that keeps to so many bytes per row; 1 where none does."""
        others = NUMBER * (self.passing + self.ahead) + place.per_offset * MOST_AT_ONCE
        return min(most, max(1, (room - others) // (NUMBER * self.staying)))


@dataclass(frozen=True)
class RelationWidths:
    """Numbers per node in one relation's pass of a layer, of the widest of its plans."""

    ends: tuple[int, int]  # types of sources and of targets
    source: int  # terms
    target: int
    state: int
    kept: int  # of a state, as the backward pass reads it
    filed: int  # source terms in a file
    read: int  # source terms, or what they are made of whenever they are read
    to_self: int  # terms of a message to oneself, where other sources are of another type
    picked: int  # source terms, where a piece picks its rows
    forward: int  # what goes by, besides what is of the targets' type
    backward: Phase | None  # None: the edges learn nothing
    heads: int  # per edge, of a coefficient, where the layer computes any
    leaf: int  # per leaf of an edge
    own_bytes: int  # per edge, made by the layer's own Python
    in_place: bool  # pieces are added to the states that are there


@dataclass(frozen=True)
class TypeWidths:
    """Numbers per node of one type around a layer."""

    num_relations: int  # into the type, and from it
    source: int  # source terms in files
    made: int  # terms and rows that the vertex phase before the layer makes
    rows: int  # output rows that are read again
    states: int  # whole states, as they are kept
    shared: int | None  # states that relations share, as far as they are read again; None: each has its own
    at_end: int  # what the phase behind the edges reads besides states
    after: int  # what that phase writes
    vertex: int  # the most that a vertex phase holds
    in_files: int  # in files until the step ends
    in_turn: int  # in files until the next layer needs them


@dataclass(frozen=True)
class LayerWidths:
    """Widths of a layer by relation and by node type. phases: forward and backward, of each relation."""

    passes: tuple[RelationWidths, ...]
    types: tuple[TypeWidths, ...]
    phases: tuple[tuple[Phase, Phase | None], ...]


def layer_widths(model: Model, size: GraphSize, place: Place, *, picks: bool, on_ring: bool) -> tuple[LayerWidths, ...]:
    """Return the widths of each layer.

    picks: pieces of edges with leaves name the rows that they read. on_ring: what is on its way between ranks counts.
    """
    found: list[LayerWidths] = []
    for index in reversed(range(model.num_layers)):
        of, following = LayerRelations(model, index), found[0].types if found else (None,) * len(size.nodes)
        make = partial(_pass, of, size=size, place=place, picks=picks, on_ring=on_ring)
        passes = tuple(map(make, range(len(of.layers))))
        types = tuple(_type(of, number, size, passes, behind) for number, behind in enumerate(following))
        phases = tuple((_forward_phase(each, types[each.ends[1]]), each.backward) for each in passes)
        found.insert(0, LayerWidths(passes, types, phases))
    return tuple(found)


def _pass(
    of: LayerRelations, relation: int, *, size: GraphSize, place: Place, picks: bool, on_ring: bool
) -> RelationWidths:
    """Return the numbers of one relation's pass."""
    model, layer, several = of.model, of.layers[relation], of.has_leaves(relation)
    columns = EdgeColumns(size.edge_columns > model.inputs.attribute_width, model.inputs.attribute_width)
    learned, kind = of.index > 0 or model.encoder is not None, layer.levels.instance
    may_prune, is_joined = size.may_prune or not size.num_edges, of.joins.only is None
    orders = partial(possible_orders, layer, may_prune=may_prune, is_joined=is_joined)
    plans = [plan_relation(layer, columns, map_first=each, needs_gradient=learned) for each in orders(learned=learned)]
    none = columns.empty_block()
    source, target = max(each.source.width for each in plans), max(each.target.width for each in plans)
    states = [each.state_layout.width for each in plans]
    # the state of a gated sum has its slopes, which are as many, for the backward pass
    gates = [gated(layer, *each.terms, none) is not None for each in plans]
    state, kept = max(states), max(width * (1 + is_gated) for width, is_gated in zip(states, gates, strict=True))
    attends = not size.has_leaves and not place.on_card
    attends = attends and all(attended(layer, *each.terms, none) is not None for each in plans)
    in_place = any(gates) or attends or (kind.adds and layer.uses_coefficients and not layer.coefficient_dropout)
    # of each plan: whether source terms are no more than features, and made of these whenever they are read
    makes = size.ranks == 1 and not place.on_card
    made = [makes and not each.learns and reads_features(of, each.terms.source) for each in plans]
    made_of = model.inputs.feature_width + size.narrow[0] + DEGREES if any(made) else 0
    own_bytes = 0
    if not size.has_leaves:
        own_bytes = max(own_edge_bytes(layer, columns, map_first=each) for each in orders(learned=True))
    heads = max(each.terms.source["value"].shape[-2] for each in plans)
    heads *= any(_computes_edges(layer, each, none) for each in plans)

    # Of edges with leaves sources are the rows of all types, or those that a piece picks.
    spread = math.ceil(size.all_nodes / max(*size.nodes, 1)) if several and not picks else 1
    picked = source if several and picks else 0
    to_self = own_bytes // NUMBER if layer.include_self else 0
    # Forward: where pieces are not added in place, a part's state and what the two are merged with; source terms that
    # are computed on and the next, or the intervals that rows are picked from, or the next features that terms are made
    # of where these lie; and what goes round.
    forward = kept + to_self + (0 if in_place else 4 * state)
    forward += source + DEGREES + made_of if made_of else place.sources * spread * source
    forward += _PASSED * source * on_ring
    # Backward: terms that are read, and gradients that are added to and, before that, written; of attention, what it
    # keeps of a target's edges, and gradients of target terms; of other layers, whole states, a part with its gradient
    # and what that is made of, and the gradients of terms.
    sources = spread * (source + max(_read_back(layer, each, none, size) for each in plans))
    back = sources + 2 * (state + target) + to_self + _PASSED_BACK * source * on_ring
    if not in_place:
        back += 5 * state + 2 * (spread * (source - picked) + target) + (0 if kind.adds else 3 * kept)
    elif not kind.adds:
        back += 4 * heads + 2 * target
    # On a ring terms that stay lie in memory of the rank before, as terms of the next rank do here: each counts both;
    # and gradients wait as one run until they are sent on.
    backward = Phase(back, sources + 2 * source * on_ring, sources)
    return RelationWidths(
        ends=(of.schema.source_types[relation], of.schema.target_types[relation]),
        source=source,
        target=target,
        state=state,
        kept=kept,
        filed=max(0 if is_made else each.source.width for each, is_made in zip(plans, made, strict=True)),
        read=made_of or source,
        to_self=source if of.has_self(relation) else 0,
        picked=picked,
        forward=forward,
        backward=backward if any(each.learns for each in plans) else None,
        heads=heads,
        leaf=source // layer.positions if several else 0,
        own_bytes=own_bytes,
        in_place=in_place,
    )


def _read_back(layer: Layer, plan: RelationPlan, none: BlockTensors, size: GraphSize) -> int:
    """Return the numbers per row of the source terms that the backward pass reads: on a ring they come whole."""
    (source, target), names = plan.terms, plan.source.names
    whole = size.ranks > 1 or size.has_leaves or names[-1] != "value"
    if whole or reads_values(layer, source=source, target=target, block=none):
        return plan.source.width
    return TermLayout.of({name: source[name] for name in names[:-1]}).width


def _computes_edges(layer: Layer, plan: RelationPlan, none: BlockTensors) -> bool:
    """Return whether a layer computes numbers for each edge, or has them widened for torch."""
    if not (layer.uses_coefficients and isinstance(layer.levels.instance, Sum)):
        return True
    messages = block_messages(layer, *plan.terms, none)
    plain = messages.counted is None and not messages.dropout and messages.instances is None
    return not (plain and native.accepts(messages.csr, messages.value))


def _type(
    of: LayerRelations, node_type: int, size: GraphSize, passes: Sequence[RelationWidths], following: TypeWidths | None
) -> TypeWidths:
    """Return the numbers of one type. following: around the next layer."""
    into = [passes[relation] for relation in of.schema.relations_into(node_type)]
    out_of = [each for relation, each in enumerate(passes) if of.source_type(relation) in (None, node_type)]
    h = read = of.layers[0].in_width  # of input rows, and of the features that they are made of again
    if of.index == 0:
        entries = size.mean_entries[node_type]
        h = max(h, size.features[node_type] + size.narrow[node_type])
        read = max(h, entries and _PER_ENTRY * entries + _PER_SPARSE_ROW)
    merges = of.joins.merges_states
    kept, summed = [each.kept for each in into], [each.state for each in into]
    states, sums = (max(each, default=0) if merges else sum(each) for each in (kept, summed))
    own = of.out_width if Key("own", node_type) in of.keys_at(node_type) else 0
    source, target = sum(each.filed for each in out_of), sum(each.target + each.to_self for each in into)
    degrees, rows, made = DEGREES * of.schema.num_relations, of.out_width * of.reads_rows, source + target + own
    at_end, after = target + own + read * of.has_shortcut, rows
    if following is not None:
        at_end, after = at_end + degrees, rows + following.made
    # terms of input rows; the end of the layer, whose backward pass has gradients of what learns before it
    last = at_end + states + after
    if own or any(each.backward for each in (*into, *out_of)):
        last += sums + target + own + h * of.has_shortcut
    return TypeWidths(
        num_relations=len(into) + len(out_of),
        source=source,
        made=made,
        rows=rows,
        states=states,
        shared=states * (len(into) > 1) if merges else None,
        at_end=at_end,
        after=after,
        vertex=2 * max(read + degrees + made, last),
        in_files=made + states + rows,
        in_turn=made + sums + 2 * of.out_width + h,
    )


def _forward_phase(of: RelationWidths, at: TypeWidths) -> Phase:
    """Return the numbers that the aggregation of a relation holds, given its targets' type.

    The end of a type's last relation reads the states and target terms of the others; a state that they share is read
    again for each.
    """
    read = at.at_end + (at.states - of.kept if at.shared is None else at.shared)
    return Phase(of.forward + read + 2 * at.after, of.kept + read, read)


def largest_row(
    layers: Sequence[LayerWidths], place: Place, together: Sequence[Sequence[GroupSizes]] | None = None
) -> int:
    """Return the bytes per row of an interval, of whatever type, that the largest phase holds.

    together: intervals that stay together, per layer and relation; None: one of each.
    """
    # The head reads rows of an interval and of the next, makes gradients, and writes the interval before; a fifth is
    # for gaps. Where the last layer's rows are not read again, they go to the head as they are computed.
    rows = [sum(layer.types[number].rows for layer in layers) for number in range(len(layers[-1].types))]
    most = 5 * NUMBER * max(rows) if any(each.rows for each in layers[-1].types) else 0
    for index, layer in enumerate(layers):
        most = max(most, *(NUMBER * each.vertex for each in layer.types))
        for relation, (forward, backward) in enumerate(layer.phases):
            group = GroupSizes() if together is None else together[index][relation]
            behind = 0 if backward is None else backward.row_bytes(group.sources, place)
            most = max(most, forward.row_bytes(group.targets, place), behind)
    return most
