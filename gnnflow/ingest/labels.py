"""Labels of each kind: faulty rows, labelled rows, the stored column, and the counts that shape a model's outputs.

Shapes: R rows, W width of a list of labels.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, UNLABELLED, LabelUnit
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.checks import Fault
from gnnflow.ingest.classes import given_labels, label_text
from gnnflow.ingest.moments import Moments, moments_of, scale_of
from gnnflow.ingest.numbers import fits_float32
from gnnflow.storage.columns import combine, from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.labels import LabelKind
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.schema import TableSchema
    from gnnflow.mapreduce.rounds import TaskRecord

_TRAIN = SPLITS.index("train")
_MANY_CLASSES = 4096
_MOST_LOST = 0.01  # of the deviation: a model's error hides it
_SHOWN = 5  # names of classes in a refusal
_MOST = 2**62  # above any class number; holds in int64 and as a float

Column = Any  # pa.Array: pyarrow ships no complete types


@dataclass(frozen=True)
class _LabelColumn:
    """Functions over a label column of one kind. Each takes the column as one Arrow array of R rows."""

    faults: Callable[[Column, TableSchema, GraphConfig], list[Fault]]
    labelled: Callable[[Column], Array]
    stored: Callable[[Column, TableSchema], Column]


def label_faults(table: pa.Table, schema: TableSchema, config: GraphConfig) -> list[Fault]:
    """Return the faults of the label column, which the table has."""
    column = given_labels(combine(table.column(config.label_column)), config)
    if schema.labels_are_names:
        return _name_faults(column, schema, config)
    return _COLUMNS[schema.label_kind].faults(column, schema, config)


def is_labelled(table: pa.Table, schema: TableSchema, config: GraphConfig) -> Array:
    """Return which rows of a table with a label column have a label [R]."""
    return _COLUMNS[schema.label_kind].labelled(_labels(table, schema, config))


def label_column(table: pa.Table, schema: TableSchema, config: GraphConfig) -> pa.Array:
    """Return the labels of faultless rows as they are stored: int64 [R], float32 [R], or float32 [R, W]."""
    return _COLUMNS[schema.label_kind].stored(_labels(table, schema, config), schema)


def rounding(table: pa.Table, schema: TableSchema, config: GraphConfig) -> dict[str, float]:
    """Return the largest rounding error of numbers to predict; nothing for other labels."""
    if schema.label_kind != "regression":
        return {}
    numbers = _float_labels(_labels(table, schema, config))
    apart = np.abs(numbers - numbers.astype(np.float32))
    return {"label_rounding": float(np.max(apart, initial=0, where=~np.isnan(apart)))}


def _labels(table: pa.Table, schema: TableSchema, config: GraphConfig) -> Column:
    """Return the label column of a table [R]; of names of classes their numbers, null where there is none."""
    column = given_labels(combine(table.column(config.label_column)), config)
    return _numbers_of(label_text(column), schema.class_names) if schema.labels_are_names else column


def _numbers_of(names: Column, classes: Sequence[str]) -> Column:
    return pc.index_in(names, value_set=pa.array(classes, pa.string())).cast(pa.int64())


def _name_faults(column: Column, schema: TableSchema, config: GraphConfig) -> list[Fault]:
    names, classes = label_text(column), schema.class_names
    unknown = pc.and_(pc.is_valid(names), pc.is_null(_numbers_of(names, classes)))
    reason = f"label is none of {', '.join(classes[:_SHOWN])}{' ...' if len(classes) > _SHOWN else ''}"
    fix = "List every class in graph.classes, what is no label in graph.unlabelled, or leave the label null."
    return [Fault(reason, config.label_column, np.flatnonzero(to_numpy(unknown)), fix)]


def _class_numbers(column: Column) -> IntArray:
    """Return the class number of each row [R], -1 where null or NaN, the nearest integer of a float."""
    if pa.types.is_floating(column.type):
        numbers = np.nan_to_num(_float_labels(column), nan=UNLABELLED)
        return np.rint(np.clip(numbers, -_MOST, _MOST)).astype(np.int64)
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, pa.scalar(_MOST, pa.uint64()), skip_nulls=False)
    return np.asarray(to_numpy(column.cast(pa.int64()).fill_null(UNLABELLED)))


def _float_labels(column: Column) -> FloatArray:
    """Return each row's number [R], NaN where null."""
    return np.asarray(to_numpy(column.cast(pa.float64()).fill_null(np.nan)))


