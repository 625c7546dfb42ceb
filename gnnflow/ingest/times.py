"""Times of edges and nodes: the unit of a column, its faulty rows, and the integers in the store.

A column is of integers, dates or timestamps, or of text of ISO 8601: `2024-01-31`, or `2024-01-31T23:59:59.5+01:00`
or fewer parts. Times of one column are compared with each other, so in a column of text either all have a time zone or
none has. Shapes: R rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.ingest.checks import Fault
from gnnflow.ingest.fields import first_text
from gnnflow.storage.agreed_schema import meaning_of
from gnnflow.storage.columns import combine, to_numpy
from gnnflow.storage.user_tables import holds_text, holds_times, read_chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import IntArray
    from gnnflow.storage.user_tables import Chunk

_INT64_MAX = 2**63 - 1
_TEXT, _ZONED_TEXT = "text of times", "text of times with a zone"
_WRITE = "Write times as integers, dates or timestamps, or as text such as 2024-01-31 or 2024-01-31T23:59:59Z."
# an existing day: in months of 31 days, of 30 days, in February, and 29 February in leap years
_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_HOUR, _SIXTIETH = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_ZONE = rf"(?:Z|[+-]{_HOUR}(?::?{_SIXTIETH})?)"
_ISO = rf"^{_DAY}(?:[T ]{_HOUR}(?::{_SIXTIETH}(?::{_SIXTIETH}(?:\.[0-9]+)?)?)?{_ZONE}?)?$"
_HAS_ZONE = rf"[T ].*{_ZONE}$"
_BELOW_MICROSECONDS = r"(\.[0-9]{6})[0-9]+"

Column = Any  # pa.Array | pa.ChunkedArray: pyarrow ships no complete types


def time_of(field: pa.Field, chunks: Sequence[Chunk]) -> str:
    """Return the meaning of a column of times: plain integers, or a unit, with a time zone or without.

    Reads rows only of text, up to the first time. Raises TableError where the column holds no times.
    """
    if holds_text(field.type):
        return _text_time(field, chunks)
    if not pa.types.is_integer(field.type) and not holds_times(field.type):
        raise TableError(
            f"column {field.name!r} is {field.type}, not a time{first_text(field)}", where=chunks[0].uri, fix=_WRITE
        )
    return meaning_of(field.type)


def time_faults(table: pa.Table, column: str, *, time: str, of: str = "edge") -> list[Fault]:
    """Fault rows whose time is missing, beyond int64, or not written as one. time: as `time_of` returns it."""
    times = combine(table.column(column))
    faults = [Fault("time is null", column, np.flatnonzero(to_numpy(pc.is_null(times))), f"Give every {of} a time.")]
    if pa.types.is_uint64(times.type):
        beyond = to_numpy(pc.fill_null(pc.greater(times, pa.scalar(_INT64_MAX, pa.uint64())), fill_value=False))
        faults.append(Fault("time is beyond int64", column, np.flatnonzero(beyond), "Subtract an offset."))
    return faults + (_text_faults(_text(times), column, time) if holds_text(times.type) else [])


def times_of(column: pa.ChunkedArray, *, time: str) -> IntArray:
    """Return the times of faultless rows [R] in the unit of their column, times of text in microseconds."""
    times = combine(column)
    if holds_text(times.type):
        text = pc.replace_substring_regex(_text(times), _BELOW_MICROSECONDS, r"\1")
        times = text.cast(pa.timestamp("us", "UTC" if time == _ZONED_TEXT else None))
    # Arrow casts days only to 32-bit integers
    days = times.cast(pa.int32()) if pa.types.is_date32(times.type) else times
    return np.asarray(to_numpy(days.cast(pa.int64())))


def time_text(time: int, unit: str) -> str:
    """Return a time as text: a date, or a moment with as many digits as its unit has. unit: as `time_of` returns it."""
    kinds = {"date32[day]": ("D", "D"), "date64[ms]": ("ms", "D"), _TEXT: ("us", "s"), _ZONED_TEXT: ("us", "s")}
    own = re.match(r"timestamp\[(\w+)\]", unit)
    held, shown = (own.group(1), own.group(1)) if own else kinds.get(unit, ("", ""))
    if not held:
        return str(time)
    moment = np.array([time]).astype(f"datetime64[{held}]").astype(f"datetime64[{shown}]")
    days = moment.astype("datetime64[D]")
    return str(days[0] if days[0] == moment[0] else moment[0])


def _text_time(field: pa.Field, chunks: Sequence[Chunk]) -> str:
    """Return the meaning of a column of text, by the first time in it."""
    for chunk in chunks:
        text = _text(read_chunk(chunk, [field.name]).column(0))
        if text.null_count == len(text):
            continue
        found = text.filter(pc.match_substring_regex(text, _ISO))
        if len(found):
            return _ZONED_TEXT if pc.match_substring_regex(found[0], _HAS_ZONE).as_py() else _TEXT
        row = pc.index(pc.is_valid(text), value=True).as_py()
        shown = f"row {chunk.first_row + row}: {text[row].as_py()[:60]!r}"
        raise TableError(
            f"column {field.name!r} is text, not a time ({shown}){first_text(field)}", where=chunk.place, fix=_WRITE
        )
    return _TEXT  # every row is null, and faulted where it is read


def _text_faults(text: Column, column: str, time: str) -> list[Fault]:
    zoned = time == _ZONED_TEXT
    is_time = to_numpy(pc.fill_null(pc.match_substring_regex(text, _ISO), fill_value=True))
    has_zone = to_numpy(pc.fill_null(pc.match_substring_regex(text, _HAS_ZONE), fill_value=zoned))
    other = "time has no time zone, and others have" if zoned else "time has a time zone, and others have none"
    alike = "Write all times of the column with a zone, such as Z, or all without."
    return [
        Fault("time is not an ISO date or time", column, np.flatnonzero(~is_time), _WRITE),
        Fault(other, column, np.flatnonzero(has_zone != zoned), alike),
    ]


def _text(column: Column) -> Column:
    """Return a column of text as one array of large_string, without spaces around values."""
    return pc.utf8_trim_whitespace(combine(column).cast(pa.large_string()))
