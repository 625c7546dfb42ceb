"""Distributions of feature columns: exact counts per value, merged over partitions, thinned for the manifest.

A value counts under its code: the upper 16 bits of its float32, put in the order of the numbers. So bins are the same
for every table and run, need no pass for the smallest and largest value, and merge by addition; a bin is 0.8 percent of
its value wide at most. Counts do not depend on partitions or row order. A column with few codes is kept whole; of
others the manifest keeps the smallest code and the ends of fifty ranges that hold equally many rows, with exact counts.

Of wide tables 256 columns are kept, evenly spaced from the first to the last. Sparse features count as one column: the
number of entries per row. Columns are seen as the table holds them (after `normalize: row`, before `standard`).

Drift of a column is its population stability index over deciles of the earlier table, or over classes: PSI = sum over
bins of (p_new - p_old) ln(p_new / p_old). By custom 0.1 is worth a look and 0.25 is a shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.facts import ColumnCounts
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.native import count_codes
from gnnflow.storage.columns import to_matrix, to_numpy, to_ragged

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import TaskRecord

CHANNEL = "statistics"
MAX_COLUMNS = 256
TYPE_MARK = ": "
"""Stands between a type's name and its column's, where a graph has types."""
MAX_RANGES = 50
ZERO_CODE = 1 << 15
"""The code of zero."""
CODES = 1 << 16
"""The number of codes."""
_COUNTED_AT_ONCE = 32  # columns, so that counts take 8 MiB
_MANY_ROWS = 1 << 12
_SIGN = np.uint32(1 << 31)
_BEYOND = 3.5e38
_DECILES = np.arange(1, 10) / 10
_PRIOR = 0.5  # rows added to each bin, so that an empty one has a logarithm


def marked(name: str, column: str) -> str:
    """Return a column's name after its type's or relation's, which is empty where the graph has no types."""
    return f"{name}{TYPE_MARK}{column}" if name else column


def rows_up_to(column: ColumnCounts, codes: IntArray) -> FloatArray:
    """Return how many rows have at most each of these codes; between the ends of a range in proportion."""
    # the last code of each bin [B], and the rows up to and with it [B]
    ends, total = np.asarray(column.codes), np.cumsum(column.counts)
    if column.exact:
        return np.asarray(np.r_[0, total][np.searchsorted(ends, codes, side="right")], np.float64)
    return np.asarray(np.interp(upper_ends(codes), upper_ends(ends), total, left=0.0), np.float64)


def codes_of(values: FloatArray) -> Array:
    """Return the code of each float32, uint16: smaller numbers have smaller or equal codes."""
    bits = (values + np.float32(0)).view(np.uint32)  # adding zero makes -0.0 and 0.0 one number
    # integers in the order of the numbers: a negative number's bits are flipped, another's move above them
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return np.asarray(ordered >> np.uint32(16), np.uint16)


def upper_ends(codes: IntArray) -> FloatArray:
    """Return the smallest number above all of a code's; beyond the largest float32 a little more than that."""
    # the smallest bits of the next code; then codes_of backwards
    ordered = np.clip(codes + 1, 0, CODES - 1).astype(np.uint32) << np.uint32(16)
    with np.errstate(invalid="ignore"):  # bits beyond infinity are NaNs, and are replaced below
        values = np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).view(np.float32).astype(np.float64)
    return np.asarray(np.nan_to_num(values, nan=_BEYOND, posinf=_BEYOND, neginf=-_BEYOND))


def column_names(schema: NodeSchema) -> list[str]:
    """Return the names of a type's columns that are counted."""
    if not schema.has_features:
        return []
    if schema.sparse:
        return [f"entries of {schema.sparse} in a row"]
    names = [name for part in schema.features for name in part.outputs]
    return [names[position] for position in _chosen(schema)]


def _chosen(schema: NodeSchema) -> IntArray:
    width = schema.feature_width
    return np.unique(np.linspace(0, width - 1, min(width, MAX_COLUMNS)).astype(np.int64))


def count_rows(rows: pa.Table, schema: NodeSchema, *, partitions: int, first: int = 0) -> Emit:
    """Return one partition's counts, each column sent to the partition that merges it.

    first: the number of the first of these columns among the columns of all types.
    """
    # of each column its distinct codes and their rows
    counted: list[tuple[Array, IntArray]] = []
    if schema.sparse:
        lengths = np.diff(to_ragged(rows["x_index"])[0]).astype(np.float32)
        counted = _counts(lengths[:, None], np.zeros(1, np.int64))
    elif schema.has_features:
        with np.errstate(over="ignore"):  # numbers that are scaled may be beyond float32, and count as the largest
            counted = _counts(to_matrix(rows["x"]), _chosen(schema))
    # the column of each (code, rows) pair
    column = np.repeat(first + np.arange(len(counted)), [len(codes) for codes, _ in counted])
    table = pa.table(
        {
            "column": column,
            "code": np.concatenate([np.zeros(0, np.uint16), *(codes for codes, _ in counted)]),
            "rows": np.concatenate([np.zeros(0, np.int64), *(counts for _, counts in counted)]),
        }
    )
    return Emit(CHANNEL, table, column % partitions)


