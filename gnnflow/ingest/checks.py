"""Row checks: each returns the rows it faults, so that one place decides whether to stop or to quarantine.

A row with several faults is counted under the first. Shapes: R rows, V values in all lists, B faulty rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.columns import combine, take_rows, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.ingest.schema import ColumnPart
    from gnnflow.storage.tables import Chunk

_SHOWN = 3
_PLACE_SHIFT = 40


@dataclass(frozen=True)
class Fault:
    """Rows of a table that break the contract, why, and what would mend them."""

    reason: str
    column: str
    rows: IntArray
    fix: str


def null_fault(table: pa.Table, column: str) -> Fault:
    """Fault rows whose column is null."""
    rows = np.flatnonzero(to_numpy(pc.is_null(table.column(column))))
    return Fault("null id", column, rows, "Give every row an id.")


def number_faults(table: pa.Table, parts: Sequence[ColumnPart], what: str) -> list[Fault]:
    """Fault rows with a null, a NaN or infinity, or a list of another length than the first."""
    faults: list[Fault] = []
    for part in parts:
        column = combine(table.column(part.name))
        if part.is_list:
            # length of each row's list [R], -1 where it is null
            lengths = np.nan_to_num(to_numpy(pc.list_value_length(column)).astype(np.float64), nan=-1)
            ragged = np.flatnonzero(lengths != part.width)
            faults.append(
                Fault(f"{what} list is null or not {part.width} long", part.name, ragged, "Write lists of one length.")
            )
        faults.append(
            Fault(f"{what} is null, NaN or infinite", part.name, _not_finite(column, part), "Fill or drop these rows.")
        )
    return faults


def _not_finite(column: pa.Array, part: ColumnPart) -> IntArray:
    """Return the rows with a value that is not a finite number, ascending and once each."""
    if not part.is_list:
        # the values [R], NaN where null; a column of nulls alone has no type to cast
        values = (
            to_numpy(column.cast(pa.float64())) if column.null_count < len(column) else np.full(len(column), np.nan)
        )
        return np.flatnonzero(~np.isfinite(values))
    # all lists one after another [V], and the row that each value belongs to [V]
    parents = to_numpy(pc.list_parent_indices(column))
    values = to_numpy(pc.list_flatten(column).cast(pa.float64()))
    return np.unique(parents[~np.isfinite(values)]).astype(np.int64)


def sparse_faults(table: pa.Table, stem: str, width: int, *, has_value: bool) -> list[Fault]:
    """Fault sparse rows with a null list, an index outside 0..width-1, or values that do not match their indices."""
    index = combine(table.column(f"{stem}_index"))
    # all indices one after another [V], and the row that each belongs to [V]
    flat = to_numpy(pc.list_flatten(index).cast(pa.float64()))
    parents = to_numpy(pc.list_parent_indices(index))
    outside = np.unique(parents[~((flat >= 0) & (flat < width))]).astype(np.int64)
    faults = [
        Fault(
            "feature list is null", f"{stem}_index", np.flatnonzero(to_numpy(pc.is_null(index))), "Write an empty list."
        ),
        Fault(f"feature index outside 0..{width - 1}", f"{stem}_index", outside, "Set graph.feature_dim."),
    ]
    if has_value:
        value = combine(table.column(f"{stem}_value"))
        # length of each row's list of indices and of values [R], -1 where it is null
        lengths = [np.nan_to_num(to_numpy(pc.list_value_length(c)).astype(np.float64), nan=-1) for c in (index, value)]
        # all values one after another [V], and the row that each belongs to [V]
        bad = to_numpy(pc.list_flatten(value).cast(pa.float64()))
        parents = to_numpy(pc.list_parent_indices(value))
        faults += [
            Fault(
                "as many values as indices needed",
                f"{stem}_value",
                np.flatnonzero(lengths[0] != lengths[1]),
                "Align them.",
            ),
            Fault(
                "feature value is null, NaN or infinite",
                f"{stem}_value",
                np.unique(parents[~np.isfinite(bad)]).astype(np.int64),
                "Fill or drop these rows.",
            ),
        ]
    return faults


def split_faults(table: pa.Table, column: str, labelled: Array) -> list[Fault]:
    """Fault splits other than train, valid, test or null, and rows that have a split but no label."""
    text = combine(table.column(column)).cast(pa.string())
    known = to_numpy(pc.or_(pc.is_null(text), pc.is_in(text, value_set=pa.array(SPLITS))))
    given = to_numpy(pc.is_valid(text))
    return [
        Fault(
            "split is none of train, valid, test", column, np.flatnonzero(~known), "Write train, valid, test or null."
        ),
        Fault("has a split but no label", column, np.flatnonzero(given & known & ~labelled), "Leave its split null."),
    ]


def weight_fault(table: pa.Table, column: str) -> Fault:
    """Fault weights that are null, NaN, infinite or negative."""
    values = combine(table.column(column))
    numbers = to_numpy(values.cast(pa.float64())) if values.null_count < len(values) else np.full(len(values), np.nan)
    rows = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    return Fault("weight is null, NaN, infinite or negative", column, rows, "Write weights of zero or more.")


def input_positions(chunk_number: int, rows: Array) -> IntArray:
    """Return one integer per row that remembers its chunk and row through every exchange."""
    return (np.int64(chunk_number) << _PLACE_SHIFT) + rows.astype(np.int64)


def separate(
    table: pa.Table,
    faults: Sequence[Fault],
    *,
    chunks: Sequence[Chunk],
    place: IntArray,
    policy: Literal["fail", "quarantine"],
) -> tuple[IntArray, pa.Table]:
    """Return (rows to keep, quarantined rows with their reason and place). Raises TableError under `fail`."""
    # number of the first fault of each row [R], -1 where there is none
    reason = np.full(table.num_rows, -1)
    for code, fault in reversed(list(enumerate(faults))):
        reason[fault.rows] = code
    # faulty rows [B]
    bad = np.flatnonzero(reason >= 0)
    if len(bad) and policy == "fail":
        raise _error(table, faults[reason[bad[0]]], chunks, place)
    texts = np.array([fault.reason for fault in faults] or [""], dtype=object)
    quarantined = take_rows(table, bad) if len(bad) else table.slice(0, 0)
    quarantined = quarantined.append_column("reason", pa.array(texts[reason[bad]], pa.string()))
    # file and first row of every chunk, and the number of each faulty row's chunk [B]
    files = np.array([chunk.uri for chunk in chunks] or [""], dtype=object)
    first = np.array([chunk.first_row for chunk in chunks] or [0], np.int64)
    number = place[bad] >> _PLACE_SHIFT
    quarantined = quarantined.append_column("file", pa.array(files[number], pa.string()))
    # each faulty row's number within its file [B]
    row = first[number] + (place[bad] & ((1 << _PLACE_SHIFT) - 1))
    return np.flatnonzero(reason < 0), quarantined.append_column("row", pa.array(row))


def _error(table: pa.Table, fault: Fault, chunks: Sequence[Chunk], place: IntArray) -> TableError:
    # the first faulty rows in input order, and their numbers within the file
    shown = fault.rows[np.argsort(place[fault.rows], kind="stable")][:_SHOWN]
    chunk = chunks[int(place[shown[0]] >> _PLACE_SHIFT)]
    rows = (place[shown] & ((1 << _PLACE_SHIFT) - 1)) + chunk.first_row
    values = [str(value)[:60] for value in table.column(fault.column).take(pa.array(shown)).to_pylist()]
    listed = ", ".join(f"row {row}: {value}" for row, value in zip(rows, values, strict=True))
    return TableError(
        f"column {fault.column!r}: {fault.reason} in {len(fault.rows)} row(s) of this piece ({listed})",
        where=chunk.place,
        fix=f"{fault.fix} Or set graph.on_bad_rows: quarantine to set such rows aside.",
    )
