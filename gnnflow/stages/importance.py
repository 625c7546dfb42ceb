"""Importance of columns: the loss of score on valid when one column's values are exchanged at random (Breiman, 2001).

A column is exchanged among the targets and their neighbours alike, so that the model loses all that it says. Sparse
features and rows by id are exchanged whole. The targets are drawn by hashes, their neighbourhoods cut by GraphFlat as
for the parity certificate, and the cost is bounded: by the number of targets, of columns, and of edges read in all
passes. Columns that say the same share their importance: either can be exchanged and the other still says it.

Pairs are scored as GraphInfer scores them, by the decoder from the rows of both ends, links among candidates from a
small pool, so that neighbourhoods are few. A column of the edges that have labels is exchanged among the edges that
carry messages, and among those to score.

Shapes: N nodes of the neighbourhood, E its edges, T targets, M nodes whose rows are scored, A attributes, K negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import distinct
from gnnflow.graph.batch import Features, TypedFeatures
from gnnflow.graph.labels import LABEL_KINDS, lower_is_better
from gnnflow.graph.score_facts import ColumnDrop, ColumnFacts
from gnnflow.graphfeature.neighborhood import Neighborhood, merge
from gnnflow.stages.table_columns import TableColumn, every_column

if TYPE_CHECKING:
    from gnnflow.config import TaskConfig
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.batch import NodeFeatures
    from gnnflow.graphfeature.shards import Shard
    from gnnflow.infer.job import InferJob
    from gnnflow.storage.graph_store import GraphStore

MOST_TARGETS = 512
MOST_COLUMNS = 20
REPEATS = 3
_LEAST_TARGETS = 30
_MOST_POOL = 1_000  # nodes that candidates of links are drawn from
_MOST_VALUES = 25_000_000  # features of the neighbourhoods: 100 MB, and as much again while a column is exchanged
_MOST_READ = 50_000_000  # nodes and edges, over all passes
_MOST_JOINT = 2_000_000  # nodes and edges of a graph whose strategy computes all nodes, and cuts no neighbourhoods

Cut = Callable[["IntArray"], Iterator["Shard"]]


@dataclass(frozen=True)
class Targets:
    """Targets drawn from valid: nodes, or pairs of nodes.

    nodes [M]: dense ids of the rows that scores are computed from, ascending. ends: of pairs, the places of sources [T]
    and of candidates [T, 1 + K] among them; None where the nodes are the targets. attributes [T, A]: of pairs.
    """

    nodes: IntArray
    labels: Array
    ends: tuple[IntArray, IntArray] | None = None
    attributes: FloatArray | None = None

    def __len__(self) -> int:
        """Return the number of targets T."""
        return len(self.labels)

    def take(self, places: IntArray) -> Targets:
        """Return some of the targets, and the nodes that these need."""
        if self.ends is None:
            return Targets(self.nodes[places], self.labels[places])
        sources, candidates = (self.nodes[each[places]] for each in self.ends)
        attributes = None if self.attributes is None else self.attributes[places]
        return pairs_of(sources, candidates, self.labels[places], attributes)


def pairs_of(sources: IntArray, candidates: IntArray, labels: Array, attributes: FloatArray | None = None) -> Targets:
    """Return targets that are pairs, from the dense ids of their ends."""
    nodes = distinct(np.concatenate([sources, candidates.ravel()]))
    return Targets(nodes, labels, (np.searchsorted(nodes, sources), np.searchsorted(nodes, candidates)), attributes)


@dataclass(frozen=True)
class _Held:
    """The input of a score, of which a column can be exchanged: a neighbourhood, and attributes of pairs."""

    whole: Neighborhood
    attributes: FloatArray | None


def obstacle(job: InferJob, *, is_joint: bool) -> str:
    """Return why columns have no importance on this run; empty where it can be measured."""
    facts = job.neighbors.store.facts
    if job.label_kind == "none":
        return "the importance of columns is measured where targets have labels"
    if not facts.splits.get("valid"):
        return "no target is in valid, where the importance of columns is measured"
    if is_joint and facts.num_nodes + facts.num_edges > _MOST_JOINT:
        return "the importance of columns needs neighbourhoods, and this training computes all nodes together"
    return ""


def draw_targets(store: GraphStore, task: TaskConfig, *, seed: int) -> Targets:
    """Return targets of valid. Raises TrainingError where a link has no candidate that is not an edge."""
    from gnnflow.neighbors.link_candidates import filtered_links
    from gnnflow.train.baselines import draw_edges, draw_links, draw_rows
    from gnnflow.train.heads import PairRule
    from gnnflow.train.minibatch.in_memory import pool_of_split

    if task.kind == "node":
        drawn = draw_rows(store, "valid", most=MOST_TARGETS, seed=seed)
        return Targets(drawn.nodes, drawn.labels)
    if task.kind == "edge":
        edges = draw_edges(store, "valid", most=MOST_TARGETS, seed=seed)
        attributes = edges.attributes if store.facts.pair_attribute_width else None
        return pairs_of(edges.sources, edges.targets[:, None], edges.labels, attributes)
    rule = PairRule(task, seed, filtered_links(store, task))
    pool = pool_of_split(store, task, "valid", seed=seed)
    pool = np.random.default_rng([seed, len(pool)]).permutation(pool)[:_MOST_POOL]
    links = draw_links(store, rule, "valid", most=MOST_TARGETS, pool=pool)
    return pairs_of(links.sources, links.candidates, np.zeros(len(links.sources), np.int64))


def column_facts(
    job: InferJob, targets: Targets, cut: Cut, *, metric: str, seed: int, positive: int | None = None
) -> ColumnFacts:
    """Return the importance of the columns of nodes and edges to a model. cut: neighbourhoods of nodes."""
    from gnnflow.kernels.device import compute_threads

    whole = merge([shard.neighborhood for shard in cut(targets.nodes)])
    columns = every_column(job.neighbors.store.facts)
    kept, passes = columns[:MOST_COLUMNS], 1 + REPEATS * min(len(columns), MOST_COLUMNS)
    # fewer targets where their neighbourhoods are large: each reads about as much
    share = min(1.0, _MOST_READ / max(passes * (whole.num_nodes + whole.num_edges), 1))
    some = np.linspace(0, len(targets) - 1, int(len(targets) * share)).astype(np.int64)
    if len(some) < min(_LEAST_TARGETS, len(targets)) or _values(whole.features) > _MOST_VALUES:
        return ColumnFacts(why="the neighbourhoods of targets are too large to measure the importance of columns")
    targets = targets.take(some)
    held = _Held(_dense(whole), targets.attributes)
    metric = LABEL_KINDS[job.label_kind].metrics[0] if metric == "loss" else metric
    with compute_threads(1):
        score = _scorer(job, targets, metric, positive)
        usual = score(held)
        if usual is None:
            return ColumnFacts(why=f"{metric} is undefined on the targets drawn from valid")
        sign, of_pairs = -1 if lower_is_better(metric) else 1, job.neighbors.store.facts.pair_relation
        drops = [
            _drop(partial(_exchanged, held, each, of_pairs), each.name, score, usual=usual, sign=sign, seed=seed)
            for each in kept
        ]
    drops.sort(key=lambda each: -each.drop)
    return ColumnFacts(metric, len(targets), usual, REPEATS, tuple(drops), len(columns) - len(kept))


def _scorer(job: InferJob, targets: Targets, metric: str, positive: int | None) -> Callable[[_Held], float | None]:
    """Return a function from a neighbourhood, and attributes of pairs, to the metric over the targets."""
    import torch

    from gnnflow.executions.minibatch import forward
    from gnnflow.graphfeature.blocks import build_minibatch
    from gnnflow.train.heads import PairHead
    from gnnflow.train.metrics import metrics_of

    model = job.load_model()

    def score(held: _Held) -> float | None:
        rows = np.searchsorted(held.whole.node_ids, targets.nodes)
        batch = build_minibatch(held.whole, rows, sampling=job.neighbors.sampling, num_layers=job.num_layers)
        with torch.no_grad():
            logits = forward(model, batch)
            if targets.ends is not None:
                places = np.arange(len(targets))
                head = PairHead.of(*targets.ends, model=model, attributes=held.attributes, places=places)
                logits = head.scores(model, logits)
        found = metrics_of(logits.numpy(), targets.labels, label_kind=job.label_kind, names=[metric], positive=positive)
        return found.values.get(metric)

    return score


def _drop(
    exchange: Callable[[np.random.Generator], _Held],
    name: str,
    score: Callable[[_Held], float | None],
    *,
    usual: float,
    sign: int,
    seed: int,
) -> ColumnDrop:
    draws = np.random.default_rng([seed, *name.encode()])
    lost = [sign * (usual - (score(exchange(draws)) or 0.0)) for _ in range(REPEATS)]
    return ColumnDrop(name, float(np.mean(lost)), float(np.std(lost)))


def _exchanged(held: _Held, column: TableColumn, of_pairs: int, draws: np.random.Generator) -> _Held:
    """Return the input of scores with one column's values exchanged at random among the rows that have it.

    of_pairs: the number of the relation that pairs are of.
    """
    whole = held.whole
    if column.of_edges:
        attributes, edges = held.attributes, whole.edges
        if attributes is not None and column.owner == of_pairs:
            attributes = _permuted(attributes, column.parts, slice(0, len(attributes)), draws)
        if edges.attributes is not None:
            first, last = edges.offsets[[column.owner * edges.num_targets, (column.owner + 1) * edges.num_targets]]
            moved = _permuted(edges.attributes, column.parts, slice(int(first), int(last)), draws)
            whole = replace(whole, edges=replace(edges, attributes=moved))
        return _Held(whole, attributes)
    if isinstance(whole.features, TypedFeatures):
        own = whole.features.parts[column.owner]
        assert own is not None
        parts = list(whole.features.parts)
        parts[column.owner] = _exchanged_features(own, column.parts, draws)
        features: NodeFeatures = TypedFeatures(whole.features.types, tuple(parts))
    else:
        features = _exchanged_features(whole.features, column.parts, draws)
    return replace(held, whole=replace(whole, features=features))


def _exchanged_features(features: Features, parts: range, draws: np.random.Generator) -> Features:
    if features.is_sparse:
        assert len(parts) == features.width, "sparse features are one column"
        return features.take(draws.permutation(len(features)))
    return Features(features.width, dense=_permuted(features.stored, parts, slice(0, len(features)), draws))


def _permuted(values: FloatArray, parts: range, rows: slice, draws: np.random.Generator) -> FloatArray:
    """Return values with the numbers of one column exchanged among some rows."""
    moved = values.copy()
    column = slice(parts.start, parts.stop)
    moved[rows, column] = values[rows, column][draws.permutation(rows.stop - rows.start)]
    return moved


def _dense(whole: Neighborhood) -> Neighborhood:
    """Return the neighbourhood with features as float32 numbers."""
    features = whole.features
    if isinstance(features, TypedFeatures):
        parts = tuple(None if each is None else _widened(each) for each in features.parts)
        return replace(whole, features=TypedFeatures(features.types, parts))
    return replace(whole, features=_widened(features))


def _widened(features: Features) -> Features:
    return features if features.is_sparse else Features(features.width, dense=features.numbers)


def _values(features: NodeFeatures) -> int:
    if isinstance(features, TypedFeatures):
        return sum(len(each) * each.width for each in features.parts if each is not None)
    return len(features) * features.width if features.index is None else len(features.index)
