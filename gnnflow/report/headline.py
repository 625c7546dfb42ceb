"""The top of the report: one sentence that answers "is it good?", and tiles with the figures behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gnnflow.graph.errors import listed
from gnnflow.graph.labels import is_bound, lower_is_better
from gnnflow.graph.splits import SPLITS
from gnnflow.report.formats import (
    count_text,
    interval_text,
    percent_text,
    score_cell,
    score_text,
    seconds_text,
    sentence,
    short_count,
    signed_text,
)
from gnnflow.report.inputs import Parity, ReportInputs
from gnnflow.report.judging import NO_EDGES, Outcome, baseline_name
from gnnflow.report.pictures.classes import mean_costs
from gnnflow.report.pictures.decisions import hits_text, list_gain

Mood = Literal["plain", "good", "bad", "absent"]

_ROUTES = "Same scores by another route"
_APART = "Predictions differ from scores computed as in training"
_MOODS: Mapping[Outcome, Mood] = {"better": "good", "no better": "plain", "worse": "bad"}
_FIRST_LINKS = 10
_USES = {
    "train": "were learned from",
    "valid": "chose the best epoch",
    "test": "were kept apart and judge the model",
}
_TRAINING_FIGURES = frozenset({"train.epochs", "train.best_epoch"})


@dataclass(frozen=True)
class Tile:
    """One figure in large type, its name and a note for comparison; note_tells puts the mood on the note."""

    label: str
    figure: str
    note: str
    mood: Mood = "plain"
    note_tells: bool = False
    is_path: bool = False


@dataclass(frozen=True)
class MetricRow:
    """One metric over the splits, and the baseline's on the headline's split."""

    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class MetricTable:
    """Scores by split, the judged one first, and of baselines; then other figures as name and value.

    bounded: some scores have an interval.
    """

    splits: tuple[str, ...]
    rows: tuple[MetricRow, ...]
    baselines: tuple[MetricRow, ...]
    others: tuple[tuple[str, str], ...]
    bounded: bool = False


def verdict(inputs: ReportInputs) -> str:
    """Return the run in one or two sentences."""
    key = inputs.headline_key
    if key is None:
        first = "This run computed no score on labelled nodes."
    else:
        first = f"{sentence(inputs.metric_name(key))} is {score_text(inputs.metrics[key])}{_against(inputs)}."
    failed = inputs.parity is not None and not inputs.parity.passed
    return f"{first} {_APART} and must not be used." if failed else first


def subject(inputs: ReportInputs) -> str:
    """Return what is predicted, for how many, and from which tables."""
    graph = inputs.graph
    noun = f"node of type {graph.target}" if graph.target else "node"
    edge = f"an edge{f' {graph.target_relation}' if graph.target_relation else ''}"
    what = {
        "single": f"which of {count_text(graph.num_classes)} classes a {noun} has",
        "multi": f"which of {count_text(graph.num_classes)} labels a {noun} has",
        "regression": f"a number for a {noun}",
        "link": f"which {noun} {edge} leads to",
    }.get(inputs.label_kind, "")
    if not what or not graph.num_nodes:
        return ""
    if inputs.task == "edge":
        what = what.replace(f"a {noun}", edge)
    label = inputs.setting("graph.label")
    named = f" (column {label})" if isinstance(label, str) and inputs.label_kind != "link" else ""
    held = sorted(inputs.tables.items(), key=lambda table: not table[0].startswith("nodes"))
    rows = [f"{name} ({count_text(each.rows_out)} rows)" for name, each in held]
    tables = f", from the tables {listed(rows, at_most=6)}" if rows else ""
    counts = {split: graph.split_counts[split] for split in SPLITS if graph.split_counts.get(split)}
    parts = [f"{count_text(count)} {_USES[split]}" for split, count in counts.items()]
    targets = (
        "edges" if inputs.label_kind == "link" else "labelled edges" if inputs.task == "edge" else "labelled nodes"
    )
    split = f" Of the {targets}, {', '.join(parts)}." if parts else ""
    return f"The model predicts {what}{named}{tables}.{split}"


def tiles(inputs: ReportInputs) -> tuple[Tile, ...]:
    """Return the headline figures: score, best baseline, what the predictions are worth, and where they are."""
    found = (_score_tile(inputs), _baseline_tile(inputs), _worth_tile(inputs), _predictions_tile(inputs))
    return tuple(tile for tile in found if tile is not None)


def engineering_tiles(inputs: ReportInputs) -> tuple[Tile, ...]:
    """Return the figures of how the run was computed: scores by another route, and time."""
    return (_parity_tile(inputs), _time_tile(inputs))


def _worth_tile(inputs: ReportInputs) -> Tile | None:
    """Return how far predictions can be acted on: a list's hits, wrong predictions, or hits among candidates."""
    scores = inputs.scores
    if scores is None:
        return None
    if (gain := list_gain(inputs)) is not None:
        k, hits = gain
        one = inputs.class_name(scores.positive)
        note = f"of class {one} among the first {count_text(k)} {scores.split} targets by score"
        return Tile("A list in the order of scores", f"{hits_text(hits)} of {count_text(scores.positives)}", note)
    if scores.hits:
        k, hits = [(k, hits) for k, hits in scores.hits if k <= _FIRST_LINKS][-1]
        note = f"of {scores.split} links are among the first {k} of {count_text(scores.candidates)} candidates"
        return Tile("Found", percent_text(hits / scores.targets), note)
    if (costs := mean_costs(inputs)) is not None:
        decided, likeliest = map(score_text, costs)
        note = f"per {scores.split} target; the likeliest class would cost {likeliest}"
        return Tile("Cost of decisions", decided, note)
    if inputs.confusion is not None:
        wrong = int(inputs.confusion.sum() - inputs.confusion.trace())
        note = f"of {count_text(scores.targets)} {scores.split} targets ({percent_text(wrong / scores.targets)})"
        return Tile("Wrong predictions", count_text(wrong), note)
    return None


