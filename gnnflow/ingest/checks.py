"""Row checks: each returns the rows it faults, so that one place decides whether to stop or to quarantine.

A row with several faults is counted under the first. Shapes: R rows, V values in all lists, B faulty rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import find_forms, floats_of, readings_of
from gnnflow.config.environment import config_line
from gnnflow.config.graph_section import GraphConfig
from gnnflow.graph.encodings import NumericalState
from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import share_text
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.fields import NO_WEIGHT, SPLIT_FIX
from gnnflow.ingest.numbers import MOST_SCALED, can_be_scaled, fits_float32
from gnnflow.storage.columns import combine, take_rows, to_numpy
from gnnflow.storage.user_tables import holds_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.encodings import ColumnState
    from gnnflow.graph.scales import ColumnScale
    from gnnflow.ingest.fields import ColumnPart
    from gnnflow.storage.user_tables import Chunk

Column = Any  # pa.Array: pyarrow ships no complete types

_DECIMAL_COMMA = r"^\s*[+-]?[0-9]{1,3}(\.?[0-9]{3})*,[0-9]+\s*$"
_SHOWN, _LETTERS = 3, 60
_PLACE_SHIFT = 40
_INT64_MAX = 2**63 - 1
_MOST_WHOLE = 2.0**53  # floats below it count by ones
_MOST_BAD = GraphConfig.model_fields["max_bad_rows"].default
_MOST_ASIDE = 0.5  # a larger share of rows is a table that is read wrongly, which no quarantine mends
_SPLIT_OF_NONE = "Write its label, leave its split null, or set task.split: {kind: random}."
_RESERVED = ("reason", "file", "row")
_MOST_IDS = 1 << 24  # of a graph with more, only ids of the first partitions are compared
_SPACES = r"[\s\p{Z}\x{200b}\x{feff}]+"
_NUMBER = r"^\+?0*([0-9]+)(?:\.0*)?$"
# a difference between two ids, and the change that makes them equal then
_DIFFERENCES: tuple[tuple[str, Callable[[Column], Column]], ...] = (
    ("in spaces", partial(pc.replace_substring_regex, pattern=_SPACES, replacement="")),
    ("in its Unicode form", partial(pc.utf8_normalize, form="NFKC")),
    ("in case", pc.utf8_lower),
    ("in how a number is written", partial(pc.replace_substring_regex, pattern=_NUMBER, replacement=r"\1")),
)


@dataclass(frozen=True)
class Fault:
    """Rows of a table that break the contract, why, and what would mend them.

    column: its name in the user's table. held_in: the column that holds its values here, where the name differs.
    """

    reason: str
    column: str
    rows: IntArray
    fix: str
    held_in: str = ""


@dataclass(frozen=True)
class Separated:
    """Rows of a table after its checks.

    kept: numbers of the faultless rows [K], or a slice where these are all rows. bad: the other rows, with their
    reason and place. reasons: column, reason, number of rows and of labelled rows of each fault, every row under its
    first.
    """

    kept: IntArray | slice
    bad: pa.Table
    reasons: tuple[tuple[str, str, int, int], ...]

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of quarantined rows for a task's record."""
        return {"rows_quarantined": self.bad.num_rows, "reasons": self.reasons}


def id_faults(table: pa.Table, column: str) -> list[Fault]:
    """Fault rows whose id is null or beyond int64, or a float that is no whole number."""
    ids = combine(table.column(column))
    missing = np.flatnonzero(to_numpy(pc.is_null(ids))) if ids.null_count else np.zeros(0, np.int64)
    faults = [Fault("null id", column, missing, "Give every row an id.")]
    if pa.types.is_uint64(ids.type):
        beyond = to_numpy(pc.fill_null(pc.greater(ids, pa.scalar(_INT64_MAX, pa.uint64())), fill_value=False))
        faults.append(Fault("id is beyond int64", column, np.flatnonzero(beyond), "Write such ids as strings."))
    if pa.types.is_floating(ids.type):
        numbers = np.asarray(to_numpy(ids.cast(pa.float64()).fill_null(0)))
        broken = ~((numbers == np.rint(numbers)) & (np.abs(numbers) < _MOST_WHOLE))
        faults.append(Fault("id is no whole number", column, np.flatnonzero(broken), "Write ids as int64 or string."))
    return faults


