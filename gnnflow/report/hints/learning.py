"""Advice on how well the model learned."""

from __future__ import annotations

import math

import numpy as np

from gnnflow.graph.errors import listed
from gnnflow.graph.labels import lower_is_better
from gnnflow.graph.run_facts import HIDE_EVENTS
from gnnflow.report.formats import count_text, metric_name, score_text, sentence
from gnnflow.report.hints.hint import Hint
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.pictures.quality import confusion_of

TOO_GOOD = 0.999  # of a score in 0..1
LEAST_TESTED = 30  # targets, before such a score says anything
MOST_GAP = 0.1  # of a score in 0..1, between train and valid or valid and test
LEAST_GAIN = 0.01  # over the baseline without edges
MOST_RISE = 0.1  # of the valid loss over its lowest, as a share
MOST_EDGES = 0.05  # share of the candidates of a held-out link
LEAST_TARGETS = 10  # of a class, before its recall says anything
LEAST_EPOCHS = 3  # before their order says anything


def _diverged(inputs: ReportInputs) -> Hint | None:
    scale = "" if inputs.setting("graph.normalize") == "standard" else " (graph.normalize: standard)"
    for row in inputs.curves:
        if not math.isfinite(row.get("train_loss", 0.0)):
            return Hint(
                "problem",
                f"The loss stopped being a number at epoch {count_text(row.get('epoch', 0))}",
                f"Lower train.lr, or look for extreme feature values{scale}.",
            )
    return None


def _no_gain(inputs: ReportInputs) -> Hint | None:
    key = inputs.headline_key
    if key is None or inputs.baseline is None or key not in inputs.baseline:
        return None
    gain = inputs.metrics[key] - inputs.baseline[key]
    gain = -gain if lower_is_better(key) else gain
    if not gain < LEAST_GAIN:
        return None
    return Hint(
        "warning",
        "The edges add little" if gain >= 0 else "The model is worse than one without edges",
        f"{sentence(metric_name(key))} is {score_text(inputs.metrics[key])} with edges and "
        f"{score_text(inputs.baseline[key])} without. Neighbours may not share labels: try {_other_graphs(inputs)}.",
    )


def _other_graphs(inputs: ReportInputs) -> str:
    """Return what lets a graph tell more, as far as the config does not have it."""
    found = [] if inputs.setting("graph.reverse_edges") else ["graph.reverse_edges: true"]
    found += ["another model.kind"]
    found += [] if inputs.setting("model.head") == "jumping" else ["model.head: jumping"]
    return " or ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]


def _too_good(inputs: ReportInputs) -> Hint | None:
    key = inputs.headline_key
    enough = inputs.graph.split_counts.get("test", 0) >= LEAST_TESTED
    if key is None or not key.startswith("test.") or lower_is_better(key) or not enough:
        return None
    if inputs.metrics[key] < TOO_GOOD:
        return None
    alone = inputs.baseline is not None and inputs.baseline.get(key, 0.0) >= TOO_GOOD
    whose = "The features alone tell" if alone else "The model tells"
    return Hint(
        "warning",
        "Too good to be true?",
        f"{whose} nearly every label: {metric_name(key)} is {score_text(inputs.metrics[key])}. See that no column of "
        "graph.features or graph.edge_features is the label in other words, or is known only once the label is.",
    )


def _train_gap(inputs: ReportInputs) -> Hint | None:
    gap, name = _score_gap(inputs, "train", "valid")
    if not gap > MOST_GAP:
        return None
    return Hint(
        "warning",
        "The model remembers the train split",
        f"{sentence(name)} is {score_text(gap)} better on train than on valid. Raise model.dropout or "
        f"train.weight_decay, lower model.hidden, or {_stop_earlier(inputs)}.",
    )


def _test_gap(inputs: ReportInputs) -> Hint | None:
    gap, name = _score_gap(inputs, "valid", "test")
    if not gap > MOST_GAP:
        return None
    return Hint(
        "warning",
        "Test falls behind valid",
        f"{sentence(name)} is {score_text(gap)} lower on test than on valid: the splits differ, or many settings were "
        "tried on one valid split.",
    )


