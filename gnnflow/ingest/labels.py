"""The label column of each label kind: which rows are faulty, which carry a label, and how labels are stored.

Shapes: R rows, W width of a list of labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.labels import UNLABELLED
from gnnflow.ingest.checks import Fault
from gnnflow.ingest.numbers import fits_float32
from gnnflow.storage.agreed_schema import holds_text
from gnnflow.storage.columns import combine, from_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.labels import LabelKind
    from gnnflow.ingest.schema import TableSchema

_SHOWN = 5  # names of classes in a refusal
_MOST = 2**62  # above any class number; holds in int64 and as a float

Column = Any  # pa.Array: pyarrow ships no complete types


@dataclass(frozen=True)
class _LabelColumn:
    """What is done with a label column of one kind. Every function takes the column as one Arrow array of R rows."""

    faults: Callable[[Column, TableSchema, GraphConfig], list[Fault]]
    labelled: Callable[[Column], Array]
    stored: Callable[[Column, TableSchema], Column]


def label_faults(table: pa.Table, schema: TableSchema, config: GraphConfig) -> list[Fault]:
    """Return the faults of the label column, which the table has."""
    column = combine(table.column(config.label_column))
    if config.classes is not None and holds_text(column.type):
        return _name_faults(column, config)
    return _COLUMNS[schema.label_kind].faults(column, schema, config)


def is_labelled(table: pa.Table, schema: TableSchema, config: GraphConfig) -> Array:
    """Return which rows of a table with a label column have a label [R]."""
    return _COLUMNS[schema.label_kind].labelled(_labels(table, config))


def label_column(table: pa.Table, schema: TableSchema, config: GraphConfig) -> pa.Array:
    """Return the labels of faultless rows as they are stored: int64 [R], float32 [R], or float32 [R, W]."""
    return _COLUMNS[schema.label_kind].stored(_labels(table, config), schema)


def rounding(table: pa.Table, schema: TableSchema, config: GraphConfig) -> dict[str, float]:
    """Return by how much a number to predict is missed at most where it is stored; nothing for other labels."""
    if schema.label_kind != "regression":
        return {}
    numbers = _float_labels(combine(table.column(config.label_column)))
    apart = np.abs(numbers - numbers.astype(np.float32))
    return {"label_rounding": float(np.max(apart, initial=0, where=~np.isnan(apart)))}


def _labels(table: pa.Table, config: GraphConfig) -> Column:
    """Return the label column of a table [R]; of names of classes their numbers, null where there is none."""
    column = combine(table.column(config.label_column))
    return column if config.classes is None or not holds_text(column.type) else _numbers_of(column, config.classes)


def _numbers_of(names: Column, classes: Sequence[str]) -> Column:
    return pc.index_in(names.cast(pa.string()), value_set=pa.array(classes, pa.string())).cast(pa.int64())


def _name_faults(column: Column, config: GraphConfig) -> list[Fault]:
    assert config.classes is not None
    unknown = pc.and_(pc.is_valid(column), pc.is_null(_numbers_of(column, config.classes)))
    reason = f"label is none of {', '.join(config.classes[:_SHOWN])}{' ...' if len(config.classes) > _SHOWN else ''}"
    fix = "List every class in graph.classes, or leave the label null."
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
    faults = [Fault(reason, config.label_column, rows, "Number classes from 0.")]
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
