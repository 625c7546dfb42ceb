"""95 % confidence intervals of a split's metrics: how far another sample of as many targets could move them.

Targets count as drawn independently of each other. They are nodes of one graph, so the intervals are rather too narrow
where the labels of neighbours depend on each other. Shares of targets: Wilson (1927). Areas under the ROC curve: DeLong
et al. (1988), on the scale of log odds. Average precision likewise, with the variance of the infinitesimal jackknife
(Jaeckel, 1972). Metrics computed from sums over targets: bias-corrected percentiles of a bootstrap (Efron, 1981), whose
seed is fixed, so equal scores give equal intervals.

Shapes: N targets, C classes, G groups of targets, B resamples, K sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from statistics import NormalDist

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.labels import LabelKind
from gnnflow.train.decisions import Deciding, class_margin, positive_probability

Interval = tuple[float, float]
Values = dict[str, float]

LEVEL = 0.95
HITS = (1, 10, 50)
"""The ranks k of a link's shares of hits."""
RESAMPLES = 1000
GROUPS = 1000
"""Targets are resampled in so many random groups: sums spread as those of single targets, and the cost is bounded."""
MOST_CLASSES = 2000  # F1 needs three sums per class: more would take longer than everything else
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf((1 + LEVEL) / 2)


def intervals_of(
    values: Values,
    logits: FloatArray,
    labels: Array,
    *,
    label_kind: LabelKind,
    deciding: Deciding | None = None,
    positive: int | None = None,
) -> dict[str, Interval]:
    """Return low and high of each metric in `values`, the metrics of these targets, which are all labelled.

    A metric is left out where the targets show no spread of it, or F1 has more than MOST_CLASSES classes. deciding: how
    decisions between classes are measured. positive: see `metrics_of`.
    """
    found = _INTERVALS[label_kind](values, logits, labels, positive) if len(labels) > 1 else {}
    if deciding is not None and len(labels) > 1:
        found |= _of_decisions(values, logits, labels, deciding)
    return {name: found[name] for name in values if name in found and found[name][0] < found[name][1]}


def one_against_rest(logits: FloatArray, labels: Array, positive: int | None = None) -> tuple[Array, Array]:
    """Return the inputs of areas under curves: a score per column, and whether the target is of its class.

    positive: the one class to measure, which is one column, its log-odds; class 1 of two where it is None. Of more
    classes None is a column per class, its probability.
    """
    if positive is None and logits.shape[1] == 2:  # noqa: PLR2004 - binary
        positive = 1
    if positive is not None:
        return class_margin(logits, positive)[:, None], labels[:, None] == positive
    share = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    np.exp(share, out=share)
    share /= share.sum(axis=1, keepdims=True)
    return share, labels[:, None] == np.arange(logits.shape[1])


def ranks_of(logits: FloatArray) -> Array:
    """Return the rank of each edge [N] among itself (column 0) and its negatives, from 1; ties count by half."""
    others, own = logits[:, 1:], logits[:, :1]
    return np.asarray(1 + (others > own).sum(axis=1) + (others == own).sum(axis=1) / 2)


def squared_errors(logits: FloatArray, labels: Array) -> FloatArray:
    """Return the squared error of each target's probabilities [N]: of class 1, or summed over more than two classes."""
    if logits.shape[1] == 2:  # noqa: PLR2004 - binary
        return np.asarray(np.square(positive_probability(logits).astype(np.float64) - labels))
    share, _ = one_against_rest(logits, labels)
    own = share[np.arange(len(labels)), labels].astype(np.float64)
    return np.asarray(np.einsum("nc,nc->n", share, share, dtype=np.float64) + 1 - 2 * own)


