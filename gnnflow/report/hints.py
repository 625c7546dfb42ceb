"""Advice that a figure of this run supports.

A rule is a function that returns its hint or None. It gives one only where its figure is over its limit, so a good run
gets an empty list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np

from gnnflow.config.train_keys import PATIENCE
from gnnflow.graph.errors import listed
from gnnflow.graph.labels import BOUNDS, lower_is_better
from gnnflow.graph.run_facts import HIDE_EVENTS
from gnnflow.report.formats import count_text, metric_name, percent_text, ratio_text, score_text, seconds_text, sentence
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.judging import NO_EDGES, baseline_name
from gnnflow.report.pictures.confusion import confusion_of
from gnnflow.report.pictures.pipeline import profiles_of, trainer_waits, waiting_share, waiting_text

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
MOST_ISOLATED = 0.2  # share of nodes without in-edges
MOST_READ = 10_000  # in-edges of a node, where nothing is sampled
MOST_BLOW_UP = 10.0
LONG_RUN = 60.0  # seconds
MOST_OF_TIME = 0.6  # share of one stage
LONG_WAIT = 5.0  # seconds of all epochs
LEAST_STAGES = 3  # before the share of one says anything
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


@dataclass(frozen=True)
class Hint:
    """One piece of advice: what was seen and what to do about it."""

    kind: Literal["problem", "warning", "idea"]
    title: str
    text: str


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
        f"{sentence(metric_name(key))} is {score_text(inputs.metrics[key])} with edges and "
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
        f"{sentence(metric_name(found.key))} is {score_text(found.score)} beside {found.baseline_score}.{advice}",
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
            f"{whose} nearly every label: {metric_name(key)} is {score_text(inputs.metrics[key])}. {_LOOK_FOR_LABEL}",
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
        f"{sentence(metric_name(name))} is {score_text(inputs.metrics[f'train.{name}'])} on the targets that it "
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


def _set_aside(inputs: ReportInputs) -> Hint | None:
    lost = [f"{name}: {rows.text}" for name, rows in inputs.tables.items() if rows.rows_quarantined]
    if not lost:
        return None
    where = "The reasons are listed under The graph."
    return Hint("warning", "Rows were set aside", f"{'; '.join(lost)} were not used. {where}")


def _missing_split(inputs: ReportInputs) -> Hint | None:
    splits = inputs.graph.split_counts
    empty = [name for name in ("valid", "test") if splits and not splits.get(name)]
    if not empty:
        return None
    names = " and no ".join(empty)
    why = "the best epoch is not known" if "valid" in empty else "the score on unseen nodes is unknown"
    advice = "Mark some targets in graph.split, or draw them: task.split"
    if inputs.setting("task.split.kind") not in {None, "auto", "column"}:
        advice = "Raise " + " and ".join(f"task.split.{name}" for name in empty)
    return Hint("warning", f"No {names} split", f"Without it {why}. {advice}.")


def _unlearnable(inputs: ReportInputs) -> Hint | None:
    found = inputs.unlearnable
    if found is None or not found.text:
        return None
    return Hint(
        "problem",
        f"A {found.noun} cannot be learned",
        f"{sentence(found.text)}. Metrics still count it, and its targets in valid or test are wrong with any model. "
        "Mark some of its targets as train, or draw the split: task.split.",
    )


def _large(inputs: ReportInputs) -> Hint | None:
    if not inputs.large:
        return None
    columns = listed([*chain.from_iterable(inputs.large.values())])
    keys = " and ".join(f"{key}: standard" for key in inputs.large)
    return Hint(
        "warning",
        "Large numbers are not scaled",
        f"Layers learn best from numbers near 1, and these columns are above 10: {columns}. Set {keys}.",
    )


def _unread(inputs: ReportInputs) -> Hint | None:
    if not inputs.unread:
        return None
    columns, kind = ", ".join(inputs.unread), inputs.setting("neighbors.kind")
    direct = "" if kind in {None, "direct"} else f" with neighbors.kind: direct, since kind {kind} has no attributes"
    return Hint(
        "idea",
        "The model does not read the edge attributes",
        f"graph.edge_features names {columns}, and only the layer gat_e reads them. Try model.kind: gat_e{direct}.",
    )


def _hubs(inputs: ReportInputs) -> Hint | None:
    graph = inputs.graph
    if not graph.reads_all or graph.max_in_degree <= MOST_READ:
        return None
    other = ", under train.strategy: mini-batch," if inputs.setting("train.strategy") == "cluster-batch" else ""
    return Hint(
        "idea",
        f"A node has {count_text(graph.max_in_degree)} in-edges, and all are read",
        "Such neighbourhoods dominate size and time. A fan-out (neighbors.sampling) limits "
        f"them{other}, and training and inference keep the same neighbours.",
    )


def _isolated(inputs: ReportInputs) -> Hint | None:
    alone = sum(nodes for low, _, nodes in inputs.graph.in_degree_histogram if low == 0)
    share = alone / max(inputs.graph.num_nodes, 1)
    if share <= MOST_ISOLATED:
        return None
    advice = " If edges mean the same both ways, set graph.reverse_edges: true."
    if inputs.setting("graph.reverse_edges"):
        advice = " No edge has their ids at either end."
    return Hint(
        "idea",
        f"{percent_text(share)} of the nodes have no in-edges",
        f"They are predicted from their own features alone.{advice}",
    )


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


def _lower_fan_out(inputs: ReportInputs) -> str:
    """Return how to read fewer neighbours: by a fan-out, or by a smaller one where the config has one."""
    if inputs.setting("neighbors.sampling.kind") in {None, "none"}:
        return "set a fan-out (neighbors.sampling)"
    return "lower the fan-out (neighbors.sampling)"


def _blow_up(inputs: ReportInputs) -> Hint | None:
    blow_up = inputs.blow_up
    if blow_up is None or not blow_up.ratio > MOST_BLOW_UP:
        return None
    fewer = _lower_fan_out(inputs)
    advice = f"{sentence(fewer)} or lower the number of hops"
    if blow_up.layout == "inline":
        advice = f"Use flat.layout: shared, which stores a node once per shard, or {fewer}"
    return Hint(
        "idea",
        f"GraphFlat writes {ratio_text(blow_up.ratio)} what it reads",
        f"{advice}. Larger shards (flat.shard_size) also let more targets share their neighbours.",
    )


def _waiting(inputs: ReportInputs) -> Hint | None:
    slowest = max(profiles_of(inputs), key=waiting_share, default=None)
    if slowest is None or not trainer_waits(slowest):
        return None
    if slowest.get("wait_seconds", 0.0) * len(inputs.curves) < LONG_WAIT:
        return None
    stored, built = (
        sum(slowest.get(f"{part}_seconds", 0.0) for part in parts) for parts in (("read", "decode"), ("build", "sums"))
    )
    advice = (
        "Most of the reader's time is reading and decoding shards: raise train.cache until it holds all of them, or "
        "train.prefetch where the store answers slowly."
        if stored > built
        else f"Most of the reader's time is building blocks: {_lower_fan_out(inputs)}, or raise train.workers, whose "
        f"ranks have a reader each.{_overlap(inputs)}"
    )
    return Hint("idea", "Training waits for its batches", f"{waiting_text(slowest)} {advice}")


def _overlap(inputs: ReportInputs) -> str:
    prefetch = inputs.setting("train.prefetch")
    if prefetch is not None and prefetch > 1:
        return ""
    return " A train.prefetch of 0 prepares batches in turn; 2 or more overlap."


def _slow_stage(inputs: ReportInputs) -> Hint | None:
    done = [stage for stage in inputs.stages if not stage.reused]
    total = sum(stage.seconds for stage in done)
    slowest = max(done, key=lambda stage: stage.seconds, default=None)
    if slowest is None or len(done) < LEAST_STAGES or total < LONG_RUN:
        return None
    if slowest.seconds < MOST_OF_TIME * total:
        return None
    advice = "The timeline shows its rounds; more cluster.workers help where rounds have many tasks."
    if not slowest.rounds:
        advice = "It runs in one process: train.threads and train.batch_size set its speed, train.epochs its length."
    return Hint(
        "idea",
        f"{sentence(slowest.name)} took {percent_text(slowest.seconds / total)} of the time",
        f"{seconds_text(slowest.seconds)} of {seconds_text(total)}. {advice}",
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
    _set_aside,
    _missing_split,
    _unlearnable,
    _large,
    _unread,
    _hubs,
    _isolated,
    _parity,
    _blow_up,
    _waiting,
    _slow_stage,
)


def find_hints(inputs: ReportInputs) -> tuple[Hint, ...]:
    """Return the hints that are true of this run, the gravest first."""
    found = [hint for rule in _RULES if (hint := rule(inputs)) is not None]
    return tuple(sorted(found, key=lambda hint: _GRAVEST_FIRST.index(hint.kind)))
