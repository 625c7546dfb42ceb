"""Figures of a model's predictions: metrics where the tables have labels, and their distribution.

Everything is read from the predictions themselves, file by file, so a run's and a later month's are judged alike.
Targets that the model was trained on do not count in metrics, whatever split these tables give them, and neither do the
ones that chose its epoch and its threshold where others have labels. A distribution is the share of each predicted
class and the counts of the scores, by which `score_drift.py` compares two months.

Shapes: N targets, C classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.facts import ColumnCounts
from gnnflow.graph.labels import (
    BOUNDS,
    DECISION_COLUMN,
    LABEL_COLUMN,
    LABEL_KINDS,
    SPLIT_COLUMN,
    UNLABELLED,
    is_bound,
    metric_text,
    names_of_classes,
    of_class,
)
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.statistics import CODES, codes_of, counted_column, upper_ends
from gnnflow.stages.trained_targets import TRAIN, VALID, SeenValues, TrainedTargets
from gnnflow.storage.columns import combine, to_matrix, to_numpy
from gnnflow.storage.run_folder import prediction_files
from gnnflow.storage.tables import read_artifact_table
from gnnflow.train.decisions import Deciding
from gnnflow.train.measured import decided_by, measured_of
from gnnflow.train.metrics import class_means, metrics_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gnnflow.graph.arrays import Array, BoolArray, FloatArray, IntArray, KeyArray
    from gnnflow.graph.labels import LabelKind

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_TWO = 2
_SHOWN = 5  # classes that are printed
_NAME_WIDTH = 28
_EMBEDDINGS = (
    "embeddings are not judged: scoring holds out no edge of these tables. `gnnflow score-pairs` scores pairs by them"
)
_SMALLEST = float(np.finfo(np.float32).tiny)
PREFIX = "score."
"""Begins the names of metrics of scored targets."""


@dataclass(frozen=True)
class Figures:
    """The figures of some predictions.

    scored: the column that `mean`, `quantiles` and `scores` describe, "" for links. shares: of each predicted class or
    label. metrics: `score.<metric>`, of the targets that have a label and that training did not have; empty where none
    are. headline: the metric that chose the model. notes: sentences on what was not measured. class_means: the metrics
    that are means over classes. classes: the ones that the judged labels have, which such a mean is over. top: the
    number of targets of precision and recall at k. decided: targets of each decided class, or of the class that is
    decided for; rule: the decision in words, "" where the likeliest class is decided. measured: what metrics are of
    that differ between models, as `measured_of` tells it; decided_by: the rule without its threshold. chose_model: the
    judged targets chose the model, so that metrics may be too good. metric_class: see `TrainFacts`.
    """

    rows: int
    labelled: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    headline: str = ""
    notes: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    scored: str = ""
    mean: float | None = None
    quantiles: dict[str, float] = field(default_factory=dict)
    scores: ColumnCounts | None = None
    class_means: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    top: int = 0
    decided: dict[str, int] = field(default_factory=dict)
    rule: str = ""
    measured: dict[str, str] = field(default_factory=dict)
    decided_by: str = ""
    chose_model: bool = False
    metric_class: str = ""

    @staticmethod
    def read(held: Mapping[str, Any]) -> Figures:
        """Return figures from a document."""
        scores = held.get("scores")
        counted = None if scores is None else ColumnCounts(**{**scores, **_tuples(scores)})
        lists = {key: tuple(held.get(key, ())) for key in ("notes", "class_means", "classes")}
        return Figures(**{**held, **lists, "scores": counted})

    def as_document(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def spread(self) -> dict[str, float]:
        """The quantiles, ascending: a document sorts their names as text."""
        return dict(sorted(self.quantiles.items(), key=lambda each: int(each[0].removesuffix("%"))))

    def lines(self) -> Iterator[str]:
        """Yield sentences for a person, the same for figures that were read from a document, whose keys are sorted."""
        yield from self._metric_lines()
        if self.metrics:
            yield f"labels: metrics are of {self.labelled:,} targets that have one"
        yield from self.notes
        if self.rule:
            yield f"decided: {self.decided_text}"
        if self.counts:
            shares = (f"{name} {count / max(self.rows, 1):.2%}" for name, count in _most(self.counts))
            yield f"predicted: {', '.join(shares)}"
        if self.mean is not None:
            spread = ", ".join(f"{name} {value:.4g}" for name, value in self.spread.items())
            yield f"{self.scored}: mean {self.mean:.4g}, {spread}"

    @property
    def decided_text(self) -> str:
        """The size of the decided list, or of each class, and the rule behind it."""
        each = [f"{count:,}" if len(self.decided) == 1 else f"{name} {count:,}" for name, count in _most(self.decided)]
        return f"{', '.join(each)} of {self.rows:,} targets; {self.rule}" if each else self.rule

    def _metric_lines(self) -> Iterator[str]:
        named = {name: name + of_class(name, self.metric_class) for name in sorted(self.metrics) if not is_bound(name)}
        width = max([_NAME_WIDTH, *map(len, named.values())])
        for name, text in named.items():
            bounds = [metric_text(self.metrics[name + side]) for side in BOUNDS if name + side in self.metrics]
            interval = f"({' to '.join(bounds)})" if bounds else ""
            chosen = "the metric that chose the model" if name == self.headline else ""
            yield f"{text:<{width}}{metric_text(self.metrics[name]):>9}  {interval:<20}  {chosen}".rstrip()


@dataclass(frozen=True)
class Model:
    """The properties of the model that scored.

    names: of its classes. headline: the metric that chose it. deciding: how decisions between classes are measured.
    trained: the targets that it was trained on or chosen by; None where these are no longer known. metric_class: see
    `TrainFacts`.
    """

    kind: LabelKind
    names: tuple[str, ...]
    headline: str
    deciding: Deciding | None = None
    trained: TrainedTargets | None = None
    metric_class: str = ""


def figures_of(folder: str, model: Model, values: SeenValues | None = None) -> Figures:
    """Return the figures of the predictions in a run's folder, or in the artifact of a scoring.

    values: of the scored edges; None where these are not known, so that an edge is known by its ends alone.
    """
    traits = LABEL_KINDS[model.kind]
    parts = prediction_files(folder)
    if not traits.has_labels:  # embeddings have no distribution that a person could read
        rows = sum(read_artifact_table(folder, name, ["id"]).num_rows for name in parts)
        return Figures(rows, notes=(_EMBEDDINGS,))
    gathered = _Gathered(model)
    for name in parts:
        gathered.add(read_artifact_table(folder, name), None if values is None else values.of(name))
    return gathered.figures()


class _Gathered:
    """Counts over the files of predictions, and the labelled rows that metrics need."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rows = 0
        self.unknown = 0
        self.trained = 0
        self.total = 0.0
        self.name = ""
        self.predicted: IntArray = np.zeros(0, np.int64)
        self.codes: IntArray = np.zeros(CODES, np.int64)
        self.decided: dict[str, int] = {}
        # of judged rows the logits, the labels, and whether the target chose the model
        self.kept: list[tuple[FloatArray, Array, BoolArray]] = []

    def add(self, table: pa.Table, values: KeyArray | None) -> None:
        """Count the rows of a file. values: of its edges."""
        traits = LABEL_KINDS[self.model.kind]
        column = table[traits.columns[-1]]
        # probabilities [N, C], or values [N, 1]
        scores = to_matrix(column) if traits.has_classes else to_numpy(column)[:, None]
        self.rows += len(scores)
        self.name, described = _described(scores, self.model)
        self.total += float(described.sum(dtype=np.float64))
        self.codes += np.bincount(codes_of(described), minlength=CODES)
        if traits.has_classes:
            guess = scores.argmax(axis=1) if traits.is_class and len(scores) else np.nonzero(scores >= 1 / _TWO)[1]
            counted = np.bincount(guess, minlength=scores.shape[1])
            self.predicted = counted + (self.predicted if len(self.predicted) else 0)
        if self.model.deciding is not None and DECISION_COLUMN in table.column_names:
            self._count_decisions(table, self.model.deciding.positive)
        if LABEL_COLUMN in table.column_names:
            self._keep(table, scores, values)

    def _count_decisions(self, table: pa.Table, positive: int | None) -> None:
        """Count the targets that are decided for the class `positive`, or for each class where it is None."""
        counted = combine(table[DECISION_COLUMN]).value_counts().to_pylist()
        found = {each["values"]: each["counts"] for each in counted}
        if positive is not None:
            found = {} if None in found else {self._names()[positive]: found.get(True, 0)}
        for name, count in found.items():
            self.decided[str(name)] = self.decided.get(str(name), 0) + count

    def _names(self) -> list[str]:
        return names_of_classes(self.model.names, len(self.predicted))

    def _keep(self, table: pa.Table, scores: FloatArray, values: KeyArray | None) -> None:
        label = combine(table[LABEL_COLUMN])
        trained, has = self.model.trained, to_numpy(pc.is_valid(label))
        splits = _own_splits(table) if trained is None else trained.splits_of(table, values)
        learned = splits == TRAIN
        self.trained += int((has & learned).sum())
        rows = np.flatnonzero(has & ~learned)
        labels, known = _numbers(label.take(rows), self.model, scores.shape[1])
        self.unknown += int((~known).sum())
        logits = _logits(scores[rows[known]], self.model.kind)
        self.kept.append((logits, labels[known], splits[rows[known]] == VALID))

    def figures(self) -> Figures:
        """Return the figures of all files."""
        notes: list[str] = []
        if self.trained:
            text = "was trained on these targets"
            if self.model.trained is None:
                text = (
                    "may have learned them: they are in the split train of these tables, and the graph store of its "
                    "training can no longer be read"
                )
            notes.append(f"{self.trained:,} labels are not counted, since the model {text}")
        if self.unknown:
            notes.append(f"{self.unknown:,} labels are of classes that the model does not know, and are not counted")
        names, deciding, rule = self._names(), self.model.deciding, ""
        if deciding is not None and deciding.decision is not None and not deciding.is_likeliest:
            rule = deciding.decision.tell(names[deciding.positive or 0] if names else "")
        values: dict[str, float] = {}
        classes: tuple[str, ...] = ()
        judged = self._judged(notes)
        labelled = 0 if judged is None else len(judged.labels)
        if judged is not None and labelled:
            logits, labels = judged.logits, judged.labels
            found = metrics_of(
                logits,
                labels,
                label_kind=self.model.kind,
                intervals=True,
                deciding=deciding,
                class_names=names,
                positive=None if deciding is None else deciding.positive,
            )
            values, notes = found.named("score"), [*notes, *found.notes]
            classes = tuple(names[number] for number in np.flatnonzero(_has_class(labels, len(names))))
        means = class_means(self.model.kind, len(names), None if deciding is None else deciding.positive)
        total = max(self.rows, 1)
        running = np.cumsum(self.codes)
        ends = np.searchsorted(running, np.array(_QUANTILES) * self.rows)
        return Figures(
            self.rows,
            labelled,
            values,
            PREFIX + self.model.headline,
            tuple(notes),
            {name: int(count) for name, count in zip(names, self.predicted, strict=True)},
            self.name,
            self.total / total,
            {f"{share:.0%}": float(value) for share, value in zip(_QUANTILES, upper_ends(ends), strict=True)},
            counted_column(self.name, self.codes),
            tuple(name for name in (PREFIX + each for each in means) if name in values),
            classes,
            0 if deciding is None else deciding.top,
            self.decided if rule else {},
            rule,
            {PREFIX + name: text for name, text in measured_of(deciding, names).items()} if labelled else {},
            decided_by(deciding, names) if names else "",
            labelled > 0 and judged is not None and judged.chose_model,
            self.model.metric_class,
        )

    def _judged(self, notes: list[str]) -> _Judged | None:
        """Return the targets that metrics are of, and note which are left out; None without labels.

        Targets that chose the model are judged only where no others have a label.
        """
        if not self.kept:
            return None
        logits, labels, chose = (np.concatenate(each) for each in zip(*self.kept, strict=True))
        count = int(chose.sum())
        if not count:
            return _Judged(logits, labels)
        why = "of the split valid of training, which chose the model"
        if count == len(labels):
            notes.append(f"all judged targets are {why}: metrics may be too good")
            return _Judged(logits, labels, chose_model=True)
        notes.append(f"{count:,} labels are not counted, since their targets are {why}")
        return _Judged(logits[~chose], labels[~chose])