def influences_of(
    logits: FloatArray,
    labels: Array,
    *,
    label_kind: LabelKind,
    names: Collection[str] | None = None,
    deciding: Deciding | None = None,
    positive: int | None = None,
) -> dict[str, FloatArray]:
    """Return by how much each labelled target moves a metric, its influence [N], where the metric has one.

    The sum of the squares is the variance of the metric; of the differences of two models', of the metrics' difference.
    names: of areas under curves, which take long, no others are computed; None computes all. deciding: how decisions
    between classes are measured, of which costs have influences. positive: see `metrics_of`.
    """
    if label_kind == "regression":
        error = np.abs(logits[:, 0].astype(np.float64) - labels)
        root = max(math.sqrt(float(np.square(error).mean())), 1e-300)
        return {"mae": _of_mean(error), "rmse": _of_mean(np.square(error)) / (2 * root)}
    if label_kind == "link":
        ranks = ranks_of(logits)
        found = {f"hits_at_{k}": _of_mean(ranks <= k) for k in HITS if k < logits.shape[1]}
        found["mrr"] = _of_mean(1 / ranks)
        return found if names is not None and "roc_auc" not in names else {**found, "roc_auc": _pair_influence(logits)}
    if label_kind != "single":
        return {}
    hits = _of_mean(logits.argmax(axis=1) == labels)
    found = {"accuracy": hits, "micro_f1": hits, "brier": _of_mean(squared_errors(logits, labels))}
    scores, truth = one_against_rest(logits, labels, positive)
    if (truth.any(axis=0) & ~truth.all(axis=0)).any():
        of_curves = {"roc_auc": _influence, "average_precision": _precision_influence}
        for name in (each for each in of_curves if names is None or each in names):
            found[name] = _mean_influence(scores, truth, of_curves[name])
    if deciding is not None and (costs := deciding.costs(logits, labels)) is not None:
        found["cost"] = _of_mean(costs)
    return found


def noise_of(influence: FloatArray) -> float:
    """Return half the width of the 95 % interval of what targets with these influences [N] add up to."""
    return _Z * math.sqrt(float(np.square(influence).sum()))


def _of_mean(values: Array) -> FloatArray:
    return np.asarray((values - values.mean()) / len(values), np.float64)


def _of_classes(values: Values, logits: FloatArray, labels: Array, positive: int | None) -> dict[str, Interval]:
    share = _wilson(values["accuracy"], len(labels))
    found = {"accuracy": share, "micro_f1": share}  # with one class per target these two are one number
    # truth and guess of each target, as places among the classes that occur [N]
    classes, places = np.unique(np.concatenate([labels, logits.argmax(axis=1)]), return_inverse=True)
    truth, guess = places[: len(labels)], places[len(labels) :]
    if len(classes) <= MOST_CLASSES:
        group, num_groups = _groups(len(labels))
        hit, size = truth == guess, num_groups * len(classes)
        keys = [group[hit] * len(classes) + truth[hit], group * len(classes) + truth, group * len(classes) + guess]
        counts = [np.bincount(key, minlength=size).reshape(num_groups, -1) for key in keys]
        found["macro_f1"] = _percentiles(_macro_f1(*_resampled(counts)), values["macro_f1"])
    if "roc_auc" in values:
        influence = _mean_influence(*one_against_rest(logits, labels, positive), _influence)
        found["roc_auc"] = _area(values["roc_auc"], influence)
    if "average_precision" in values:
        influence = _mean_influence(*one_against_rest(logits, labels, positive), _precision_influence)
        found["average_precision"] = _area(values["average_precision"], influence)
    if "brier" in values:
        found["brier"] = mean_interval(squared_errors(logits, labels), values["brier"])
    return found


def _of_decisions(values: Values, logits: FloatArray, labels: Array, deciding: Deciding) -> dict[str, Interval]:
    costs, flagged = deciding.costs(logits, labels), deciding.flags(logits)
    found = {} if costs is None else {"cost": mean_interval(costs, values["cost"])}
    if flagged is None:
        return found
    truth = labels == deciding.positive
    counts = {"precision": int(flagged.sum()), "recall": int(truth.sum())}
    found |= {name: _wilson(values[name], count) for name, count in counts.items() if count}
    if "f1" in values:
        group, num_groups = _groups(len(labels))
        parts = (truth & flagged, truth, flagged)
        sums = [np.bincount(group[part], minlength=num_groups)[:, None] for part in parts]
        hits, true, guessed = (each[:, 0] for each in _resampled(sums))
        found["f1"] = _percentiles(_ratio(2 * hits, true + guessed), values["f1"])
    return found


