"""The aggregation of a run's model, from its config alone: levels, kernels, shapes, and executions.

Of tables only the sizes are looked up, which decide where tasks run. So widths that tables decide are assumed: features
of an untyped graph have `model.hidden` columns here. Relations that a user's function selects are known only after it
has run.

Shapes: N nodes, H heads, D width of a head, P positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from gnnflow.config import Config
from gnnflow.config.stages import stages_of
from gnnflow.config.train_section import is_streamed
from gnnflow.executions.globalbatch import takes_states
from gnnflow.executions.levels import leaf_closing
from gnnflow.executions.plan import EdgeColumns, RelationPlan, plan_layer
from gnnflow.executions.propagate import EDGES_PER_PIECE
from gnnflow.executions.table import EXECUTIONS, executions_of
from gnnflow.graph.errors import LayerError
from gnnflow.graph.schema import GraphSchema
from gnnflow.kernels import Csr, Kernel, choose
from gnnflow.layers import (
    Aggregation,
    EdgeContext,
    Layer,
    Max,
    Mean,
    Model,
    ModelInputs,
    SoftmaxAttention,
    Sum,
    build_model,
)
from gnnflow.layers.phases import Phases, phases_of
from gnnflow.layers.typed import TypedInputs, TypeInputs
from gnnflow.stages.flat import shards_text
from gnnflow.stages.infer import planned_way
from gnnflow.stages.model_size import check_size
from gnnflow.stages.resolve import tasks_text


@dataclass(frozen=True)
class Level:
    """One level of aggregation: its two ends, and its computation."""

    name: str
    how: str


@dataclass(frozen=True)
class RelationSteps:
    """The aggregation of one relation's in-edges in one layer.

    terms: shapes of the terms that a source sends. moved: steps of a message that run once per node.
    """

    relation: str
    leaves: int
    levels: tuple[Level, ...]
    terms: dict[str, str]
    moved: str
    value_map: str


@dataclass(frozen=True)
class LayerSteps:
    """One layer: its class, its relations, their join, and per execution the reason against it, or None.

    placed: the data between ranks if edges are not placed with their targets; else empty.
    """

    layer: int
    kind: str
    relations: tuple[RelationSteps, ...]
    across: Level
    executions: dict[str, str | None]
    placed: str = ""


@dataclass(frozen=True, repr=False)
class Plan:
    """A model's layers, the executions of its strategy, where tasks run, and how those that score get rows.

    shards: what GraphFlat writes; "" for strategies without it.
    """

    layers: tuple[LayerSteps, ...]
    used: tuple[str, ...]
    tasks: str
    shards: str
    scoring: str

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield lines of text."""
        for plan in self.layers:
            yield f"layer {plan.layer}  {plan.kind}"
            for each in plan.relations:
                yield f"  {each.relation}"
                shown = [(level.name, level.how) for level in each.levels]
                shown += [("source sends", ", ".join(f"{name} {shape}" for name, shape in each.terms.items()))]
                shown += [("once per node", each.moved), ("map of values", each.value_map)]
                yield from (f"    {name:<19}{how}" for name, how in shown)
            yield f"  {plan.across.name:<21}{plan.across.how}"
            if plan.placed:
                yield f"  {'between ranks':<21}{plan.placed}"
            for name, reason in plan.executions.items():
                used = " (used by this config)" if name in self.used else ""
                yield f"  {f'on {name}':<21}{f'no: {reason}' if reason else 'yes'}{used}"
        yield f"{'tasks':<23}{self.tasks}"
        if self.shards:
            yield f"{'shards':<23}{self.shards}"
        yield f"{'in infer':<23}{self.scoring}"

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@torch.no_grad()
def explain_model(config: Config) -> Plan:
    """Return the layers of a config's model. Raises LayerError if it cannot be built or has unknown relations."""
    schema, leaves = _relations(config)
    inputs = _inputs(config, schema, leaves)
    check_size(config, trains=False, features=inputs.feature_width, outputs=inputs.num_outputs)
    model = build_model(config.model, inputs).eval()
    # a table may also have weights, one more factor of the summed rows
    columns = EdgeColumns(attribute_width=inputs.attribute_width)
    in_files = is_streamed(config.train)  # then edges are always placed with their targets
    places = config.train.strategy == "global-batch" and bool(config.partition.placement) and not in_files
    layers = tuple(
        replace(_layer(model, index, schema, leaves, columns), placed=_sent(model, index) if places else "")
        for index in range(model.num_layers)
    )
    shards = shards_text(config) if "flat" in stages_of(config) else ""
    return Plan(layers, executions_of(config.train), tasks_text(config), shards, planned_way(config).text)


def _inputs(config: Config, schema: GraphSchema, leaves: tuple[int, ...]) -> ModelInputs:
    """Return the part of the model that the graph decides, with assumed widths."""
    graph, hidden = config.graph, config.model.hidden
    attributes = int(config.neighbors.kind == "anchors")  # the number of the anchor set
    if config.neighbors.kind == "direct":
        attributes = max((len(graph.edge_features_of(each)) for each in graph.edge_tables), default=0)
    types = tuple(TypeInputs(name, hidden) for name in schema.types)
    return ModelInputs(
        feature_width=hidden,
        num_outputs=hidden if config.model.head == "direct" else 1,
        attribute_width=attributes,
        typed=TypedInputs(types, tuple(map(str, schema.relations))) if schema.is_typed else None,
        leaves=leaves,
    )


