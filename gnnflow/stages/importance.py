"""Importance of columns: the loss of score on valid when one column's values are exchanged at random (Breiman, 2001).

A column is exchanged among the targets and their neighbours alike, so that the model loses all that it says. The
targets are drawn by hashes, their neighbourhoods cut by GraphFlat as for the parity certificate, and the cost is
bounded: by the number of targets, of columns, and of edges read in all passes. Columns that say the same share their
importance: either can be exchanged and the other still says it.

Shapes: N nodes of the neighbourhood, E its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.batch import Features, TypedFeatures
from gnnflow.graph.labels import LABEL_KINDS, lower_is_better
from gnnflow.graph.score_facts import ColumnDrop, ColumnFacts
from gnnflow.graphfeature.neighborhood import Neighborhood, merge
from gnnflow.stages.table_columns import TableColumn, every_column

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.batch import NodeFeatures
    from gnnflow.graphfeature.shards import Shard
    from gnnflow.infer.job import InferJob

MOST_TARGETS = 512
MOST_COLUMNS = 20
REPEATS = 3
_LEAST_TARGETS = 30
_MOST_VALUES = 25_000_000  # features of the neighbourhoods: 100 MB, and as much again while a column is exchanged
_MOST_READ = 50_000_000  # nodes and edges, over all passes
_MOST_JOINT = 2_000_000  # nodes and edges of a graph whose strategy computes all nodes, and cuts no neighbourhoods

Cut = Callable[["IntArray"], Iterator["Shard"]]


def obstacle(job: InferJob, *, is_joint: bool) -> str:
    """Return why columns have no importance on this run; empty where it can be measured."""
    facts = job.neighbors.store.facts
    if facts.targets == "edges" or not LABEL_KINDS[job.label_kind].has_labels:
        return "the importance of columns is measured for labels of nodes only"
    if not facts.splits.get("valid"):
        return "no target is in valid, where the importance of columns is measured"
    if is_joint and facts.num_nodes + facts.num_edges > _MOST_JOINT:
        return "the importance of columns needs neighbourhoods, and this training computes all nodes together"
    if any(each is not None and each.kind == "sparse" for each in facts.features_of_types):
        return "the importance of columns is measured for dense features only"
    return ""


def column_facts(job: InferJob, cut: Cut, *, metric: str, seed: int) -> ColumnFacts:
    """Return the importance of the columns of nodes and edges to a model. cut: neighbourhoods of targets."""
    from gnnflow.kernels.device import compute_threads
    from gnnflow.train.baselines import draw_rows

    drawn = draw_rows(job.neighbors.store, "valid", most=MOST_TARGETS, seed=seed)
    labels = dict(zip(drawn.nodes.tolist(), drawn.labels, strict=True))
    whole = merge([shard.neighborhood for shard in cut(drawn.nodes)])
    columns = every_column(job.neighbors.store.facts)
    kept, passes = columns[:MOST_COLUMNS], 1 + REPEATS * min(len(columns), MOST_COLUMNS)
    # fewer targets where their neighbourhoods are large: each reads about as much
    share = min(1.0, _MOST_READ / max(passes * (whole.num_nodes + whole.num_edges), 1))
    rows = whole.roots[np.linspace(0, len(whole.roots) - 1, int(len(whole.roots) * share)).astype(np.int64)]
    if len(rows) < min(_LEAST_TARGETS, len(whole.roots)) or _values(whole.features) > _MOST_VALUES:
        return ColumnFacts(why="the neighbourhoods of targets are too large to measure the importance of columns")
    whole = _dense(whole)
    truth = np.stack([labels[int(node)] for node in whole.node_ids[rows]])
    metric = LABEL_KINDS[job.label_kind].metrics[0] if metric == "loss" else metric
    with compute_threads(1):
        score = _scorer(job, rows, truth, metric)
        usual = score(whole)
        if usual is None:
            return ColumnFacts(why=f"{metric} is undefined on the targets drawn from valid")
        sign = -1 if lower_is_better(metric) else 1
        drops = [_drop(whole, each, score, usual=usual, sign=sign, seed=seed) for each in kept]
    drops.sort(key=lambda each: -each.drop)
    return ColumnFacts(metric, len(rows), usual, REPEATS, tuple(drops), len(columns) - len(kept))


def _scorer(job: InferJob, rows: IntArray, labels: Array, metric: str) -> Callable[[Neighborhood], float | None]:
    """Return a function from a neighbourhood to the metric over the targets at some of its rows."""
    import torch

    from gnnflow.executions.minibatch import forward
    from gnnflow.graphfeature.blocks import build_minibatch
    from gnnflow.train.metrics import metrics_of

    model = job.load_model()

    def score(neighborhood: Neighborhood) -> float | None:
        batch = build_minibatch(neighborhood, rows, sampling=job.neighbors.sampling, num_layers=job.num_layers)
        with torch.no_grad():
            logits = forward(model, batch).numpy()
        return metrics_of(logits, labels, label_kind=job.label_kind, names=[metric]).values.get(metric)

    return score


def _drop(
    whole: Neighborhood,
    column: TableColumn,
    score: Callable[[Neighborhood], float | None],
    *,
    usual: float,
    sign: int,
    seed: int,
) -> ColumnDrop:
    draws = np.random.default_rng([seed, *column.name.encode()])
    lost = [sign * (usual - (score(_exchanged(whole, column, draws)) or 0.0)) for _ in range(REPEATS)]
    return ColumnDrop(column.name, float(np.mean(lost)), float(np.std(lost)))


def _exchanged(whole: Neighborhood, column: TableColumn, draws: np.random.Generator) -> Neighborhood:
    """Return the neighbourhood with one column's values exchanged at random among the rows that have it."""
    parts = list(column.parts)
    if column.of_edges:
        edges = whole.edges
        assert edges.attributes is not None
        first, last = edges.offsets[[column.owner * edges.num_targets, (column.owner + 1) * edges.num_targets]]
        attributes = edges.attributes.copy()
        attributes[first:last, parts] = attributes[first + draws.permutation(last - first)][:, parts]
        return replace(whole, edges=replace(edges, attributes=attributes))
    if isinstance(whole.features, TypedFeatures):
        own = whole.features.parts[column.owner]
        assert own is not None
        held = list(whole.features.parts)
        held[column.owner] = _permuted(own, parts, draws)
        return replace(whole, features=TypedFeatures(whole.features.types, tuple(held)))
    return replace(whole, features=_permuted(whole.features, parts, draws))


def _permuted(features: Features, parts: list[int], draws: np.random.Generator) -> Features:
    dense = features.stored.copy()
    dense[:, parts] = dense[draws.permutation(len(dense))][:, parts]
    return Features(features.width, dense=dense)


def _dense(whole: Neighborhood) -> Neighborhood:
    """Return the neighbourhood with features as float32 numbers."""
    features = whole.features
    if isinstance(features, TypedFeatures):
        parts = tuple(None if each is None else _widened(each) for each in features.parts)
        return replace(whole, features=TypedFeatures(features.types, parts))
    return replace(whole, features=_widened(features))


def _widened(features: Features) -> Features:
    return Features(features.width, dense=features.numbers)


def _values(features: NodeFeatures) -> int:
    if isinstance(features, TypedFeatures):
        return sum(len(each) * each.width for each in features.parts if each is not None)
    return len(features) * features.width
