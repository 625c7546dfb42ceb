"""Explains the score of one node of a completed run: the edges and the columns that it came from.

The score is computed as in training, on the neighbourhood of the node. What is explained is the log-odds of one class
(of a regression the value itself), since contributions to it add up.

Columns: integrated gradients (Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", ICML 2017) from
all columns at 0 to their values: the mean of the gradients on this line, times the values. They add up to the
difference between both ends. 0 is the mean of a column that `graph.normalize: standard` scales.

Edges: leaving one out (occlusion: Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", ECCV
2014, section 4.2, on in-edges): the log-odds with all edges less the log-odds without this one, in every layer that
reads it. Degrees stay as they are. Two edges that say the same share nothing: each contributes what it alone adds.

Shapes: S rows of the batch, E edges that are used, F features of a type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graphfeature.blocks import build_minibatch, used_by_batch
from gnnflow.stages.explanation import Explanation, by_size, summed
from gnnflow.stages.neighborhoods import RunGraph
from gnnflow.stages.table_columns import names_of_numbers
from gnnflow.storage.columns import combine
from gnnflow.storage.run_folder import read_run

if TYPE_CHECKING:
    from torch import Tensor

    from gnnflow.executions.tensors import BatchTensors
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.batch import Block, MiniBatch
    from gnnflow.graphfeature.blocks import Used
    from gnnflow.graphfeature.neighborhood import Neighborhood
    from gnnflow.layers import FeatureTensors, Model, TypedFeatureTensors

_STEPS = 64
_MOST_STEPS = 27 * _STEPS
_CLOSE = 1e-3  # of the difference, or of 0.1
_MOST_EDGES = 500
_SUMS = ("own", "neighbours", "sum")


def explain_score(run: str, asked: Any, *, explained: str | int | None = None) -> Explanation:
    """Explain the score of a node, given by the user's id.

    explained: the class, by name or number; None for the predicted one. Raises TableError for an id that the graph does
    not have, ConfigError for an unknown class or where the run's targets are not nodes.
    """
    import torch

    from gnnflow.executions.tensors import batch_tensors
    from gnnflow.layers.saved import load_model

    graph, artifacts = RunGraph.of(run), read_run(run)["artifacts"]
    if graph.config.task.kind != "node":
        raise ConfigError(
            f"task.kind is {graph.config.task.kind}, and only scores of nodes are explained",
            where="id",
            fix="Give a run whose targets are nodes.",
        )
    model = load_model(artifacts["train"])
    whole, _ = graph.cut(graph.find([asked]))
    how: dict[str, Any] = {"sampling": graph.neighbors.sampling, "num_layers": model.num_layers}
    batch, used = build_minibatch(whole, whole.roots, **how), used_by_batch(whole, whole.roots, **how)
    facts = graph.neighbors.store.facts
    tensors = batch_tensors(batch, model.inputs.schema)
    with torch.no_grad():
        number = _class_of(_logits(model, tensors), facts, explained)
        score = _Score(model, number, facts.label_kind)
        value, empty = float(score(tensors)), float(score(replace(tensors, features=_scaled(tensors.features, 0.0)[0])))
        found = _leave_out(batch, used, score, value)
    names = facts.class_names
    shown = None if number is None else names[number] if number < len(names) else number
    edges = _edge_table(whole, used, graph, found)
    gradients = _integrate(tensors, score, difference=value - empty)
    columns, sums = _column_tables(gradients, tensors.features, whole, used, graph)
    return Explanation(asked, shown, value, empty, edges, columns, sums)


def _logits(model: Model, tensors: BatchTensors) -> Tensor:
    from gnnflow.executions.minibatch import forward

    return forward(model, tensors)[0]


def _class_of(logits: Tensor, facts: GraphFacts, explained: str | int | None) -> int | None:
    """Return the number of the class to explain: the given one, or the likeliest. None for a regression."""
    if facts.label_kind == "regression":
        if explained is not None:
            raise ConfigError("a regression has no classes", where="of", fix="Leave it out.")
        return None
    if explained is None:
        return int(logits.argmax())
    names = list(facts.class_names)
    number = names.index(str(explained)) if str(explained) in names else explained
    if not (str(number).isdecimal() and int(number) < len(logits)):
        known = ", ".join(names) or f"0 to {len(logits) - 1}"
        raise ConfigError(f"{explained!r} is not a class", where="of", fix=f"The classes are {known}.")
    return int(number)


@dataclass(frozen=True)
class _Score:
    """The number that is explained, as a function of a batch of one target."""

    model: Model
    number: int | None
    label_kind: str

    def __call__(self, tensors: BatchTensors) -> Tensor:
        import torch

        logits = _logits(self.model, tensors)
        if self.number is None:
            return logits[0]
        own = logits[self.number]
        if self.label_kind == "multi":
            return own
        others = torch.cat([logits[: self.number], logits[self.number + 1 :]])
        return own - torch.logsumexp(others, 0)


def _scaled(
    features: FeatureTensors | TypedFeatureTensors | None, by: float
) -> tuple[FeatureTensors | TypedFeatureTensors, list[Tensor | None]]:
    """Return features with their numbers times a factor, and these numbers by type, which take gradients."""
    from gnnflow.layers import TypedFeatureTensors

    assert features is not None
    if isinstance(features, TypedFeatureTensors):
        pairs = [(None, None) if part is None else _scaled_part(part, by) for part in features.parts]
        return replace(features, parts=tuple(part for part, _ in pairs)), [numbers for _, numbers in pairs]
    part, numbers = _scaled_part(features, by)
    return part, [numbers]


def _scaled_part(features: FeatureTensors, by: float) -> tuple[FeatureTensors, Tensor]:
    import torch

    if features.dense is not None:
        numbers = (features.dense * by).requires_grad_()
        return replace(features, dense=numbers), numbers
    assert features.index is not None
    numbers = torch.ones(len(features.index)) if features.value is None else features.value
    numbers = (numbers * by).requires_grad_()
    return replace(features, value=numbers), numbers


def _leave_out(batch: MiniBatch, used: Used, score: _Score, value: float) -> dict[int, float]:
    """Return the contribution of edges, by their positions, nearest hops first."""
    from gnnflow.executions.tensors import batch_tensors

    every = np.concatenate(used.edges[::-1])
    first = np.sort(np.unique(every, return_index=True)[1])
    found = {}
    for position in every[first][:_MOST_EDGES].tolist():
        blocks = tuple(
            _without(block, positions == position) for block, positions in zip(batch.blocks, used.edges, strict=True)
        )
        tensors = batch_tensors(replace(batch, blocks=blocks), score.model.inputs.schema)
        found[position] = value - float(score(tensors))
    return found


def _without(block: Block, left_out: Any) -> Block:
    """Return a block without some of its edges. left_out: bool [E]."""
    if not left_out.any():
        return block
    edges, kept = block.edges, np.flatnonzero(~left_out)
    rows = np.repeat(np.arange(len(edges.lengths)), edges.lengths)
    counts = np.bincount(rows[kept], minlength=len(edges.lengths))
    scale = None if block.edge_scale is None else block.edge_scale[kept]
    return replace(block, edges=edges.take(kept, offsets=offsets_of(counts)), edge_scale=scale)


def _edge_table(whole: Neighborhood, used: Used, graph: RunGraph, found: dict[int, float]) -> pa.Table:
    """Return the edges that were used, with the user's ids, those that contribute most first."""
    schema, edges = graph.neighbors.store.schema, whole.edges
    hops: dict[int, int] = {}
    for hop, positions in enumerate(reversed(used.edges), 1):
        for position in positions.tolist():
            hops.setdefault(position, hop)
    positions = np.array(list(hops), np.int64)
    # the row of each edge, of relation r and node v r N + v
    rows = np.searchsorted(edges.offsets, positions, side="right") - 1
    sources = _ids(graph, whole.node_ids[edges.sources_of(positions)])
    if edges.leaves is not None:
        offsets = pa.array(offsets_of(edges.leaf_counts[positions]).astype(np.int32))
        sources = pa.ListArray.from_arrays(offsets, sources)
    columns: dict[str, Any] = {
        "source": sources,
        "target": _ids(graph, whole.node_ids[rows % whole.num_nodes]),
    }
    if schema.is_typed:
        names = [str(relation) for relation in schema.relations]
        columns["relation"] = [names[number] for number in (rows // whole.num_nodes).tolist()]
    columns["hop"] = list(hops.values())
    if edges.weight is not None:
        columns["weight"] = edges.weight[positions]
    columns["contribution"] = pa.array([found.get(position) for position in hops], pa.float64())
    return by_size(pa.table(columns))


def _integrate(tensors: BatchTensors, score: _Score, *, difference: float) -> list[Array | None]:
    """Return the integrated gradients of the numbers of each type, close to the difference that they add up to.

    A network of ReLUs has kinks on the line, so the steps are divided by three until the sum is close: the middles of
    the old steps are middles of new ones.
    """
    _, values = _scaled(tensors.features, 1.0)
    steps, places = _STEPS, (np.arange(_STEPS) + 0.5) / _STEPS
    total: list[Array | None] = [None] * len(values)
    while True:
        for place in places.tolist():
            gradients = _gradients(tensors, score, place)
            pairs = zip(total, gradients, strict=True)
            total = [one if two is None else two if one is None else one + two for one, two in pairs]
        parts = zip(values, total, strict=True)
        found = [None if of is None or each is None else of.detach().numpy() * each / steps for of, each in parts]
        gap = difference - sum(float(each.sum()) for each in found if each is not None)
        if abs(gap) <= _CLOSE * max(0.1, abs(difference)) or steps >= _MOST_STEPS:
            return found
        steps *= 3
        places = (np.arange(steps)[np.arange(steps) % 3 != 1] + 0.5) / steps


def _gradients(tensors: BatchTensors, score: _Score, place: float) -> list[Array | None]:
    """Return the gradients by the numbers of each type, at a place of the line from 0 to the values."""
    import torch

    features, numbers = _scaled(tensors.features, place)
    held = [each for each in numbers if each is not None]
    found = torch.autograd.grad(score(replace(tensors, features=features)), held, allow_unused=True)
    gradients = iter(found)
    mine = [None if each is None else next(gradients) for each in numbers]
    return [None if each is None else each.numpy().astype(np.float64) for each in mine]


def _column_tables(
    found: list[Array | None], features: Any, whole: Neighborhood, used: Used, graph: RunGraph
) -> tuple[pa.Table, pa.Table]:
    """Return the contributions of each column of each node, and their sums by column. found: by type."""
    schema, facts = graph.neighbors.store.schema, graph.neighbors.store.facts
    types = np.zeros(len(used.nodes), np.int64) if whole.degrees.types is None else whole.degrees.types[used.nodes]
    parts = []
    for number, contribution in enumerate(found):
        if contribution is None:
            continue
        names, columns = names_of_numbers(facts, number)
        nodes, places = _places(features, number, contribution)
        rows = np.flatnonzero(types == number)[nodes]
        parts.append(
            pa.table(
                {
                    "id": _ids(graph, whole.node_ids[used.nodes[rows]]),
                    **({"type": pa.repeat(pa.scalar(schema.types[number]), len(rows))} if schema.is_typed else {}),
                    "hop": used.hops[rows],
                    "column": pa.array(names).take(pa.array(places)),
                    "whole": pa.array(columns).take(pa.array(places)),
                    "contribution": contribution.ravel(),
                }
            )
        )
    if not parts:
        kinds = {"id": pa.string(), "hop": pa.int64(), "column": pa.string(), "contribution": pa.float64()}
        none = pa.schema(kinds).empty_table()
        return none, pa.table({"column": none["column"], **dict.fromkeys(_SUMS, none["contribution"])})
    if len({part["id"].type for part in parts}) > 1:
        parts = [part.set_column(0, "id", part["id"].cast(pa.string())) for part in parts]
    every = pa.concat_tables(parts)
    typed = ["type"] * schema.is_typed
    return summed(every, ["id", *typed, "hop", "column"]), _sums(every, typed)


def _sums(every: pa.Table, typed: list[str]) -> pa.Table:
    """Return the sums of each column, of the node itself and of its neighbours, the largest first."""
    is_own = pc.equal(every["hop"], 0)
    every = every.append_column("own", pc.if_else(is_own, every["contribution"], 0.0))
    every = every.append_column("neighbours", pc.if_else(is_own, 0.0, every["contribution"]))
    pairs = [("own", "sum"), ("neighbours", "sum"), ("contribution", "sum")]
    found = every.group_by([*typed, "whole"], use_threads=False).aggregate(pairs)
    named = found.rename_columns([*typed, "column", *_SUMS])
    return by_size(named, "sum")


def _places(features: Any, number: int, contribution: Array) -> tuple[IntArray, IntArray]:
    """Return the row among the nodes of a type, and the feature, of each contribution."""
    part = features.parts[number] if hasattr(features, "parts") else features
    if part.dense is not None:
        count, width = contribution.shape
        return np.repeat(np.arange(count), width), np.tile(np.arange(width), count)
    offsets = part.offsets.numpy()
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), part.index.numpy().astype(np.int64)


def _ids(graph: RunGraph, nodes: IntArray) -> pa.Array:
    """Return the user's ids of dense ids; as text where several types have other kinds of ids."""
    store = graph.neighbors.store
    types = store.book.type_of(nodes)
    kinds = np.unique(types).tolist()
    if not kinds:
        return pa.array([], pa.string())
    places = [np.flatnonzero(types == kind) for kind in kinds]
    found = [
        combine(store.take_nodes(nodes[here], ["id"], node_type=kind)["id"])
        for kind, here in zip(kinds, places, strict=True)
    ]
    if len({each.type for each in found}) > 1:
        found = [each.cast(pa.string()) for each in found]
    return pa.concat_arrays(found).take(pa.array(np.argsort(np.concatenate(places))))
