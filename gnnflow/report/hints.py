"""Advice that a figure of this run supports.

A rule is a function that returns its hint or None. It gives one only where its figure is over its limit, so a good run
gets an empty list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gnnflow.config.train_keys import PATIENCE
from gnnflow.graph.errors import listed
from gnnflow.graph.labels import BOUNDS, lower_is_better
from gnnflow.graph.run_facts import HIDE_EVENTS
from gnnflow.report.cost_hints import COST_RULES
from gnnflow.report.formats import count_text, metric_name, percent_text, score_text, sentence
from gnnflow.report.hint import Hint
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.judging import NO_EDGES, baseline_name
from gnnflow.report.pictures.classes import mean_costs
from gnnflow.report.pictures.confusion import confusion_of
from gnnflow.report.table_hints import TABLE_RULES

TOO_GOOD = 0.999  # of a score in 0..1
LEAST_TESTED = 30  # targets, before such a score says anything
MOST_GAP = 0.1  # of a score in 0..1, between train and valid or valid and test
MOST_EXCESS = 0.3  # of an error on one split over another's, as a share
MOST_DROPOUT = 0.7  # above which more of it hides nearly all
LEAST_GAIN = 0.01  # over the baseline without edges
MOST_RISE = 0.1  # of the valid loss over its lowest, as a share
MOST_EDGES = 0.05  # share of the candidates of a held-out link
LEAST_TARGETS = 10  # of a class, before its recall says anything
LEAST_EPOCHS = 3  # before their order says anything
_INSTEAD = {
    "majority": "It has not learned to tell targets apart: look at the learning curves and at the columns.",
    "trees": "Columns alone say as much as the graph. Trees are faster to train and to explain, unless other edges or "
    "columns of neighbours say more.",
    "neighbor_trees": "Averages of neighbours do as well as its layers. Trees are faster to train and to explain, "
    "unless edge attributes or nodes further away say more.",
    "popularity": "A list of the most popular targets, the same for everyone, ranks at least as well.",
    "most_recent": "A list of the latest targets, the same for everyone, ranks at least as well.",
    "item_knn": "It ranks first what shares most sources with the targets that a source has, and needs no training.",
}
_OF_GRAPHS = frozenset({"trees", "neighbor_trees"})  # whose advice is about what the graph says
_LOOK_FOR_LABEL = (
    "Check that no column of graph.features or graph.edge_features repeats the label, or is known only after the label."
)
_GRAVEST_FIRST = ("problem", "warning", "idea")


def _check_divergence(inputs: ReportInputs) -> Hint | None:
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
    if key is None or inputs.baseline is None or key not in inputs.baseline or _has_not_learned(inputs):
        return None
    gain = inputs.metrics[key] - inputs.baseline[key]
    gain = -gain if lower_is_better(key) else gain
    if not gain < LEAST_GAIN:
        return None
    return Hint(
        "warning",
        "The edges add little" if gain >= 0 else "The model is worse than one without edges",
        f"{sentence(inputs.metric_name(key))} is {score_text(inputs.metrics[key])} with edges and "
        f"{score_text(inputs.baseline[key])} without. Neighbours may not share labels: try {_other_graphs(inputs)}.",
    )


def _beaten(inputs: ReportInputs) -> Hint | None:
    found = inputs.judgement
    if found is None or found.outcome == "better" or found.baseline == NO_EDGES:
        return None
    # a model that has not learned says nothing of what its graph has to say
    is_unknown = found.baseline in _OF_GRAPHS and _has_not_learned(inputs)
    advice = "" if is_unknown else f" {_INSTEAD.get(found.baseline, '')}"
    return Hint(
        "warning",
        f"The model is {found.against}",
        f"{sentence(inputs.metric_name(found.key))} is {score_text(found.score)} beside "
        f"{found.baseline_score}.{advice}",
    )


def _other_graphs(inputs: ReportInputs) -> str:
    """Return the settings that may help a graph say more, without those that the config has."""
    found = [] if inputs.setting("graph.reverse_edges") else ["graph.reverse_edges: true"]
    found += ["another model.kind"]
    found += [] if inputs.setting("model.head") == "jumping" else ["model.head: jumping"]
    return " or ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]


def _too_good(inputs: ReportInputs) -> Hint | None:
    if inputs.graph.split_counts.get("test", 0) < LEAST_TESTED:
        return None
    of_columns = [inputs.every_baseline.get(name, {}) for name in (NO_EDGES, "trees")]
    for key in dict.fromkeys((inputs.headline_key or "", "test.roc_auc")):
        if not key.startswith("test.") or lower_is_better(key) or inputs.metrics.get(key, 0.0) < TOO_GOOD:
            continue
        alone = any(held.get(key, 0.0) >= TOO_GOOD for held in of_columns)
        whose = "The features alone predict" if alone else "The model predicts"
        return Hint(
            "warning",
            "Too good to be true?",
            f"{whose} nearly every label: {inputs.metric_name(key)} is {score_text(inputs.metrics[key])}. "
            f"{_LOOK_FOR_LABEL}",
        )
    return _told_class(inputs)


def _told_class(inputs: ReportInputs) -> Hint | None:
    """Return the hint where one class of several is told without a mistake, and others are not."""
    confusion = confusion_of(inputs)
    if confusion is None or len(confusion.names) <= len(("no", "yes")):
        return None
    counts, right = confusion.counts, np.diag(confusion.counts)
    is_told = (counts.sum(axis=1) >= LEAST_TESTED) & (right == counts.sum(axis=1)) & (right == counts.sum(axis=0))
    occurs = counts.sum(axis=1) > 0
    if not is_told.any() or is_told[occurs].all():
        return None
    names = listed([confusion.names[index] for index in np.flatnonzero(is_told)], at_most=3)
    return Hint(
        "warning",
        "Too good to be true?",
        f"The model predicts {names} without a mistake, and other classes not. {_LOOK_FOR_LABEL}",
    )


def _train_gap(inputs: ReportInputs) -> Hint | None:
    gap = _score_gap(inputs, "train", "valid")
    train, valid = (inputs.losses.get(split, math.nan) for split in ("train", "valid"))
    if gap is None or train >= valid:
        return None
    losses = "" if math.isnan(valid - train) else f" Its loss is {score_text(train)} on train and {score_text(valid)} "
    losses += "on valid, both without dropout." if losses else ""
    return Hint(
        "warning",
        "The model remembers the train split",
        f"{sentence(gap.name)} is {score_text(gap.size)} {gap.better} on train than on valid.{losses} "
        f"{_less_memory(inputs)}, or {_stop_earlier(inputs)}.",
    )


def _test_gap(inputs: ReportInputs) -> Hint | None:
    gap = _score_gap(inputs, "valid", "test")
    if gap is None:
        return None
    return Hint(
        "warning",
        "Test falls behind valid",
        f"{sentence(gap.name)} is {score_text(gap.size)} {gap.worse} on test than on valid: the splits differ, or many "
        "settings were tried on one valid split.",
    )


@dataclass(frozen=True)
class _Gap:
    """The headline's metric on one split and a worse value on another. is_error: the lower value is better."""

    name: str
    size: float
    is_error: bool

    @property
    def better(self) -> str:
        return "lower" if self.is_error else "better"

    @property
    def worse(self) -> str:
        return "higher" if self.is_error else "lower"


