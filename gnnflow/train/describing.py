"""Describes the scores of a split in counts that a report draws, computed from all of its targets at once.

Shapes: N labelled targets, C outputs, K distinct scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of
from gnnflow.graph.batch import sum_relations
from gnnflow.graph.labels import AREAS, LABEL_KINDS, LabelKind
from gnnflow.graph.made_features import table_columns
from gnnflow.graph.score_facts import BINS, MOST_CLASSES, MOST_CURVES, MOST_STEPS, ClassScores, ScoreFacts, ScoreGroup
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.baselines.rows import most_rows, own_columns, own_width
from gnnflow.train.decisions import Deciding, class_margin, hits_among, positive_probability, steps_of
from gnnflow.train.intervals import one_against_rest, ranks_of
from gnnflow.train.metrics import labelled_rows, metrics_of, precision_area
from gnnflow.train.outputs import Outputs

_FIRST = (10, 100, 1_000, 10_000)  # of a list that people act on
_MOST_GROUPS = 5
_MOST_COLUMNS, _MOST_VALUES = 2, 12
_OUTLIERS = 99  # percentile of errors that the histogram's range covers
_TWO = 2
_OF_CLASSES = frozenset({"macro_f1", "roc_auc", "average_precision"})  # a rare class counts as much as a large one


def describe_scores(
    outputs: Outputs,
    split: str,
    *,
    label_kind: LabelKind,
    metric: str,
    deciding: Deciding | None = None,
    store: GraphStore | None = None,
    named: int | None = None,
) -> ScoreFacts | None:
    """Return the facts of a split's scores; None where no target has a label.

    metric: of the groups; the label kind's usual one where it is the loss. store: has the targets' in-degrees.
    named: the class that areas under curves are of, which a config names.
    """
    kept = labelled_rows(outputs.labels)
    logits, labels, targets = outputs.logits[kept], outputs.labels[kept], outputs.targets[kept]
    if not len(labels):
        return None
    metric = LABEL_KINDS[label_kind].metrics[0] if metric == "loss" else metric
    found: dict[str, Any] = {}
    if label_kind == "single":
        deciding = deciding or Deciding()
        found = _of_two(logits, labels, deciding) if logits.shape[1] == _TWO else _of_many(logits, labels, deciding)
        rare = _rarest(labels) if named is None or metric not in AREAS else named
        found["rare"] = rare if metric in _OF_CLASSES else None
    elif label_kind == "regression":
        found = _of_numbers(logits[:, 0].astype(np.float64) - labels)
    elif label_kind == "link":
        found = _of_links(ranks_of(logits), logits.shape[1])
    groups: tuple[ScoreGroup, ...] = ()
    if store is not None:
        measure = _GroupMeasure(logits, labels, label_kind, metric, found.get("rare"), named)
        groups = _groups(measure, in_degrees(store, targets))
        if store.facts.targets == "nodes":
            groups += _value_groups(measure, targets, store)
    return ScoreFacts(split=split, targets=len(labels), metric=metric, groups=groups, **found)


def in_degrees(store: GraphStore, nodes: IntArray) -> IntArray:
    """Return the in-degrees of nodes, over all relations. nodes [N]: dense ids in any order, repeated or not."""
    distinct, places = np.unique(nodes, return_inverse=True)
    owners = store.book.owner(distinct)
    found = np.zeros(len(distinct), np.int64)
    for partition in np.unique(owners):
        degrees = sum_relations(store.degrees(int(partition)).in_degree)
        own = owners == partition
        found[own] = degrees[distinct[own] - store.book.start(int(partition))]
    return np.asarray(found[places])


def _of_two(logits: FloatArray, labels: Array, deciding: Deciding) -> dict[str, Any]:
    return _of_one(logits, labels, deciding) | {"bins": _histograms(positive_probability(logits), labels == 1)}


def _of_one(logits: FloatArray, labels: Array, deciding: Deciding) -> dict[str, Any]:
    """Return the facts of one class against the others."""
    positive = deciding.positive
    assert positive is not None
    truth, margin = labels == positive, class_margin(logits, positive)
    first = sorted({k for k in (*_FIRST, deciding.top) if k <= len(truth)})
    found: dict[str, Any] = {
        "positive": positive,
        "positives": int(truth.sum()),
        "steps": _curve(margin, truth),
        "gains": tuple((k, float(hits_among(margin, truth, k))) for k in first),
    }
    flagged = deciding.flags(logits)
    if flagged is not None:
        found["decided"] = _counts(truth.astype(np.int64), flagged.astype(np.int64), _TWO)
    return found


def _of_many(logits: FloatArray, labels: Array, deciding: Deciding) -> dict[str, Any]:
    share, truth = one_against_rest(logits, labels)
    likeliest, decided = logits.argmax(axis=1), deciding.classes(logits)
    found: dict[str, Any] = {"bins": _histograms(share.max(axis=1), likeliest == labels)}
    if decided is None and deciding.decision is not None:
        found |= _of_one(logits, labels, deciding)
    guess = likeliest if decided is None else decided
    if deciding.has_costs and logits.shape[1] <= MOST_CLASSES:
        found["decided"] = _counts(labels, guess, logits.shape[1])
    return found | {"classes": _classes(share, truth, guess, named=deciding.positive)}


def _classes(share: FloatArray, truth: Array, guess: IntArray, *, named: int | None) -> tuple[ClassScores, ...]:
    """Return the classes with targets, the rarest first. share, truth [N, C]: as of `one_against_rest`.

    named: the class that is decided for, which has a curve like the rarest.
    """
    targets, found = truth.sum(axis=0), list[ClassScores]()
    for number in sorted(np.flatnonzero(targets).tolist(), key=targets.__getitem__)[:MOST_CLASSES]:
        own, is_guess = truth[:, number], guess == number
        hits, guessed, true = int((own & is_guess).sum()), int(is_guess.sum()), int(targets[number])
        found.append(
            ClassScores(
                number,
                true,
                hits / guessed if guessed else None,
                hits / true,
                2 * hits / (true + guessed),
                precision_area(share[:, number], own) if true < len(own) else None,
                _curve(share[:, number], own) if len(found) < MOST_CURVES or number == named else (),
            )
        )
    return tuple(found)


def _curve(scores: FloatArray, truth: Array) -> tuple[tuple[int, int], ...]:
    """Return some of the distinct scores' targets from the highest on, and the true ones among them."""
    _, flagged, hits = steps_of(scores, truth)
    shown = _spread(len(flagged))
    return tuple(zip(flagged[shown].tolist(), hits[shown].tolist(), strict=True))