def number_faults(
    table: pa.Table, parts: Sequence[ColumnPart], what: str, *, scaling: str, scale: ColumnScale | None = None
) -> list[Fault]:
    """Fault rows with a null, with what cannot be stored, or with a list of another length than the first.

    scaling: of these columns, as the config says. scale: by what they are scaled, where that is known.
    """
    faults: list[Fault] = []
    start = 0
    for part in parts:
        column = combine(table.column(part.name))
        own = None if scale is None else scale.columns(start, start + part.width)
        start += part.width
        if part.state is not None:
            faults += _state_faults(column, part.state, what, key=part.key or part.name, scaling=scaling, scale=own)
            continue
        if part.is_list:
            # length of each row's list [R], -1 where it is null
            lengths = np.nan_to_num(to_numpy(pc.list_value_length(column)).astype(np.float64), nan=-1)
            ragged = np.flatnonzero(lengths != part.width)
            faults.append(
                Fault(f"{what} list is null or not {part.width} long", part.name, ragged, "Write lists of one length.")
            )
        faults.append(_value_fault(column, part.name, what, is_list=part.is_list, scaling=scaling, scale=own))
    return faults


def _state_faults(
    column: pa.Array, state: ColumnState, what: str, *, key: str, scaling: str, scale: ColumnScale | None
) -> list[Fault]:
    """Fault rows whose value an encoded column cannot hold; missing ones it holds, unless it refuses them.

    key: of the column's kind in graph.columns.
    """
    read = readings_of(column, state)
    if read is None:
        return []
    unreadable = np.flatnonzero(read.unreadable)
    if not isinstance(state, NumericalState):
        fix = f"Write such as 2024-01-31T23:59:59, or null. Or {_kind_fix(column, state, key)}."
        return [Fault(f"{what} is not an ISO date or time", state.name, unreadable, fix)]
    first = column.take(pa.array(unreadable[:1]))
    is_comma = holds_text(first.type) and bool(pc.any(pc.match_substring_regex(first, _DECIMAL_COMMA)).as_py())
    other = "of CSV, set graph.formats: {TABLE: {decimal: comma}}" if is_comma else _kind_fix(column, state, key)
    fix = f"Write numbers, or null. Or {other}."
    faults = [Fault(f"{what} is not a number", state.name, unreadable, fix)]
    numbers, scaling = pa.array(read.values), scaling if state.scale == "none" else state.scale
    own = None if scale is None or state.scale != "none" else scale.columns(0, 1)
    allowed = np.isnan(read.values) if state.missing_as != "refuse" else None
    return [
        *faults,
        _value_fault(numbers, state.name, what, is_list=False, scaling=scaling, scale=own, allowed=allowed),
    ]


def _kind_fix(column: pa.Array, state: ColumnState, key: str) -> str:
    """Return the keys that read a column of numbers or times: the forms of its text, or else its values as such."""
    kind: Literal["numerical", "timestamp"] = "numerical" if isinstance(state, NumericalState) else "timestamp"
    forms = find_forms(column, kind) if holds_text(column.type) else []
    lines = [config_line({"columns": {key: form}}) for form in forms or [{"kind": "categorical"}]]
    return f"set graph: {' or '.join(lines)}"


def _value_fault(
    column: pa.Array,
    name: str,
    what: str,
    *,
    is_list: bool,
    scaling: str,
    scale: ColumnScale | None = None,
    allowed: Array | None = None,
) -> Fault:
    """Fault rows with a value that is null, NaN, infinite, or beyond float32 once it is scaled.

    allowed: rows of a column without lists that are no fault in any case.
    """
    # all values one after another [V], and the row each belongs to [V]: needed where one does not fit, or for its scale
    values = pc.list_flatten(column) if is_list else column
    rows = _rows_of(column, is_list=is_list) if scale is not None else np.zeros(0, np.int64)
    if scaling == "none":
        fits, beyond = fits_float32(values), "beyond what float32 holds (3.4e38)"
    else:
        fits, beyond = can_be_scaled(values, rows, scale), f"beyond what can be scaled ({MOST_SCALED:.0e})"
        if scale is not None:
            beyond = f"{beyond}, or what float32 holds (3.4e38) once the published model's figures scale it"
    is_missing = "null, NaN, " if allowed is None else ""
    fits = fits if allowed is None else fits | allowed
    broken = np.zeros(0, np.int64) if fits.all() else np.unique(_rows_of(column, is_list=is_list)[~fits])
    return Fault(f"{what} is {is_missing}infinite or {beyond}", name, broken, "Fill, scale or drop these rows.")


def _rows_of(column: pa.Array, *, is_list: bool) -> IntArray:
    """Return the row of each value of a column [V]."""
    return to_numpy(pc.list_parent_indices(column)).astype(np.int64) if is_list else np.arange(len(column))