def _counts(matrix: FloatArray, positions: IntArray) -> list[tuple[Array, IntArray]]:
    """Return the distinct codes of each column at a position, ascending, and their rows."""
    found: list[tuple[Array, IntArray]] = []
    for first in range(0, len(positions), _COUNTED_AT_ONCE):
        some = positions[first : first + _COUNTED_AT_ONCE]
        counted = count_codes(matrix, some) if len(matrix) >= _MANY_ROWS else None
        if counted is None:
            columns = (codes_of(np.ascontiguousarray(matrix[:, position])) for position in some.tolist())
            found += [np.unique(codes, return_counts=True) for codes in columns]
        else:
            codes = map(np.flatnonzero, counted)
            found += [(each.astype(np.uint16), rows[each]) for each, rows in zip(codes, counted, strict=True)]
    return found


def merge_counts(index: int, inbox: Inbox) -> TaskOutput:
    """Add up the partitions' counts of the columns that came here, and thin them."""
    rows = inbox.read(CHANNEL).combine_chunks()
    # one number per (column, code), the distinct ones [D] and the rows of each [D]
    key = to_numpy(rows["column"]) * CODES + to_numpy(rows["code"])
    distinct, position = np.unique(key, return_inverse=True)
    total = np.bincount(position, to_numpy(rows["rows"]), minlength=len(distinct)).astype(np.int64)
    # the columns that came here, and where each one's codes lie among the distinct ones
    columns, sizes = np.unique(distinct // CODES, return_counts=True)
    bounds = offsets_of(sizes)
    merged = {
        str(column): _thinned(distinct[start:stop] % CODES, total[start:stop])
        for column, start, stop in zip(columns.tolist(), bounds[:-1], bounds[1:], strict=True)
    }
    return TaskOutput(counts={"columns": merged})


def _thinned(codes: IntArray, counts: IntArray) -> dict[str, Any]:
    if exact := len(codes) <= MAX_RANGES:
        kept = np.arange(len(codes))
    else:
        # rows up to each code, and up to the end of each of MAX_RANGES equal shares
        running = np.cumsum(counts)
        wanted = running[-1] * np.arange(1, MAX_RANGES + 1) / MAX_RANGES
        # codes that end a range: the smallest, and where a share ends
        kept = np.unique(np.r_[0, np.searchsorted(running, wanted)])
        counts = np.diff(running[kept], prepend=0)
    return {"codes": codes[kept].tolist(), "counts": counts.tolist(), "exact": exact}


def counted_column(name: str, rows: IntArray) -> ColumnCounts:
    """Return the thinned counts of a column. rows: of each code [CODES]."""
    codes = np.flatnonzero(rows)
    held = _thinned(codes, rows[codes])
    return ColumnCounts(name, tuple(held["codes"]), tuple(held["counts"]), held["exact"])


def statistics_of(records: Sequence[TaskRecord], names: Sequence[str]) -> tuple[ColumnCounts, ...]:
    """Return the counts of every counted column, from the records of the merging round. names: of all, in order."""
    merged = {int(column): held for record in records for column, held in record.counts["columns"].items()}
    return tuple(
        ColumnCounts(names[column], tuple(held["codes"]), tuple(held["counts"]), held["exact"])
        for column, held in sorted(merged.items())
    )


@dataclass(frozen=True)
class Drift:
    """The index, and how much of it chance alone gives tables of this size: its mean plus four deviations."""

    psi: float
    chance: float


def drift_of(before: ColumnCounts, after: ColumnCounts) -> Drift:
    """Return how far a column moved. Equal columns give exactly 0."""
    cuts = _cuts(before)
    return _moved(_rows(before, cuts), _rows(after, cuts))


def class_drift(before: Mapping[Hashable, int], after: Mapping[Hashable, int]) -> Drift:
    """Return how far labels moved. A class with targets in either table is a bin."""
    held = [name for name in {**before, **after} if before.get(name) or after.get(name)]
    old, new = (np.array([counts.get(name, 0) for name in held], np.float64) for counts in (before, after))
    return _moved(old, new)


def _moved(old: Array, new: Array) -> Drift:
    """Return the drift of rows by bin.

    Without a shift PSI is distributed as (1 / rows before + 1 / rows after) times chi-squared with bins - 1 degrees of
    freedom (Yurdakul, Statistical properties of the population stability index, 2018), which gives `chance`.
    """
    degrees = len(old) - 1
    chance = (degrees + 4 * np.sqrt(2 * degrees)) * (1 / max(old.sum(), 1) + 1 / max(new.sum(), 1))
    # share of the rows in each bin, before and after [bins]
    before, after = ((held + _PRIOR) / (held + _PRIOR).sum() for held in (old, new))
    return Drift(float(np.sum((after - before) * np.log(after / before))), float(chance))


def _cuts(column: ColumnCounts) -> IntArray:
    """Return the codes that end a bin: the deciles, ties once; rows above the last are one more bin.

    Where the smallest value alone fills a decile, smaller values get a separate bin: otherwise a constant column
    that falls would look unchanged.
    """
    # rows up to each code [B], and the codes in which a decile ends
    running = np.cumsum(column.counts)
    codes = np.asarray(column.codes, np.int64)
    cuts = np.unique(codes[np.searchsorted(running, _DECILES * running[-1])])
    return np.r_[codes[0] - 1, cuts] if cuts[0] == codes[0] else cuts


def _rows(column: ColumnCounts, cuts: IntArray) -> Array:
    """Return the rows of each bin, of which there is one more than there are cuts."""
    return np.asarray(np.diff(np.r_[0.0, rows_up_to(column, cuts), float(column.rows)]))
