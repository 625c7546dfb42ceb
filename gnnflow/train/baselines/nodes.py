"""Baselines of nodes, always the most frequent class or the mean, and trees on columns; edges share the scoring.

Shapes: N targets, F columns, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.run_facts import BaselineFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.train.baselines.rows import (
    draw_rows,
    most_rows,
    neighbor_columns,
    neighbor_width,
    own_columns,
    own_width,
)
from gnnflow.train.metrics import metrics_of

if TYPE_CHECKING:
    from gnnflow.config.train_keys import Baseline
    from gnnflow.graph.arrays import Array, FloatArray
    from gnnflow.storage.graph_store import GraphStore

MOST_COLUMNS = 4_096  # for trees, which look at every column at every node of a tree
MOST_WORK = 150_000  # trees times columns, which bound the time of small splits; each round has a tree for each class
_LEAST = 1e-9  # a probability, before its logarithm


def node_baselines(
    store: GraphStore,
    kinds: Sequence[Baseline],
    *,
    seed: int,
    threads: int,
    tell: Callable[[str], None],
    positive: int | None = None,
) -> tuple[BaselineFacts, dict[str, Array]]:
    """Score baselines of nodes on valid and test, and tell the time that each takes.

    positive: see `metrics_of`.

    Returns the scores, and the test targets: `node` and `label` [N], and each baseline's outputs [N, C].
    """
    facts = store.facts
    if not facts.splits.get("train"):
        return BaselineFacts({}, 0, {}, dict.fromkeys(kinds, "the graph has no training labels")), {}
    left_out: dict[str, str] = {kind: why for kind in kinds if (why := _obstacle(store, kind))}
    kinds = [kind for kind in kinds if kind not in left_out]
    with_trees = [kind for kind in kinds if kind != "majority"]
    width = own_width(store) * bool(with_trees) + neighbor_width(store) * ("neighbor_trees" in with_trees)
    most = most_rows(width)
    drawn = {split: draw_rows(store, split, most=most, seed=seed) for split in SPLITS if facts.splits.get(split)}
    own: dict[str, FloatArray] = {}
    if with_trees:
        own = {split: own_columns(store, rows.nodes) for split, rows in drawn.items()}

    def columns_of(kind: Baseline) -> dict[str, FloatArray]:
        if kind == "trees":
            return own
        near = {split: neighbor_columns(store, rows.nodes) for split, rows in drawn.items()}
        return {split: np.concatenate([own[split], near[split]], axis=1) for split in drawn}

    labels = {split: rows.labels for split, rows in drawn.items()}
    scored = score_baselines(store, kinds, labels, columns_of, seed=seed, threads=threads, tell=tell, positive=positive)
    counts = {split: len(rows.nodes) for split, rows in drawn.items() if split != "train"}
    test = {"node": drawn["test"].nodes, "label": labels["test"], **scored.test} if "test" in drawn else {}
    return BaselineFacts(scored.metrics, len(labels["train"]), counts, left_out), test


@dataclass(frozen=True)
class ScoredBaselines:
    """The metrics of baselines as `<baseline>.<split>.<metric>`, and each one's outputs for the test targets [N, C]."""

    metrics: dict[str, float]
    test: dict[str, Array]


def score_baselines(
    store: GraphStore,
    kinds: Sequence[Baseline],
    labels: Mapping[str, Array],
    columns_of: Callable[[Baseline], Mapping[str, FloatArray]],
    *,
    seed: int,
    threads: int,
    tell: Callable[[str], None],
    positive: int | None,
) -> ScoredBaselines:
    """Fit baselines on the train split, score the others, and tell the time that each takes.

    labels: of the drawn targets of each split; columns_of: their columns, for a baseline that reads any. positive: see
    `metrics_of`.
    """
    scored, facts = ScoredBaselines({}, {}), store.facts
    for kind in kinds:
        begin = time.monotonic()
        columns = {} if kind == "majority" else columns_of(kind)
        predict = _predictor(store, kind, labels["train"], columns.get("train"), seed=seed, threads=threads)
        for split, truth in labels.items():
            if split == "train":
                continue
            logits = predict(columns.get(split, np.zeros((len(truth), 0), np.float32)))
            if split == "test":
                scored.test[kind] = logits
            found = metrics_of(logits, truth, label_kind=facts.label_kind, intervals=split == "test", positive=positive)
            scored.metrics.update({f"{kind}.{name}": value for name, value in found.named(split).items()})
        tell(
            f"baselines: {kind} in {time.monotonic() - begin:.1f} s, from {len(labels['train']):,} of "
            f"{facts.splits['train']:,} training {facts.targets}"
        )
    return scored