def _relations(config: Config) -> tuple[GraphSchema, tuple[int, ...]]:
    """Return the aggregated relations, and the number of leaves of their edges."""
    found = config.aggregated_relations
    if found is None:
        raise LayerError(
            f"the relations that {config.neighbors.kind} selects are known only after it has run",
            where="neighbors.kind",
            fix="Run `gnnflow select` and read its facts, or explain the config with another kind.",
        )
    return GraphSchema.of(config.graph.schema.types, found), tuple(found.values())


def _layer(model: Model, index: int, schema: GraphSchema, leaves: tuple[int, ...], columns: EdgeColumns) -> LayerSteps:
    layers, edge = model.relations(index).layers, columns.of_no_edges()
    each = zip(schema.relations, plan_layer(model, index, columns).relations, leaves, strict=True)
    relations = tuple(_relation(str(relation), plan, size, edge) for relation, plan, size in each)
    return LayerSteps(
        index + 1,
        type(layers[0]).__name__,
        relations,
        Level("relation -> root", _joined(model, index)),
        {name: row.supports(layers[0]) for name, row in EXECUTIONS.items()},
    )


def _sent(model: Model, index: int) -> str:
    """Return the data that ranks send in a layer whose edges are not placed with their targets."""
    reason = takes_states(model, index)
    return f"rows: {reason}" if reason else "states, or rows where these are fewer bytes"


def _joined(model: Model, index: int) -> str:
    layers = model.relations(index)
    if layers.only is not None:
        return "one relation: nothing to join"
    if layers.merges_states:
        return "the relations' states are merged, then finalized once"
    into = {len(layers.schema.relations_into(number)) for number in range(layers.schema.num_types)} - {0}
    numbers = " or ".join(map(str, sorted(into)))
    return f"dense: {next(iter(layers.across.values())).join} over {numbers} relations into a type"


def _relation(name: str, plan: RelationPlan, leaves: int, edge: EdgeContext) -> RelationSteps:
    layer, terms = plan.layer, plan.terms
    shapes = {term: f"[{', '.join(['N', *map(str, value.shape[1:])])}]" for term, value in terms.source.items()}
    phases = phases_of(layer, terms.source, terms.target, edge) if layer.uses_messages and leaves == 1 else None
    return RelationSteps(
        name, leaves, tuple(_levels(layer, leaves, phases)), shapes, _moved(layer, phases), _value_map(plan)
    )


def _levels(layer: Layer, leaves: int, phases: Phases | None) -> Iterator[Level]:
    kernel = choose(Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 0), torch.zeros(0, 1, 1))
    how = leaf_closing(layer, has_leaves=leaves != 1)
    levels = layer.levels
    size = "a varying number of" if leaves == 0 else str(leaves)
    leaf, root = type(levels.leaf).__name__, _root_level(layer, kernel, phases)
    if how == "none":
        yield Level("leaf -> instance", "none: an in-edge is its source's row")
    elif how == "together":
        softmax = "softmax by segments, then one " if isinstance(levels.instance, SoftmaxAttention) else "one "
        yield Level("leaf -> instance", f"{leaf} of {size} leaves, closed with the next level: no row per instance")
        root = f"{type(levels.instance).__name__}: {softmax}fused weighted sum ({kernel.name}) over all leaves"
    else:
        yield Level("leaf -> instance", f"{leaf} of {size} leaves: fused ({kernel.name}), a row per instance")
    yield Level("instance -> root", root)


def _root_level(layer: Layer, kernel: Kernel, phases: Phases | None) -> str:
    kind, name = layer.levels.instance, type(layer.levels.instance).__name__
    if layer.uses_propagate:
        return "propagate(): all in-edges at once, a message each"
    if layer.uses_messages:
        return f"{name}: {_message_form(kind, kernel, phases)}"
    if isinstance(kind, SoftmaxAttention):
        return f"{name}: fused softmax and weighted sum ({kernel.name})"
    if isinstance(kind, Sum | Mean):
        return f"{name}: fused weighted sum ({kernel.name})"
    return f"{name}: segment maximum ({kernel.name})" if isinstance(kind, Max) else f"{name}: a message per edge"


def _message_form(kind: Aggregation, kernel: Kernel, phases: Phases | None) -> str:
    fused = phases.fused if phases is not None and isinstance(kind, Sum) else None
    if fused is not None and fused.gate is None:
        return f"message() is a row and a factor, so a fused weighted sum ({kernel.name})"
    if fused is not None and kernel.gated_sum is not None:
        return f"message() is a row through a gate of both ends, so a fused gated sum ({kernel.name})"
    return f"messages in pieces of {EDGES_PER_PIECE}, computed again backward, then segments ({kernel.name})"


def _moved(layer: Layer, phases: Phases | None) -> str:
    if not layer.uses_messages:
        return "transform()"
    if phases is None:
        return "transform(); nothing of message(), which reads both ends, draws, writes in place, or cannot be traced"
    steps = [f"{node.name} of {side}s" for side, nodes in phases.hoisted.items() for node in nodes]
    return f"transform(); of message() {', '.join(steps)}" if steps else "transform(); nothing of message()"


def _value_map(plan: RelationPlan) -> str:
    weight = plan.layer.value_weight
    if weight is None:
        return "none: transform() maps"
    sent = "before" if plan.map_first else "after"
    return f"[{weight.shape[1]} -> {weight.shape[0]}] where it is less work; in GraphInfer {sent} the aggregation"