def metric_table(inputs: ReportInputs) -> MetricTable:
    """Return every metric of the run and of its baseline, scores by split."""
    found = {key: value for key, value in inputs.metrics.items() if not is_bound(key)}
    present = {key.partition(".")[0] for key in found}
    splits = [split for split in reversed(SPLITS) if split in present]
    scores = [key for key in found if key.partition(".")[0] in splits and _is_score(key)]
    names = list(dict.fromkeys(key.partition(".")[2] for key in scores))
    rows = [
        MetricRow(
            sentence(inputs.metric_name(name)), tuple(score_cell(inputs.metrics, f"{split}.{name}") for split in splits)
        )
        for name in names
    ]
    baselines = [
        MetricRow(
            f"{sentence(inputs.metric_name(name))}, {'without edges' if of == NO_EDGES else baseline_name(of, name)}",
            tuple(score_cell(held, f"{split}.{name}") for split in splits),
        )
        for of, held in inputs.every_baseline.items()
        for name in dict.fromkeys(key.partition(".")[2] for key in held if _is_score(key) and not is_bound(key))
    ]
    others = [
        (sentence(inputs.metric_name(key)), _value(key, value)) for key, value in found.items() if key not in scores
    ]
    return MetricTable(
        tuple(splits), tuple(rows), tuple(baselines), tuple(others), bounded=len(found) < len(inputs.metrics)
    )


def _is_score(key: str) -> bool:
    """Return whether a figure of a split is a score; figures of training have the prefix of its split too."""
    return "second" not in key and key not in _TRAINING_FIGURES


def _against(inputs: ReportInputs) -> str:
    found = inputs.judgement
    return "" if found is None else f", {found.against} ({found.baseline_score})"


def _score_tile(inputs: ReportInputs) -> Tile:
    key = inputs.headline_key
    if key is None:
        return Tile("Score", "none", "no labelled valid or test nodes", "absent")
    split, _, name = key.partition(".")
    interval = interval_text(inputs.metrics, key)
    notes = [f"95 % interval {interval}"] if interval else []
    notes += [
        f"{other} {score_text(inputs.metrics[f'{other}.{name}'])}"
        for other in ("valid", "train")
        if other != split and f"{other}.{name}" in inputs.metrics
    ]
    return Tile(sentence(inputs.metric_name(key)), score_text(inputs.metrics[key]), ", ".join(notes))


def _baseline_tile(inputs: ReportInputs) -> Tile:
    key, judged = inputs.headline_key, inputs.judgement
    if inputs.baselines and judged is not None:
        mood = _MOODS[judged.outcome]
        note = f"{baseline_name(judged.baseline, judged.key)}: the model is {judged.outcome}"
        note += f"; {judged.chance}" if judged.chance else ""
        return Tile("Best baseline", score_text(judged.beside), note, mood, note_tells=True)
    if inputs.baseline is None:
        return Tile("Without edges", "not run", "set train.baseline: true to compare", "absent")
    if key is None or key not in inputs.baseline:
        return Tile("Without edges", "none", "it has no score to compare", "absent")
    bare = inputs.baseline[key]
    gain = inputs.metrics[key] - bare
    if score_text(inputs.metrics[key]) == score_text(bare):
        return Tile("Without edges", score_text(bare), "no difference with edges")
    helps = gain < 0 if lower_is_better(key) else gain > 0
    note = f"{signed_text(gain)} with edges"
    return Tile("Without edges", score_text(bare), note, "good" if helps else "bad", note_tells=True)


def _parity_tile(inputs: ReportInputs) -> Tile:
    parity = inputs.parity
    if parity is None:
        advice = "" if inputs.setting("infer.parity_samples") else ": set infer.parity_samples"
        return Tile(_ROUTES, "none", f"no target was scored again{advice}", "absent")
    note = (
        f"{count_text(parity.samples)} targets scored twice: they differ by at most {parity.max_difference:.1e}, "
        f"{parity.limit:.0e} is allowed{_over(parity)}"
    )
    return Tile(_ROUTES, *(("Yes", note, "good") if parity.passed else ("No", note, "bad")))


def _over(parity: Parity) -> str:
    """Return the neighbours of both paths where they differ from training's."""
    return ", both over all edges, where training used a sample" if parity.compared == "all edges" else ""


def _time_tile(inputs: ReportInputs) -> Tile:
    if not inputs.stages:
        return Tile("Time", "unknown", "no stage recorded its time", "absent")
    reused = sum(stage.reused for stage in inputs.stages)
    note = f"{len(inputs.stages)} stages"
    if reused:
        saved = f", saving {seconds_text(inputs.saved_seconds)}" if inputs.saved_seconds else ""
        note = f"{reused} of {len(inputs.stages)} stages reused{saved}"
    return Tile("Time", seconds_text(inputs.spent_seconds), note)


def _predictions_tile(inputs: ReportInputs) -> Tile:
    if not inputs.predictions_uri:
        return Tile("Predictions", "none written", "run the infer stage to get them", "absent", is_path=True)
    return Tile("Predictions", inputs.predictions_uri, "Parquet, with your own ids", is_path=True)


def _value(key: str, value: float) -> str:
    if key.endswith("_per_second"):
        return f"{short_count(value)}/s"
    if "second" in key:
        return seconds_text(value)
    if "share" in key:
        return percent_text(value)
    return count_text(value) if float(value).is_integer() else score_text(value)