def _score_gap(inputs: ReportInputs, better: str, worse: str) -> _Gap | None:
    """Return how far a split's score is behind another's; None where it is near, or as far as chance moves it.

    Scores in 0..1 are far apart from MOST_GAP on, errors where one exceeds the other by MOST_EXCESS.
    """
    name = (inputs.headline_key or "").partition(".")[2]
    high, low = (inputs.metrics.get(f"{split}.{name}", math.nan) for split in (better, worse))
    is_error = bool(name) and lower_is_better(name)
    size = low - high if is_error else high - low
    least = MOST_EXCESS * abs(high) if is_error else MOST_GAP
    return _Gap(metric_name(name), size, is_error) if size > max(least, _chance(inputs, name, worse)) else None


def _chance(inputs: ReportInputs, name: str, split: str) -> float:
    """Return half the width of the 95 % interval of a score on a split, from the one on test; 0 where it has none."""
    low, high = (inputs.metrics.get(f"test.{name}{side}", math.nan) for side in BOUNDS)
    test, own = (inputs.graph.split_counts.get(each, 0) for each in ("test", split))
    return (high - low) / 2 * math.sqrt(test / own) if own and high > low else 0.0


def _less_memory(inputs: ReportInputs) -> str:
    """Return the settings that keep a model from learning targets by heart, with their values."""
    dropout, decay = inputs.setting("model.dropout"), inputs.setting("train.weight_decay")
    hidden = inputs.setting("model.hidden")
    found = [] if (dropout or 0) > MOST_DROPOUT else [f"raise model.dropout{_now(dropout)}"]
    found += [f"{'' if found else 'raise '}train.weight_decay{_now(decay)}"]
    found = [" or ".join(found), *([] if hidden == 1 else [f"lower model.hidden{_now(hidden)}"])]
    return sentence(", ".join(found))