def _of_labels(values: Values, logits: FloatArray, labels: Array, _: int | None) -> dict[str, Interval]:
    truth, guess = labels > 0, logits > 0
    found = {"accuracy": _wilson(values["accuracy"], len(labels))}
    if labels.shape[1] <= MOST_CLASSES:
        group, num_groups = _groups(len(labels))
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(num_groups))
        parts = (truth & guess, truth, guess)
        hits, true, guessed = _resampled([np.add.reduceat(each[order], starts, dtype=np.int64) for each in parts])
        if "macro_f1" in values:
            found["macro_f1"] = _percentiles(_macro_f1(hits, true, guessed), values["macro_f1"])
        if "micro_f1" in values:
            micro = _ratio(2 * hits.sum(axis=1), true.sum(axis=1) + guessed.sum(axis=1))
            found["micro_f1"] = _percentiles(micro, values["micro_f1"])
    if "roc_auc" in values:
        found["roc_auc"] = _area(values["roc_auc"], _mean_influence(logits, truth, _influence))
    if "average_precision" in values:
        influence = _mean_influence(logits, truth, _precision_influence)
        found["average_precision"] = _area(values["average_precision"], influence)
    if "roc_auc_micro" in values:
        # the entries of one target are not independent, so each target's are added up [N]
        influence = _influence(logits.ravel(), truth.ravel()).reshape(labels.shape).sum(axis=1)
        found["roc_auc_micro"] = _area(values["roc_auc_micro"], influence)
    return found


def _of_numbers(values: Values, logits: FloatArray, labels: Array, _: int | None) -> dict[str, Interval]:
    error = np.abs(logits[:, 0].astype(np.float64) - labels)
    group, num_groups = _groups(len(labels))
    sums = [np.bincount(group, weights, minlength=num_groups)[:, None] for weights in (error, error**2, None)]
    absolute, squared, count = (each[:, 0] for each in _resampled(sums))
    return {
        "mae": _percentiles(absolute / count, values["mae"]),
        "rmse": _percentiles(np.sqrt(squared / count), values["rmse"]),
    }


def _of_links(values: Values, logits: FloatArray, labels: Array, _: int | None) -> dict[str, Interval]:
    found = {name: _wilson(value, len(labels)) for name, value in values.items() if name.startswith("hits_at_")}
    found["mrr"] = mean_interval(1 / ranks_of(logits), values["mrr"])
    if "roc_auc" in values:
        found["roc_auc"] = _area(values["roc_auc"], _pair_influence(logits))
    return found


_INTERVALS: dict[LabelKind, Callable[[Values, FloatArray, Array, int | None], dict[str, Interval]]] = {
    "single": _of_classes,
    "multi": _of_labels,
    "regression": _of_numbers,
    "link": _of_links,
}


def mean_interval(each: Array, mean: float) -> Interval:
    """Return the interval of the mean of a number of each target [N], by the bootstrap."""
    group, num_groups = _groups(len(each))
    sums = [np.bincount(group, weights, minlength=num_groups)[:, None] for weights in (each, None)]
    total, count = (resampled[:, 0] for resampled in _resampled(sums))
    return _percentiles(total / count, mean)


def _wilson(share: float, count: int) -> Interval:
    """Return Wilson's interval of a share of count targets: its ends p solve |share - p| = z deviation(p)."""
    weight = _Z**2 / count
    middle = (share + weight / 2) / (1 + weight)
    margin = _Z * math.sqrt(share * (1 - share) / count + weight / (4 * count)) / (1 + weight)
    # of no hit and of all these are the ends themselves, which rounding misses by a little
    return (middle - margin if share > 0 else 0.0), (middle + margin if share < 1 else 1.0)


def _groups(num_targets: int) -> tuple[IntArray, int]:
    """Return the group of each target [N], and how many groups there are; few targets are a group each."""
    count = min(num_targets, GROUPS)
    return np.random.default_rng(0).permutation(num_targets) % count, count


def _resampled(sums: list[Array]) -> list[Array]:
    """Return sums [G, K] over the groups of each resample [B, K]."""
    size = len(sums[0])
    # the group that each of G draws of a resample takes [B, G], counted from G times the resample's number
    drawn = np.random.default_rng(1).integers(0, size, (RESAMPLES, size)) + size * np.arange(RESAMPLES)[:, None]
    # how often each resample has each group [B, G]
    times = np.bincount(drawn.ravel(), minlength=RESAMPLES * size).reshape(RESAMPLES, size).astype(np.float64)
    return [times @ each.astype(np.float64) for each in sums]


def _macro_f1(hits: Array, true: Array, guessed: Array) -> Array:
    """Return the mean F1 of each resample [B] over the classes that it holds or guesses."""
    scores = _ratio(2 * hits, true + guessed)
    defined = np.isfinite(scores)
    return _ratio(np.where(defined, scores, 0.0).sum(axis=1), defined.sum(axis=1))