def _obstacle(store: GraphStore, kind: Baseline) -> str:
    """Return why a baseline has no score on this graph; empty where it has one."""
    if kind == "majority":
        return ""
    if store.facts.label_kind == "multi":
        return "nodes have several labels"
    own = own_width(store)
    if kind == "trees" and not own:
        return "target nodes have no columns"
    if kind == "neighbor_trees" and not neighbor_width(store):
        return "no in-neighbour of target nodes has columns"
    width = own + neighbor_width(store) * (kind == "neighbor_trees")
    return f"{width:,} columns are more than {MOST_COLUMNS:,}" if width > MOST_COLUMNS else ""


Predict = Callable[["FloatArray"], "FloatArray"]


def _predictor(
    store: GraphStore, kind: Baseline, labels: Array, columns: FloatArray | None, *, seed: int, threads: int
) -> Predict:
    """Return a function from columns [N, F] to logits or values [N, C], as a model gives them."""
    outputs, label_kind = store.facts.num_classes, store.facts.label_kind
    if kind == "majority":
        row = _constant(labels, label_kind, outputs)
        return lambda rows: np.tile(row, (len(rows), 1))
    assert columns is not None
    if label_kind == "regression":
        values = _fitted("Regressor", columns, labels, seed=seed, threads=threads)
        return lambda rows: np.asarray(values.predict(rows), np.float32)[:, None]
    if len(np.unique(labels)) == 1:  # scikit-learn refuses to learn one class
        row = _constant(labels, label_kind, outputs)
        return lambda rows: np.tile(row, (len(rows), 1))
    classes = _fitted("Classifier", columns, labels, seed=seed, threads=threads)

    def logits(rows: FloatArray) -> FloatArray:
        # a class without a training row keeps the least probability
        shares = np.full((len(rows), outputs), _LEAST)
        shares[:, classes.classes_] = np.maximum(classes.predict_proba(rows), _LEAST)
        return np.asarray(np.log(shares), np.float32)

    return logits


def _constant(labels: Array, label_kind: str, outputs: int) -> FloatArray:
    """Return the logits [C] of the training labels' shares; of numbers, their mean."""
    if label_kind == "regression":
        return np.array([labels.mean()], np.float32)
    if label_kind == "multi":
        share = np.clip((labels > 0).mean(axis=0), _LEAST, 1 - _LEAST)
        return np.asarray(np.log(share / (1 - share)), np.float32)
    share = np.bincount(labels, minlength=outputs) / len(labels)
    return np.asarray(np.log(np.maximum(share, _LEAST)), np.float32)


def _fitted(kind: str, columns: FloatArray, labels: Array, *, seed: int, threads: int) -> Any:
    """Return scikit-learn's gradient-boosted trees with its default settings, fitted.

    Early stopping, the default from 10,000 rows on, is off: it fails where a class has one row. Where classes or
    columns are many, rounds are fewer and each learns more.
    """
    from sklearn import ensemble  # takes a second to import
    from threadpoolctl import threadpool_limits

    trees = len(np.unique(labels)) if kind == "Classifier" else 1
    trees = 1 if trees <= 2 else trees  # noqa: PLR2004 - two classes share one
    rounds = min(100, max(10, MOST_WORK // (trees * max(columns.shape[1], 1))))
    make = getattr(ensemble, f"HistGradientBoosting{kind}")
    made = make(max_iter=rounds, learning_rate=min(10 / rounds, 0.5), early_stopping=False, random_state=seed % 2**32)
    with threadpool_limits(threads, user_api="openmp"):
        return made.fit(columns, labels)