def _now(value: object) -> str:
    """Return a setting's value as a clause; empty where it is not known."""
    return "" if value is None else f" (now {value})"


def _underfit(inputs: ReportInputs) -> Hint | None:
    found = inputs.judgement
    if found is None or not _has_not_learned(inputs):
        return None
    name = found.key.partition(".")[2]
    loss = f" (loss {score_text(inputs.losses['train'])} without dropout)" if "train" in inputs.losses else ""
    dropout, decay = inputs.setting("model.dropout"), inputs.setting("train.weight_decay")
    less = [f"model.dropout{_now(dropout)}"] * bool(dropout) + [f"train.weight_decay{_now(decay)}"] * bool(decay)
    advice = f"Raise train.epochs{_now(inputs.setting('train.epochs'))}, train.lr{_now(inputs.setting('train.lr'))} or "
    advice += f"model.hidden{_now(inputs.setting('model.hidden'))}"
    advice += f", or lower {' and '.join(less)}" if less else ""
    return Hint(
        "warning",
        "The model has not learned the train split",
        f"{sentence(inputs.metric_name(name))} is {score_text(inputs.metrics[f'train.{name}'])} on the targets that it "
        f"learned from{loss}, worse than {baseline_name(found.baseline, found.key)} on others: "
        f"{score_text(found.beside)}. {advice}.",
    )


def _has_not_learned(inputs: ReportInputs) -> bool:
    """Return whether the model is worse on the train split than the best baseline is on targets unseen."""
    found = inputs.judgement
    if found is None or found.outcome != "worse":
        return False
    name = found.key.partition(".")[2]
    train = inputs.metrics.get(f"train.{name}", math.nan)
    loss = train - found.beside if lower_is_better(name) else found.beside - train
    return loss > (found.noise or 0.0)


def _rising_loss(inputs: ReportInputs) -> Hint | None:
    losses = np.array([row.get("valid_loss", math.nan) for row in inputs.curves])
    finite = losses[np.isfinite(losses)]
    if len(finite) < LEAST_EPOCHS or not finite[-1] > finite.min() * (1 + MOST_RISE) or _train_gap(inputs):
        return None
    lowest = int(np.nanargmin(losses))
    trained = [inputs.curves[place].get("train_loss", math.nan) for place in (lowest, -1)]
    advice = f"{_less_memory(inputs)}, or {_stop_earlier(inputs)}."
    if trained[1] > trained[0]:  # the model does not remember more: its steps are too long
        advice = f"The train loss rises too: lower train.lr{_now(inputs.setting('train.lr'))}."
    return Hint(
        "idea",
        f"The valid loss rises after epoch {count_text(inputs.curves[lowest].get('epoch', 0))}",
        f"From {score_text(float(finite.min()))} to {score_text(float(finite[-1]))} at the end. {advice}",
    )


