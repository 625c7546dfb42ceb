"""What to look at next: advice that a figure of this run supports, and nothing else.

Every rule below is one function that returns its hint or None. A rule speaks only when its figure is there
and over its limit, so a run with nothing to say gets an empty list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np

from gnnflow.graph.errors import listed
from gnnflow.graph.labels import lower_is_better
from gnnflow.graph.run_facts import has_stages
from gnnflow.report.formats import count_text, metric_name, percent_text, ratio_text, score_text, seconds_text, sentence
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.pictures.pipeline import waiting_share, waiting_text
from gnnflow.report.pictures.quality import confusion_of

MOST_BLOW_UP = 10.0
MOST_GAP = 0.1  # of a score in 0..1, between train and valid or valid and test
LEAST_GAIN = 0.01  # over the baseline without edges
MOST_RISE = 0.1  # of the valid loss over its lowest, as a share
MOST_ISOLATED = 0.2  # share of nodes without in-edges
LEAST_TARGETS = 10  # of a class, before its recall says anything
LONG_RUN = 60.0  # seconds
MOST_OF_TIME = 0.6  # share of one stage
MOST_WAITING = 0.2  # share of an epoch for which the trainer waits for its reader
LONG_WAIT = 5.0  # seconds of all epochs
LEAST_EPOCHS = 3  # before their order says anything
LEAST_STAGES = 3  # before the share of one says anything


@dataclass(frozen=True)
class Hint:
    """One piece of advice: what was seen and what to do about it."""

    kind: Literal["problem", "warning", "idea"]
    title: str
    text: str


def find_hints(inputs: ReportInputs) -> tuple[Hint, ...]:
    """Return the hints that are true of this run, the gravest first."""
    rules = (
        _parity,
        _diverged,
        _quarantine,
        _missing_split,
        _no_gain,
        _train_gap,
        _test_gap,
        _rising_loss,
        _last_epoch,
        _lost_classes,
        _large,
        _unread,
        _blow_up,
        _hubs,
        _isolated,
        _waiting,
        _slow_stage,
    )
    found = [hint for rule in rules if (hint := rule(inputs)) is not None]
    order = ("problem", "warning", "idea")
    return tuple(sorted(found, key=lambda hint: order.index(hint.kind)))


def _parity(inputs: ReportInputs) -> Hint | None:
    parity = inputs.parity
    if parity is None or parity.passed:
        return None
    return Hint(
        "problem",
        "The parity certificate failed",
        f"Predictions differ by up to {parity.max_difference:.1e} from the k-hop path, and {parity.limit:.0e} is "
        "allowed. Do not publish them; check that training and inference sample the same way (infer.sampling).",
    )


def _diverged(inputs: ReportInputs) -> Hint | None:
    for row in inputs.curves:
        if not math.isfinite(row.get("train_loss", 0.0)):
            return Hint(
                "problem",
                f"The loss stopped being a number at epoch {count_text(row.get('epoch', 0))}",
                "Lower train.lr, or look for extreme feature values (graph.normalize: standard).",
            )
    return None


def _quarantine(inputs: ReportInputs) -> Hint | None:
    total = sum(inputs.quarantined.values())
    if not total:
        return None
    parts = ", ".join(f"{count_text(number)} {name}" for name, number in inputs.quarantined.items() if number)
    return Hint(
        "warning",
        f"{count_text(total)} rows were quarantined",
        f"Not used: {parts}. The quarantine tables name each row and its reason.",
    )


def _missing_split(inputs: ReportInputs) -> Hint | None:
    splits = inputs.graph.split_counts
    empty = [name for name in ("valid", "test") if splits and not splits.get(name)]
    if not empty:
        return None
    names = " and no ".join(empty)
    why = "the best epoch cannot be told" if "valid" in empty else "the score on unseen nodes is unknown"
    return Hint("warning", f"No {names} split", f"Without it {why}. Mark some nodes in the split column.")


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
        f"{score_text(inputs.baseline[key])} without. Neighbours may not share labels: try graph.reverse_edges, "
        "another model.kind or model.head: jumping.",
    )


def _train_gap(inputs: ReportInputs) -> Hint | None:
    gap, name = _score_gap(inputs, "train", "valid")
    if not gap > MOST_GAP:
        return None
    return Hint(
        "warning",
        "The model remembers the train split",
        f"{sentence(name)} is {score_text(gap)} better on train than on valid. Raise model.dropout or "
        "train.weight_decay, lower model.hidden, or set train.patience.",
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
        f"From {score_text(float(finite.min()))} to {score_text(float(finite[-1]))} at the end. Set train.patience to "
        "stop there, or raise model.dropout or train.weight_decay.",
    )


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


def _lost_classes(inputs: ReportInputs) -> Hint | None:
    confusion = confusion_of(inputs)
    if confusion is None:
        return None
    support = confusion.counts.sum(axis=1)
    lost = np.flatnonzero((support >= LEAST_TARGETS) & (np.diag(confusion.counts) == 0))
    if not len(lost):
        return None
    names = listed([confusion.names[index] for index in lost], at_most=3)
    noun = "One class is" if len(lost) == 1 else f"{len(lost)} classes are"
    return Hint(
        "warning",
        f"{noun} never found",
        f"Not one target of {names} is predicted right. Try train.class_weight: balanced.",
    )


def _large(inputs: ReportInputs) -> Hint | None:
    found = {key: columns for key, columns in inputs.large.items() if columns}
    if not found:
        return None
    columns = listed([*chain.from_iterable(found.values())])
    keys = " and ".join(f"{key}: standard" for key in found)
    return Hint(
        "warning",
        "Large numbers are not scaled",
        f"Layers learn best from numbers near 1, and these columns are above 10: {columns}. Set {keys}.",
    )


def _unread(inputs: ReportInputs) -> Hint | None:
    if not inputs.unread:
        return None
    columns = ", ".join(inputs.unread)
    return Hint(
        "idea",
        "The model does not read the edge attributes",
        f"graph.edge_features names {columns}, and of the layers gat_e alone reads them. Try model.kind: gat_e.",
    )


def _blow_up(inputs: ReportInputs) -> Hint | None:
    blow_up = inputs.blow_up
    if blow_up is None or not blow_up.ratio > MOST_BLOW_UP:
        return None
    advice = "Lower the fan-out (neighbors.sampling) or the number of hops"
    if blow_up.layout == "inline":
        advice = "Use flat.layout: shared, which stores a node once per shard, or lower neighbors.sampling's fan-out"
    return Hint(
        "idea",
        f"GraphFlat writes {ratio_text(blow_up.ratio)} what it reads",
        f"{advice}. Larger shards (flat.shard_size) also let more targets share their neighbours.",
    )


def _hubs(inputs: ReportInputs) -> Hint | None:
    graph = inputs.graph
    if not graph.num_hubs:
        return None
    noun = "One hub" if graph.num_hubs == 1 else f"{count_text(graph.num_hubs)} hubs"
    return Hint(
        "idea",
        f"{noun} beyond {count_text(graph.hub_threshold)} in-edges",
        "Their neighbourhoods dominate size and time wherever they are reached. A fan-out (neighbors.sampling) bounds "
        "them, and leaves training and inference with the same neighbours.",
    )


def _isolated(inputs: ReportInputs) -> Hint | None:
    alone = sum(nodes for low, _, nodes in inputs.graph.in_degree_histogram if low == 0)
    share = alone / max(inputs.graph.num_nodes, 1)
    if share <= MOST_ISOLATED:
        return None
    return Hint(
        "idea",
        f"{percent_text(share)} of the nodes have no in-edges",
        "They are predicted from their own features alone. If edges mean the same both ways, set "
        "graph.reverse_edges: true.",
    )


def _waiting(inputs: ReportInputs) -> Hint | None:
    slowest = max(inputs.profiles, key=waiting_share, default=None)
    if slowest is None or has_stages(slowest) or waiting_share(slowest) < MOST_WAITING:
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
        else "Most of the reader's time is building blocks: lower neighbors.sampling's fan-out, or raise "
        "train.workers, whose ranks have a reader each. A train.prefetch of 0 prepares batches in turn; 2 or more "
        "overlap."
    )
    return Hint("idea", "Training waits for its batches", f"{waiting_text(slowest)} {advice}")


def _slow_stage(inputs: ReportInputs) -> Hint | None:
    done = [stage for stage in inputs.stages if not stage.reused]
    total = sum(stage.seconds for stage in done)
    slowest = max(done, key=lambda stage: stage.seconds, default=None)
    if slowest is None or len(done) < LEAST_STAGES or total < LONG_RUN:
        return None
    if slowest.seconds < MOST_OF_TIME * total:
        return None
    advice = "The timeline shows which of its rounds; more cluster.workers help where rounds have many tasks."
    if not slowest.rounds:
        advice = "It runs in one process: train.threads and train.batch_size decide how fast, train.epochs how long."
    return Hint(
        "idea",
        f"{sentence(slowest.name)} took {percent_text(slowest.seconds / total)} of the time",
        f"{seconds_text(slowest.seconds)} of {seconds_text(total)}. {advice}",
    )