def sparse_faults(table: pa.Table, stem: str, width: int, *, has_value: bool, scaling: str) -> list[Fault]:
    """Fault sparse rows with a null list, an index outside 0..width-1, or values that do not match their indices."""
    more = "Number features from 0, and set graph.feature_dim to one more than the largest index."
    index = combine(table.column(f"{stem}_index"))
    # all indices one after another [V], and the row that each belongs to [V]
    flat = to_numpy(pc.list_flatten(index).cast(pa.float64(), safe=False))
    parents = to_numpy(pc.list_parent_indices(index))
    outside = np.unique(parents[~((flat >= 0) & (flat < width))]).astype(np.int64)
    faults = [
        Fault(
            "feature list is null", f"{stem}_index", np.flatnonzero(to_numpy(pc.is_null(index))), "Write an empty list."
        ),
        Fault(f"feature index outside 0..{width - 1}", f"{stem}_index", outside, more),
    ]
    if has_value:
        value = combine(table.column(f"{stem}_value"))
        # length of each row's list of indices and of values [R], -1 where it is null
        lengths = [np.nan_to_num(to_numpy(pc.list_value_length(c)).astype(np.float64), nan=-1) for c in (index, value)]
        uneven = np.flatnonzero(lengths[0] != lengths[1])
        reason, fix = "as many values as indices needed", "Write one value per index."
        faults.append(Fault(reason, f"{stem}_value", uneven, fix))
        faults.append(_value_fault(value, f"{stem}_value", "feature value", is_list=True, scaling=scaling))
    return faults


def split_faults(table: pa.Table, column: str, labelled: Array) -> list[Fault]:
    """Fault splits other than train, valid, test or null, and rows that have a split but no label."""
    text = combine(table.column(column)).cast(pa.string())
    known = to_numpy(pc.or_(pc.is_null(text), pc.is_in(text, value_set=pa.array(SPLITS))))
    given = to_numpy(pc.is_valid(text))
    return [
        Fault("split is none of train, valid, test", column, np.flatnonzero(~known), SPLIT_FIX),
        Fault(
            "has a split but no label",
            column,
            np.flatnonzero(given & known & ~labelled),
            _SPLIT_OF_NONE,
        ),
    ]


def weight_faults(table: pa.Table, column: str) -> list[Fault]:
    """Fault weights that are negative, null, or not what float32 holds."""
    values = combine(table.column(column))
    negative = small = np.zeros(0, np.int64)
    if values.null_count < len(values):  # a column of nulls alone may have no type to cast
        known = np.nan_to_num(floats_of(values), nan=0.0)
        negative = np.flatnonzero(known < 0)
        # float32 rounds it to zero, or so coarsely that its share of a sum changes
        small = np.flatnonzero((known > 0) & (known < np.finfo(np.float32).tiny))
    values_fault = _value_fault(values, column, "weight", is_list=False, scaling="none")
    return [
        Fault("weight is negative", column, negative, f"Write weights of zero or more. {NO_WEIGHT}"),
        Fault(
            "weight is smaller than float32 holds (1.2e-38)",
            column,
            small,
            "Multiply all weights by one number, or write 0.",
        ),
        replace(values_fault, fix=f"{values_fault.fix} {NO_WEIGHT}"),
    ]


def input_positions(chunk_number: int, rows: Array) -> IntArray:
    """Return one integer per row that encodes its chunk and row, and keeps them through every exchange."""
    return (np.int64(chunk_number) << _PLACE_SHIFT) + rows.astype(np.int64)


class Place(NamedTuple):
    """The chunk that a row came from, and the row's number within its file."""

    chunk: Chunk
    row: int


def place_of(chunks: Sequence[Chunk], position: int) -> Place:
    """Return the chunk that a row came from, and the row's number within its file."""
    chunk = chunks[position >> _PLACE_SHIFT]
    return Place(chunk, chunk.first_row + (position & ((1 << _PLACE_SHIFT) - 1)))