def _stop_earlier(inputs: ReportInputs) -> str:
    """Return how to stop training sooner: by patience, or by a smaller one where the config has one."""
    patience = inputs.setting("train.patience")
    if patience is None:
        patience = PATIENCE
    if not patience:
        return "set train.patience to stop sooner"
    if patience == 1:  # the smallest one: its metric improved until then
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
    recall = inputs.metrics.get("test.recall", 0.0)
    if recall > 0 and inputs.decision is not None and inputs.decision.threshold is not None:
        precision = score_text(inputs.metrics.get("test.precision", 0.0))
        one = inputs.class_name(inputs.decision.positive or 0)
        return Hint(
            "idea",
            "The column `prediction` has one class, `decision` has both",
            f"{sentence(inputs.constant)}: it is the likeliest everywhere. The column decision, from a probability of "
            f"{inputs.decision.threshold:.4g} on, finds {percent_text(recall)} of class {one} with precision "
            f"{precision}.",
        )
    weigh = (
        "" if inputs.setting("train.class_weight") == "balanced" else "train.class_weight: balanced where classes are "
    )
    weigh += "rare, " if weigh else ""
    return Hint(
        "problem",
        "The model predicts the same for every target",
        f"{sentence(inputs.constant)}. Metrics of such predictions describe the labels and not the model. Try {weigh}"
        f"more epochs or another train.lr{_now(inputs.setting('train.lr'))}.",
    )


def _alike(inputs: ReportInputs) -> Hint | None:
    if not inputs.alike:
        return None
    return Hint("problem", "Only degrees tell targets apart", sentence(" ".join(inputs.alike)))


def _candidates(inputs: ReportInputs) -> Hint | None:
    found = inputs.link_facts
    if found is None or not (found.are_repeated or (found.share > MOST_EDGES and not found.filtered)):
        return None
    advice = ["Ranks count them as wrong: set task.negatives.filtered: true."] * (not found.filtered)
    advice += [f"Set task.negatives.evaluation to {count_text(found.nodes)} or less."] * found.are_repeated
    return Hint(
        "warning", "Some ranked candidates are edges or repeated", f"{sentence(found.text)}. {' '.join(advice)}"
    )


def _events(inputs: ReportInputs) -> Hint | None:
    found = inputs.link_facts
    if found is None or not found.events_text:
        return None
    return Hint(
        "problem", "Other nodes may reveal which pairs are edges", f"{sentence(found.events_text)}. {HIDE_EVENTS}"
    )


def _lost_classes(inputs: ReportInputs) -> Hint | None:
    confusion = confusion_of(inputs)
    if confusion is None or inputs.constant or _has_not_learned(inputs):
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
        f"No target of {names} is predicted correctly. {_weigh_them(inputs)}",
    )


def _weigh_them(inputs: ReportInputs) -> str:
    if inputs.setting("train.class_weight") != "balanced":
        return "Try train.class_weight: balanced."
    return "Classes are weighed already: more targets of these, or features that distinguish them, would help."


def _parity(inputs: ReportInputs) -> Hint | None:
    parity = inputs.parity
    if parity is None or parity.passed:
        return None
    alike = "; check that training and inference sample the same way (infer.sampling: same)"
    check = "" if inputs.setting("infer.sampling") == "same" else alike
    return Hint(
        "problem",
        "Another route gives other scores",
        f"Predictions differ by up to {parity.max_difference:.1e} from the k-hop path, and {parity.limit:.0e} is "
        f"allowed. Do not publish them{check}.",
    )


def _dear_decisions(inputs: ReportInputs) -> Hint | None:
    costs = mean_costs(inputs)
    if costs is None or inputs.scores is None or costs[0] <= costs[1]:
        return None
    decided, likeliest = map(score_text, costs)
    return Hint(
        "warning",
        "Decisions cost more than the likeliest class",
        f"By task.decide.costs a decision costs {decided} on average over {inputs.scores.split}, and the likeliest "
        f"class {likeliest}. What makes probabilities fit valid does not hold there: more targets in valid help, and "
        "without task.decide the likeliest class is decided.",
    )


_RULES = (
    _check_divergence,
    _constant,
    _alike,
    _candidates,
    _events,
    _no_gain,
    _beaten,
    _too_good,
    _underfit,
    _train_gap,
    _test_gap,
    _rising_loss,
    _last_epoch,
    _lost_classes,
    _dear_decisions,
    *TABLE_RULES,
    _parity,
    *COST_RULES,
)


def find_hints(inputs: ReportInputs) -> tuple[Hint, ...]:
    """Return the hints that are true of this run, the gravest first."""
    found = [hint for rule in _RULES if (hint := rule(inputs)) is not None]
    return tuple(sorted(found, key=lambda hint: _GRAVEST_FIRST.index(hint.kind)))