def _class_faults(column: Column, schema: TableSchema, config: GraphConfig) -> list[Fault]:
    label, most = _class_numbers(column), config.classes_given
    high = np.inf if most is None else most - 1
    rows = np.flatnonzero((label < UNLABELLED) | (label > high))
    allowed = "-1 (unlabelled) or more" if most is None else f"-1 (unlabelled) to {most - 1}"
    reason = f"label out of range: allowed is {allowed}"
    fix = "Number classes from 0, or set graph.classes: distinct, which numbers the labels there are."
    if most is not None:
        fix = "Number them from 0"
        fix += (
            ", or leave graph.num_classes out where labels are numbers."
            if config.num_classes
            else ", or set graph.classes: distinct, which numbers the labels there are."
        )
    faults = [Fault(reason, config.label_column, rows, fix)]
    if pa.types.is_floating(column.type):
        numbers = _float_labels(column)
        broken = np.flatnonzero(~np.isnan(numbers) & (numbers != np.rint(numbers)))
        fix = "Write whole numbers, or leave graph.num_classes out where the label is a number to predict."
        faults.append(Fault("label is no class number", config.label_column, broken, fix))
    return faults


def _list_faults(column: Column, schema: TableSchema, config: GraphConfig) -> list[Fault]:
    # length of each row's list [R]; a row without one is unlabelled and no fault
    lengths = np.nan_to_num(to_numpy(pc.list_value_length(column)).astype(np.float64), nan=schema.label_width)
    # all lists one after another, and the row each value belongs to
    values = to_numpy(pc.list_flatten(column).cast(pa.float64()))
    parents = to_numpy(pc.list_parent_indices(column))
    outside = np.unique(parents[(values != 0) & (values != 1)]).astype(np.int64)
    ragged = np.flatnonzero(lengths != schema.label_width)
    name = config.label_column
    return [
        Fault(f"label list is not {schema.label_width} long", name, ragged, "Write lists of one length."),
        Fault("label out of range: several labels are a list of 0 and 1", name, outside, "Write 0 or 1."),
    ]


def _has_number(column: Column) -> Array:
    given = to_numpy(pc.is_valid(column))
    return np.asarray(given & ~np.isnan(to_numpy(column.fill_null(np.nan).cast(pa.float64()))))


def _label_matrix(column: Column, schema: TableSchema) -> Column:
    """Return the lists as float32 [R, W], zeros where a row has none."""
    matrix = np.zeros((len(column), schema.label_width), np.float32)
    given = to_numpy(pc.list_flatten(column).cast(pa.float32())).reshape(-1, schema.label_width)
    matrix[to_numpy(pc.is_valid(column))] = given
    return from_matrix(matrix)


def _number_faults(column: Column, schema: TableSchema, config: GraphConfig) -> list[Fault]:
    rows = np.flatnonzero(~np.isnan(_float_labels(column)) & ~fits_float32(column))
    reason = "label is infinite or beyond what float32 holds (3.4e38)"
    return [Fault(reason, config.label_column, rows, "Scale the label, or leave it null.")]


def _has_class(column: Column) -> Array:
    return np.asarray(_class_numbers(column) != UNLABELLED)


def _has_list(column: Column) -> Array:
    return to_numpy(pc.is_valid(column))


def _classes(column: Column, schema: TableSchema) -> Column:
    return pa.array(_class_numbers(column))


def _numbers(column: Column, schema: TableSchema) -> Column:
    return column.cast(pa.float32()).fill_null(np.nan)


_COLUMNS: dict[LabelKind, _LabelColumn] = {
    "single": _LabelColumn(_class_faults, _has_class, _classes),
    "multi": _LabelColumn(_list_faults, _has_list, _label_matrix),
    "regression": _LabelColumn(_number_faults, _has_number, _numbers),
}