def separate(
    table: pa.Table,
    faults: Sequence[Fault],
    *,
    chunks: Sequence[Chunk],
    place: IntArray,
    policy: Literal["fail", "quarantine"],
    labelled: Array | None = None,
) -> Separated:
    """Return the rows to keep, and the others. Raises TableError under `fail`.

    labelled: whether each row has a label [R]; None: none has.
    """
    # faulty rows [B], and the number of the first fault of each [B]
    bad = np.unique(np.concatenate([np.zeros(0, np.int64), *(fault.rows for fault in faults)]))
    reason = np.zeros(len(bad), np.int64)
    for code, fault in reversed(list(enumerate(faults))):
        reason[np.searchsorted(bad, fault.rows)] = code
    if len(bad) and policy == "fail":
        raise _error(table, faults[reason[0]], chunks, place, num_bad=len(bad))
    texts = np.array([fault.reason for fault in faults] or [""], dtype=object)
    quarantined = _rename_reserved(take_rows(table, bad) if len(bad) else table.schema.empty_table())
    quarantined = quarantined.append_column("reason", pa.array(texts[reason], pa.string()))
    # file and first row of every chunk, and the number of each faulty row's chunk [B]
    files = np.array([chunk.uri for chunk in chunks] or [""], dtype=object)
    first = np.array([chunk.first_row for chunk in chunks] or [0], np.int64)
    number = place[bad] >> _PLACE_SHIFT
    quarantined = quarantined.append_column("file", pa.array(files[number], pa.string()))
    # each faulty row's number within its file [B]
    row = first[number] + (place[bad] & ((1 << _PLACE_SHIFT) - 1))
    counts = np.bincount(reason, minlength=len(faults)).tolist()
    of_targets = reason[:0] if labelled is None else reason[labelled[bad]]
    lost = np.bincount(of_targets, minlength=len(faults)).tolist()
    reasons = tuple((f.column, f.reason, *both) for f, *both in zip(faults, counts, lost, strict=True) if both[0])
    kept = np.setdiff1d(np.arange(table.num_rows), bad) if len(bad) else slice(None)
    return Separated(kept, quarantined.append_column("row", pa.array(row)), reasons)


def _rename_reserved(rows: pa.Table) -> pa.Table:
    """Return the rows with `given_` before the names of columns that the quarantine adds."""
    names = rows.column_names
    for name in _RESERVED:
        while name in names:
            free = f"given_{name}"
            while free in names:
                free = f"given_{free}"
            names[names.index(name)] = free
    return rows.rename_columns(names)


def first_rows(rows: IntArray, place: IntArray) -> IntArray:
    """Return the first faulty rows in input order, which an error shows."""
    return rows[np.argsort(place[rows], kind="stable")][:_SHOWN]


def _error(table: pa.Table, fault: Fault, chunks: Sequence[Chunk], place: IntArray, *, num_bad: int) -> TableError:
    # the first faulty rows, and their numbers within the file
    shown = first_rows(fault.rows, place)
    chunk = place_of(chunks, int(place[shown[0]])).chunk
    rows = (place[shown] & ((1 << _PLACE_SHIFT) - 1)) + chunk.first_row
    column = table.column(fault.held_in or fault.column)
    values = [_shown(value) for value in column.take(pa.array(shown)).to_pylist()]
    listed = ", ".join(f"row {row}: {value}" for row, value in zip(rows, values, strict=True))
    share = num_bad / table.num_rows
    aside = (
        f" Or set graph.on_bad_rows: quarantine to set bad rows aside: {num_bad:,} of the {table.num_rows:,} rows of "
        f"this piece ({share_text(share)}). The run stops where they are more than graph.max_bad_rows of a table, "
        f"{share_text(_MOST_BAD)} unless the config says otherwise."
    )
    return TableError(
        f"column {fault.column!r}: {fault.reason} in {len(fault.rows)} row(s) of this piece ({listed})",
        where=chunk.place,
        fix=f"{fault.fix}{aside if share <= _MOST_ASIDE else ''}",
    )


def _shown(value: object) -> str:
    """Return the beginning of a value; text in quotes, so that spaces at its ends are seen."""
    return repr(value[:_LETTERS]) if isinstance(value, str) else str(value)[:_LETTERS]


def near_id(unknown: Column, ids: Iterable[Column]) -> str:
    """Return how one of a few unknown ids differs from an id that exists, as a sentence; "" where none is near.

    unknown: text. ids: those that exist, part by part; the first that is near is taken.
    """
    unknown, compared = unknown.cast(pa.large_string()), 0
    for part in ids:
        compared += len(part)
        if compared > _MOST_IDS:
            break
        text = part.cast(pa.large_string())
        for how, alike in _DIFFERENCES:
            # number of the unknown id that each id resembles [len(part)], null for none
            like = pc.index_in(alike(text), value_set=alike(unknown))
            if len(found := np.flatnonzero(to_numpy(pc.is_valid(like)))):
                pair = text[int(found[0])].as_py(), unknown[like[int(found[0])].as_py()].as_py()
                held, asked = map(ascii if "Unicode" in how else repr, pair)
                return f"The id {held} exists, and {asked} differs from it only {how}."
    return ""