def _score_gap(inputs: ReportInputs, high: str, low: str) -> tuple[float, str]:
    """Return how much better the headline's score is on one split than on another; NaN without both."""
    name = (inputs.headline_key or "").partition(".")[2]
    if not name or lower_is_better(name):
        return math.nan, name
    missing = math.nan
    gap = inputs.metrics.get(f"{high}.{name}", missing) - inputs.metrics.get(f"{low}.{name}", missing)
    return gap, metric_name(name)


def _rising_loss(inputs: ReportInputs) -> Hint | None:
    losses = np.array([row.get("valid_loss", math.nan) for row in inputs.curves])
    finite = losses[np.isfinite(losses)]
    if len(finite) < LEAST_EPOCHS or not finite[-1] > finite.min() * (1 + MOST_RISE):
        return None
    lowest = inputs.curves[int(np.nanargmin(losses))].get("epoch", 0)
    return Hint(
        "idea",
        f"The valid loss rises after epoch {count_text(lowest)}",
        f"From {score_text(float(finite.min()))} to {score_text(float(finite[-1]))} at the end. Raise model.dropout or "
        f"train.weight_decay, or {_stop_earlier(inputs)}.",
    )


def _stop_earlier(inputs: ReportInputs) -> str:
    """Return how training would stop sooner: by patience, or by less of it where the config has some."""
    patience = inputs.setting("train.patience")
    if not patience:
        return "set train.patience to stop sooner"
    if patience == 1:  # the least there is: what it watches has grown better until then
        return (
            "set train.metric: loss, which train.patience then watches"
            if inputs.metric != "loss"
            else ("lower train.epochs")
        )
    return f"lower train.patience, which is {patience}"


def _last_epoch(inputs: ReportInputs) -> Hint | None:
    if inputs.best_epoch is None or len(inputs.curves) < LEAST_EPOCHS:
        return None
    if inputs.best_epoch < inputs.curves[-1].get("epoch", math.inf):
        return None
    return Hint(
        "idea",
        "The last epoch was the best",
        "The model was still learning when it stopped. Raise train.epochs or train.lr.",
    )


def _constant(inputs: ReportInputs) -> Hint | None:
    if not inputs.constant:
        return None
    return Hint(
        "problem",
        "The model predicts the same for every target",
        f"{sentence(inputs.constant)}. Metrics of such predictions describe the labels and not the model. Try "
        "train.class_weight: balanced where classes are rare, more epochs or another train.lr.",
    )


def _candidates(inputs: ReportInputs) -> Hint | None:
    found = inputs.link_facts
    if found is None or not (found.are_repeated or (found.share > MOST_EDGES and not found.filtered)):
        return None
    advice = ["Ranks count them as wrong: set task.negatives.filtered: true."] * (not found.filtered)
    advice += [f"Set task.negatives.evaluation to {count_text(found.nodes)} or less."] * found.are_repeated
    return Hint("warning", "Candidates are not what ranks take them for", f"{sentence(found.text)}. {' '.join(advice)}")


def _events(inputs: ReportInputs) -> Hint | None:
    found = inputs.link_facts
    if found is None or not found.events_text:
        return None
    return Hint(
        "problem", "Other nodes may tell which pairs are edges", f"{sentence(found.events_text)}. {HIDE_EVENTS}"
    )


def _lost_classes(inputs: ReportInputs) -> Hint | None:
    confusion = confusion_of(inputs)
    if confusion is None or inputs.constant:
        return None
    absent = inputs.unlearnable.absent if inputs.unlearnable else ()
    support = confusion.counts.sum(axis=1)
    learnable = np.array([name not in absent for name in confusion.names])
    lost = np.flatnonzero(learnable & (support >= LEAST_TARGETS) & (np.diag(confusion.counts) == 0))
    if not len(lost):
        return None
    names = listed([confusion.names[index] for index in lost], at_most=3)
    noun = "One class is" if len(lost) == 1 else f"{len(lost)} classes are"
    return Hint(
        "warning",
        f"{noun} never found",
        f"Not one target of {names} is predicted right. {_weigh_them(inputs)}",
    )


def _weigh_them(inputs: ReportInputs) -> str:
    if inputs.setting("train.class_weight") != "balanced":
        return "Try train.class_weight: balanced."
    return "Classes are weighed already: more targets of these, or features that tell them apart, would help."


RULES = (
    _diverged,
    _constant,
    _candidates,
    _events,
    _no_gain,
    _too_good,
    _train_gap,
    _test_gap,
    _rising_loss,
    _last_epoch,
    _lost_classes,
)