def label_counts(rows: pa.Table, kind: LabelKind) -> dict[str, Any]:
    """Return the counts of a task's labels. rows: targets with the store's columns label and split."""
    traits, label, is_train = LABEL_KINDS[kind], rows["label"], to_numpy(rows["split"]) == _TRAIN
    if traits.is_class:
        numbers = to_numpy(label)
        held = numbers[numbers >= 0]
        largest = int(held.max(initial=-1))
        if largest >= _MANY_CLASSES:  # nobody reads counts of so many classes
            return {"label_max": largest}
        split, labelled = to_numpy(rows["split"]), numbers >= 0
        own = {
            f"{name}_class_counts": np.bincount(numbers[labelled & (split == code)]).tolist()
            for code, name in enumerate(SPLITS)
        }
        return {"label_max": largest, "class_counts": np.bincount(held).tolist(), **own}
    if traits.has_classes:
        positives = (to_matrix(label)[is_train] > 0).sum(axis=0)
        return {"train_class_counts": positives.tolist()} if len(positives) <= _MANY_CLASSES else {}
    numbers = np.asarray(to_numpy(label), np.float64)[is_train]
    return {"label_moments": asdict(moments_of(numbers[:, None]))}


def num_classes_of(records: Sequence[TaskRecord], job: IngestJob) -> int:
    """Return the number of a model's outputs for these targets."""
    if not LABEL_KINDS[job.tables.labelled.schema.label_kind].is_class:
        return job.tables.labelled.schema.label_width
    schema, largest = job.tables.labelled.schema, max(record.counts.get("label_max", -1) for record in records)
    return job.config.classes_given or max(largest + 1, len(schema.class_names) if schema.labels_are_names else 0, 2)


def class_counts_of(records: Sequence[TaskRecord], job: IngestJob) -> tuple[int, ...]:
    """Return the number of targets per class; nothing where there are very many classes, or none."""
    return _added("class_counts", records, job)


def split_class_counts_of(split: str, records: Sequence[TaskRecord], job: IngestJob) -> tuple[int, ...]:
    """Return the number of a split's targets per class, of train also per label; nothing where there are very many."""
    return _added(f"{split}_class_counts", records, job)


def _added(key: str, records: Sequence[TaskRecord], job: IngestJob) -> tuple[int, ...]:
    counted = [record.counts[key] for record in records if key in record.counts]
    if not counted or len(counted) < sum("label_max" in record.counts for record in records):
        return ()
    # targets of each class, over all tasks
    total = np.zeros(max(num_classes_of(records, job), *map(len, counted)), np.int64)
    for each in counted:
        total[: len(each)] += np.asarray(each, np.int64)
    return tuple(total.tolist()) if total.any() else ()


def check_digits(read: Sequence[TaskRecord], targets: Sequence[TaskRecord], job: IngestJob) -> None:
    """Raise TableError where float32, which stores labels, rounds away the differences of numbers to predict.

    read: records of the tasks that read the tables; targets: of the tasks that counted labels.
    """
    lost, unit = max((record.counts.get("label_rounding", 0.0) for record in read), default=0.0), label_unit_of(targets)
    labelled = job.tables.labelled
    if unit is not None and lost > _MOST_LOST * unit.deviation:
        raise TableError(
            f"column {labelled.config.label_column!r}: float32 rounds its numbers by up to {lost:.3g}, too much for a "
            f"standard deviation of {unit.deviation:.3g} around {unit.mean:.6g}",
            where=labelled.uri,
            fix="Subtract a constant, such as the smallest number, and add it to the predictions.",
        )


def label_unit_of(records: Sequence[TaskRecord]) -> LabelUnit | None:
    """Return the unit of numbers to predict; None for other labels, or without train targets."""
    found = [Moments(**record.counts["label_moments"]) for record in records if "label_moments" in record.counts]
    if not any(part.rows for part in found):
        return None
    scale = scale_of(found)
    # rounded to float32: the last digits of float64 sums depend on the partitions, and a model must not
    return LabelUnit(float(np.float32(scale.mean[0])), float(np.float32(scale.deviation[0])))
