"""Counts what rows in fewer bytes need (`graph.storage`): the range of each column, and the errors of its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.errors import TableError
from gnnflow.graph.made_features import DEGREE_FEATURES
from gnnflow.graph.narrow import LARGEST, LARGEST_SPREAD, LEVELS, ColumnErrors, ColumnRanges, NarrowRows
from gnnflow.storage.columns import to_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from gnnflow.graph.arrays import FloatArray
    from gnnflow.graph.scales import ColumnScale
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.mapreduce.rounds import TaskRecord

_FIX = "Set graph.normalize to standard, or graph.storage to {}."


@dataclass(frozen=True)
class Forms:
    """The form of each type's stored rows, None for float32, sparse or no features; and ranges where it has steps."""

    rows: tuple[NarrowRows | None, ...]
    ranges: tuple[ColumnRanges | None, ...]


def count_range(column: pa.ChunkedArray) -> dict[str, Any]:
    """Return a task's smallest and largest number of each column, before these are scaled."""
    matrix = to_matrix(column, np.float64)
    if not len(matrix):
        return {}
    return {"range": [matrix.min(0).tolist(), matrix.max(0).tolist()]}


def forms_of(job: IngestJob, nodes: Sequence[TaskRecord], scales: Mapping[str, ColumnScale]) -> Forms:
    """Return the forms of node rows. nodes: the records that counted ranges. scales: of the tables' columns.

    Raises TableError for a column whose numbers the kind cannot hold.
    """
    kind, rows, ranges = job.config.storage, list[NarrowRows | None](), list[ColumnRanges | None]()
    for number, (name, table) in enumerate(zip(job.table_names.nodes, job.tables.nodes, strict=True)):
        if kind == "float32" or not (table.schema.features or table.schema.degrees):
            rows.append(None)
            ranges.append(None)
            continue
        found = _range(nodes[number :: job.graph.num_types], scales.get(name), table.schema.feature_width)
        held = job.ranges.get(name) or found
        if kind not in LEVELS or name not in job.ranges:
            _check(kind, found, table.schema, where=table.uri)
        rows.append(NarrowRows.of(kind, table.schema.stored_width, held))
        ranges.append(held if kind in LEVELS else None)
    return Forms(tuple(rows), tuple(ranges))


def _range(records: Sequence[TaskRecord], scale: ColumnScale | None, width: int) -> ColumnRanges:
    """Return the range of each column of a table as it is stored; zeros without rows."""
    counted = [record.counts["range"] for record in records if "range" in record.counts]
    if not counted:
        return ColumnRanges((0.0,) * width, (0.0,) * width)
    low, high = np.min([each for each, _ in counted], axis=0), np.max([each for _, each in counted], axis=0)
    if scale is not None:
        low, high = ((each - np.asarray(scale.mean)) / np.asarray(scale.deviation) for each in (low, high))
    # rounded as the numbers are
    return ColumnRanges(*(tuple(each.astype(np.float32).tolist()) for each in (low, high)))


def _check(kind: str, found: ColumnRanges, schema: NodeSchema, *, where: str) -> None:
    low, high = np.asarray(found.low, np.float64), np.asarray(found.high, np.float64)
    if kind in LEVELS:
        size, limit, other = high - low, LARGEST_SPREAD, "float32"
        told = "spans {:.6g}, and graph.storage: {} holds spans up to {:.6g}"
    else:
        size, limit = np.maximum(np.abs(low), np.abs(high)), LARGEST[kind]  # type: ignore[index]
        other = "bfloat16" if kind == "float16" else "float32"
        told = "holds {:.6g}, and graph.storage: {} holds numbers up to {:.6g}"
    if (size > limit).any():
        place = int(np.argmax(size))
        text = told.format(size[place], kind, limit)
        raise TableError(f"column {_names(schema)[place]!r} {text}", where=where, fix=_FIX.format(other))


def column_errors(matrix: FloatArray, stored: FloatArray) -> dict[str, Any]:
    """Return a task's errors of each column: the largest, and the sum. stored: the numbers as they are read again."""
    if not len(matrix):
        return {}
    apart = np.abs(matrix - stored)
    ends = [matrix.min(0).tolist(), matrix.max(0).tolist()]
    return {"errors": [apart.max(0).tolist(), apart.sum(0, dtype=np.float64).tolist(), len(matrix), *ends]}


def errors_of(job: IngestJob, written: Sequence[TaskRecord]) -> dict[str, ColumnErrors]:
    """Return the errors of each node table whose rows are narrow. written: the records of writing nodes."""
    found = {}
    for number, (name, table) in enumerate(zip(job.table_names.nodes, job.tables.nodes, strict=True)):
        records = written[number :: job.graph.num_types]
        if counted := [record.counts["errors"] for record in records if "errors" in record.counts]:
            largest, sums, rows, low, high = zip(*counted, strict=True)
            spread = np.max(high, axis=0) - np.min(low, axis=0)
            figures = (np.max(largest, axis=0), np.sum(sums, axis=0) / sum(rows), spread)
            columns = (tuple(each.tolist()) for each in figures)
            found[name] = ColumnErrors(job.config.storage, _names(table.schema), *columns)
    return found


def _names(schema: NodeSchema) -> tuple[str, ...]:
    names = tuple(name for part in schema.features for name in part.outputs)
    return (*names, *DEGREE_FEATURES) if schema.degrees else names