@dataclass(frozen=True)
class _Judged:
    """The logits [N, C] and labels of the targets that metrics are of. chose_model: all of them did."""

    logits: FloatArray
    labels: Array
    chose_model: bool = False


def _own_splits(table: pa.Table) -> IntArray:
    """Return the splits that predictions give their targets [N], as places in SPLITS; -1 for none."""
    return to_numpy(pc.fill_null(pc.index_in(combine(table[SPLIT_COLUMN]), value_set=pa.array(SPLITS)), -1))


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_SHOWN]


def _described(scores: FloatArray, model: Model) -> tuple[str, FloatArray]:
    """Return the one number of each prediction whose distribution is told [N], and its name."""
    if model.kind == "regression":
        return "value", np.ascontiguousarray(scores[:, 0])
    classes = scores.shape[1]
    of_one = 1 if classes == _TWO else None
    if model.deciding is not None and model.deciding.decision is not None:
        of_one = model.deciding.positive
    if model.kind == "single" and of_one is not None:
        return f"probability of {names_of_classes(model.names, classes)[of_one]}", np.ascontiguousarray(
            scores[:, of_one]
        )
    return "highest probability", np.asarray(scores.max(axis=1, initial=0))


def _numbers(label: Any, model: Model, width: int) -> tuple[Array, Array]:
    """Return labels as `metrics_of` reads them [N], and which the model knows [N]."""
    traits = LABEL_KINDS[model.kind]
    if traits.is_list:
        labels = to_matrix(label)
        return labels, np.full(len(labels), labels.shape[1] == width)
    if not traits.is_class:
        return to_numpy(label), np.ones(len(label), bool)
    # by name, also where only the model or only the tables have names: class 1 of other labels is another class
    names = pa.array(names_of_classes(model.names, width), pa.string())
    found = pc.index_in(label.cast(pa.string()), value_set=names)
    numbers = to_numpy(found.fill_null(UNLABELLED)).astype(np.int64)
    return numbers, numbers != UNLABELLED


def _has_class(labels: Array, num_classes: int) -> Array:
    """Return the classes [C], or labels, that some targets have; none for numbers."""
    if not num_classes:
        return np.zeros(0, bool)
    return np.any(labels > 0, axis=0) if labels.ndim > 1 else np.bincount(labels, minlength=num_classes) > 0


def _logits(scores: FloatArray, kind: LabelKind) -> FloatArray:
    """Return outputs that give these scores: published predictions are judged by their probabilities."""
    if kind == "regression":
        return scores
    likely = np.log(np.maximum(scores, _SMALLEST))
    return np.asarray(likely if kind == "single" else likely - np.log(np.maximum(1 - scores, _SMALLEST)))


def _tuples(held: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(held[key]) for key in ("codes", "counts")}