def _ratio(above: Array, below: Array) -> Array:
    return np.asarray(np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0))


def _percentiles(resampled: Array, value: float) -> Interval:
    """Return the bias-corrected percentiles: moved by twice the resamples' median's distance from the value."""
    resampled = resampled[np.isfinite(resampled)]
    if not len(resampled):
        return value, value
    # the share of resamples below the value, ties by half, as a normal quantile: 0 where the median is the value
    below = (np.count_nonzero(resampled < value) + np.count_nonzero(resampled <= value)) / (2 * len(resampled))
    shift = 2 * _NORMAL.inv_cdf(min(max(below, 1 / RESAMPLES), 1 - 1 / RESAMPLES))
    low, high = np.quantile(resampled, [_NORMAL.cdf(shift - _Z), _NORMAL.cdf(shift + _Z)])
    return float(low), float(high)


def _area(value: float, influence: Array) -> Interval:
    """Return the interval of an area under the curve that each target moves by its influence [N]."""
    # on the scale of log odds, whose derivative is 1 / slope, so that both ends stay within 0 and 1
    slope = value * (1 - value)
    if slope <= 0:
        return value, value
    odds, margin = math.log(value / (1 - value)), _Z * math.sqrt(float(np.square(influence).sum())) / slope
    return (1 + math.tanh((odds - margin) / 2)) / 2, (1 + math.tanh((odds + margin) / 2)) / 2


def _mean_influence(scores: Array, truth: Array, influence_of: Callable[[Array, Array], Array]) -> Array:
    """Return the influence of each target [N] on the mean area over the columns that have both kinds of target."""
    positives = truth.sum(axis=0)
    defined = np.flatnonzero((positives > 0) & (positives < len(truth)))
    total = np.zeros(len(truth))
    for column in defined:
        total += influence_of(scores[:, column], truth[:, column])
    return total / len(defined)


def _influence(scores: Array, truth: Array) -> Array:
    """Return by how much each target moves the area, its influence [N]; the sum of squares is DeLong's variance."""
    order = np.argsort(scores, kind="stable")
    scores, truth = scores[order], truth[order]
    high, low = scores[truth], scores[~truth]
    # share of the other kind that each target is ranked right against, ties by half
    right = np.empty(len(scores))
    right[truth] = _share_below(low, high)
    right[~truth] = 1 - _share_below(high, low)
    for kind in (truth, ~truth):
        count = int(np.count_nonzero(kind))
        right[kind] = (right[kind] - right[kind].mean()) / math.sqrt(count * max(count - 1, 1))
    influence = np.empty(len(scores))
    influence[order] = right
    return influence


def _pair_influence(logits: FloatArray) -> Array:
    """Return by how much each edge moves the area over all pairs [N]; an edge's pairs are not independent."""
    truth = np.zeros(logits.shape, bool)
    truth[:, 0] = True
    return np.asarray(_influence(logits.ravel(), truth.ravel()).reshape(truth.shape).sum(axis=1))


def _precision_influence(scores: Array, truth: Array) -> Array:
    """Return the derivative of average precision by the weight of each target [N]; the sum of squares is its variance.

    Of positive i with A_i positives and B_i targets down to its score it is A_i / B_i on average, so a target moves its
    own part, and A and B of every positive that it is not below.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, positive = scores[order], truth[order]
    # the place of the last target with the score of each, which equal scores share [N]
    ends = np.append(np.flatnonzero(np.diff(ordered)), len(order) - 1)
    last = ends[np.searchsorted(ends, np.arange(len(order)))]
    hits, flagged = np.cumsum(positive)[last], last + 1.0
    precision = hits / flagged
    # sums of dA / B and of A / B^2 over the positives that are not above each target [N]
    firsts = np.append(0, ends[:-1] + 1)[np.searchsorted(ends, np.arange(len(order)))]
    by_hit, by_target = (
        np.cumsum((positive * each)[::-1])[::-1][firsts] for each in (1 / flagged, precision / flagged)
    )
    total = positive.sum()
    average = precision[positive].sum() / total
    influence = np.empty(len(order))
    influence[order] = (positive * (precision - average + by_hit) - by_target) / total
    return influence


def _share_below(others: Array, scores: Array) -> Array:
    """Return the share of others, which ascend, below each score."""
    twice = np.searchsorted(others, scores, "left")
    twice += np.searchsorted(others, scores, "right")
    return np.asarray(twice / (2 * len(others)))