def _counts(labels: Array, guess: Array, classes: int) -> tuple[tuple[int, ...], ...]:
    counts = np.bincount(labels * classes + guess, minlength=classes**2).reshape(classes, classes)
    return tuple(map(tuple, counts.tolist()))


def _rarest(labels: Array) -> int:
    """Return the class with the fewest targets of those that have any."""
    numbers, counts = np.unique(labels, return_counts=True)
    return int(numbers[counts.argmin()])


def _of_numbers(errors: Array) -> dict[str, Any]:
    largest = float(np.percentile(np.abs(errors), _OUTLIERS)) or 1.0
    counts, _ = np.histogram(np.clip(errors, -largest, largest), BINS, (-largest, largest))
    return {"errors": tuple(counts.tolist()), "largest_error": largest}


def _of_links(ranks: Array, candidates: int) -> dict[str, Any]:
    ends = 2 ** np.arange(1 + int(np.log2(candidates)))
    # a rank of 2.5, of equal scores, lies between 2 and 3
    counts = np.bincount(np.searchsorted(ends, ranks, side="right") - 1, minlength=len(ends))
    numbers = 1 + _spread(candidates)
    below = np.searchsorted(np.sort(ranks), numbers, side="right")
    return {
        "ranks": tuple(counts.tolist()),
        "hits": tuple(zip(numbers.tolist(), below.tolist(), strict=True)),
        "candidates": candidates,
    }


