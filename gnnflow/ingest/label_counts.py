"""What is counted of the labels of targets, and what follows for a model: its outputs, and the unit of numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, LabelUnit
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.moments import Moments, moments_of, scale_of
from gnnflow.storage.columns import to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from gnnflow.graph.labels import LabelKind
    from gnnflow.ingest.job import IngestJob
    from gnnflow.mapreduce.rounds import TaskRecord

_TRAIN = SPLITS.index("train")
_MANY_CLASSES = 4096
_MOST_LOST = 0.01  # of the deviation: an error that a model's own hides


def label_counts(rows: pa.Table, kind: LabelKind) -> dict[str, Any]:
    """Return what a task counts of the labels of its targets, rows with our columns label and split."""
    traits, label, is_train = LABEL_KINDS[kind], rows["label"], to_numpy(rows["split"]) == _TRAIN
    if traits.is_class:
        numbers = to_numpy(label)
        held = numbers[numbers >= 0]
        largest = int(held.max(initial=-1))
        if largest >= _MANY_CLASSES:  # more than a person would look for are not told apart
            return {"label_max": largest}
        trained_on = np.bincount(numbers[is_train & (numbers >= 0)]).tolist()
        return {"label_max": largest, "class_counts": np.bincount(held).tolist(), "train_class_counts": trained_on}
    if traits.has_classes:
        positives = (to_matrix(label)[is_train] > 0).sum(axis=0)
        return {"train_class_counts": positives.tolist()} if len(positives) <= _MANY_CLASSES else {}
    numbers = np.asarray(to_numpy(label), np.float64)[is_train]
    return {"label_moments": asdict(moments_of(numbers[:, None]))}


def num_classes_of(records: Sequence[TaskRecord], job: IngestJob) -> int:
    """Return how many outputs a model of these targets has."""
    if not LABEL_KINDS[job.tables.labelled.schema.label_kind].is_class:
        return job.tables.labelled.schema.label_width
    largest = max(record.counts.get("label_max", -1) for record in records)
    return job.config.classes_given or max(largest + 1, 2)


def class_counts_of(records: Sequence[TaskRecord], job: IngestJob) -> tuple[int, ...]:
    """Return how many targets each class has; nothing where there are very many, or no classes."""
    return _added("class_counts", records, job)


def train_class_counts_of(records: Sequence[TaskRecord], job: IngestJob) -> tuple[int, ...]:
    """Return how many train targets each class has, or each label of several; nothing where there are very many."""
    return _added("train_class_counts", records, job)


def _added(key: str, records: Sequence[TaskRecord], job: IngestJob) -> tuple[int, ...]:
    counted = [record.counts[key] for record in records if key in record.counts]
    if not counted or len(counted) < sum("label_max" in record.counts for record in records):
        return ()
    total = np.zeros(max(num_classes_of(records, job), *map(len, counted)), np.int64)
    for each in counted:
        total[: len(each)] += np.asarray(each, np.int64)
    return tuple(total.tolist()) if total.any() else ()


def check_digits(read: Sequence[TaskRecord], targets: Sequence[TaskRecord], job: IngestJob) -> None:
    """Raise TableError where float32, in which labels are stored, loses of numbers to predict what tells them apart.

    read: of the tasks that read the tables, targets: of those that counted labels.
    """
    lost, unit = max((record.counts.get("label_rounding", 0.0) for record in read), default=0.0), label_unit_of(targets)
    if unit is not None and lost > _MOST_LOST * unit.deviation:
        raise TableError(
            f"column {job.config.label_column!r}: float32 misses its numbers by up to {lost:.3g}, and they lie within "
            f"about {unit.deviation:.3g} of {unit.mean:.6g}",
            where=job.tables.labelled.uri,
            fix="Take a constant off them, such as the smallest, and add it to what is predicted.",
        )


def label_unit_of(records: Sequence[TaskRecord]) -> LabelUnit | None:
    """Return the unit of numbers to predict; None where labels are none, or none is trained on."""
    found = [Moments(**record.counts["label_moments"]) for record in records if "label_moments" in record.counts]
    if not any(part.rows for part in found):
        return None
    scale = scale_of(found)
    # As float32 holds them: how the graph is partitioned changes the last digits of float64 sums, and no model by that.
    return LabelUnit(float(np.float32(scale.mean[0])), float(np.float32(scale.deviation[0])))