@dataclass(frozen=True)
class _GroupMeasure:
    """Measures groups of targets: raw outputs [N, C], labels and the metric, and the rare class that it stands on."""

    logits: FloatArray
    labels: Array
    label_kind: LabelKind
    metric: str
    rare: int | None
    named: int | None

    def group(self, rows: IntArray, low: int = 0, high: int = 0, column: str = "", value: str = "") -> ScoreGroup:
        """Return the targets of some rows as a group."""
        labels, names = self.labels[rows], [self.metric]
        measured = metrics_of(self.logits[rows], labels, label_kind=self.label_kind, names=names, positive=self.named)
        found = measured.values.get(self.metric)
        of_rare = None if self.rare is None else int((labels == self.rare).sum())
        return ScoreGroup(low, high, len(rows), found, column, value, of_rare)


def _groups(measure: _GroupMeasure, degrees: IntArray) -> tuple[ScoreGroup, ...]:
    """Return the metric in groups of about as many targets, by in-degree."""
    starts = np.unique(np.quantile(degrees, np.arange(_MOST_GROUPS) / _MOST_GROUPS, method="higher"))
    group = np.searchsorted(starts, degrees, side="right") - 1
    rows = (np.flatnonzero(group == number) for number in range(len(starts)))
    return tuple(measure.group(own, int(degrees[own].min()), int(degrees[own].max())) for own in rows)


def _value_groups(measure: _GroupMeasure, targets: IntArray, store: GraphStore) -> tuple[ScoreGroup, ...]:
    """Return the metric by the values of the first few categorical columns, over a bounded number of targets."""
    facts = store.facts
    table = f"nodes/{facts.target}" if facts.target else "nodes"
    states, read = facts.encodings.get(table, ()), facts.columns_read.get(table, ())
    degrees = len(read) - len(table_columns(read))
    # the first encoded column of each column, by its name
    starts = offsets_of(np.array([len(each.state.outputs) for each in states], np.int64)).tolist()
    chosen = [
        (each.state, start)
        for each, start in zip(states, starts[:-1], strict=True)
        if each.state.kind == "categorical" and 1 < len(each.state.outputs) <= _MOST_VALUES
    ][:_MOST_COLUMNS]
    if not chosen or starts[-1] + degrees != own_width(store):
        return ()
    count = min(len(targets), most_rows(starts[-1]))
    rows = np.argsort(targets)[np.linspace(0, len(targets) - 1, count).astype(np.int64)]
    columns, found = own_columns(store, targets[rows]), []
    for state, start in chosen:
        own = columns[:, start : start + len(state.outputs)]
        names = [each.removeprefix(f"{state.name} ").removeprefix("= ") for each in state.outputs]
        # a value without a column is a row of zeros
        value = np.where(own.any(axis=1), own.argmax(axis=1), len(names))
        for number, name in enumerate([*names, "has no value"]):
            some = rows[value == number]
            if len(some):
                found.append(measure.group(some, column=state.name, value=name))
    return tuple(found)


def _histograms(values: FloatArray, truth: Array) -> tuple[tuple[int, ...], ...]:
    """Return counts of values from 0 to 1 in equal bins, of the false ones and of the true ones."""
    return tuple(tuple(np.histogram(values[truth == which], BINS, (0, 1))[0].tolist()) for which in (False, True))


def _spread(count: int) -> IntArray:
    """Return at most MOST_STEPS of the places 0 .. count - 1 with both ends, denser at the beginning."""
    if count <= MOST_STEPS:
        return np.arange(count)
    half: Sequence[float] = np.geomspace(1, count, MOST_STEPS // 2).tolist()
    return np.unique(np.rint([*half, *np.linspace(1, count, MOST_STEPS // 2)]).astype(np.int64)) - 1
