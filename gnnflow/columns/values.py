"""Values of columns of any type: as floats, as text, as times. Shapes: V values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.arrays import Array, BoolArray, IntArray
from gnnflow.storage.columns import combine, plain_values, to_numpy
from gnnflow.storage.user_tables import holds_lists, holds_text

Column = Any  # pa.Array: pyarrow ships no complete types

_DAY = 86_400.0
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_NUMBER = r"^(?i:[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity))$"
# a number with a unit, or with signs between its thousands: $1,234.50, EUR 4, 5 %, 1,5
_UNIT = r"(?:\p{Sc}|%|AUD|CAD|CHF|CNY|CZK|DKK|EUR|GBP|INR|JPY|NOK|PLN|SEK|USD|[Kk]r\.?|Rs\.?)?"
_AMOUNT = rf"^\s*[+-]?{_UNIT}\s*[+-]?(?:[0-9]{{1,3}}(?:[,.'][0-9]{{3}})+|[0-9]+)(?:[.,][0-9]+)?\s*{_UNIT}\s*$"
ISO_DATE = r"^\s*[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])(?:[T ].*)?\s*$"
LEADING_ZEROS = r"^\s*-?0[0-9]+\s*$"
"""Of integers as text, that codes have and numbers have not."""
_ISO = (
    r"^[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"(?:[T ](?:[01][0-9]|2[0-3])(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
_ZONE = r"[T ].*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_LARGEST_WHOLE = 2.0**53


def floats_of(values: Column) -> Array:
    """Return the numbers of an Arrow array as floats [V], NaN where null; others than floats as float64.

    A boolean is 0 or 1; a date or timestamp counts seconds since 1970, whatever unit its type has.
    """
    found = values.type
    if pa.types.is_floating(found):
        return to_numpy(values)
    if pa.types.is_decimal(found):
        values = values.cast(pa.string())  # as text it becomes the nearest float, as it does in a CSV file
    elif pa.types.is_temporal(found):
        values = values.view(pa.int32() if pa.types.is_date32(found) else pa.int64())
    floats = to_numpy(values.cast(pa.float64(), safe=False))
    if pa.types.is_date32(found):
        return floats * _DAY
    if pa.types.is_temporal(found):
        return floats / (_PER_SECOND["ms"] if pa.types.is_date64(found) else _PER_SECOND[found.unit])
    return floats


class Readings(NamedTuple):
    """The values of a column as float64, NaN where missing [V], and which of them could not be read [V]."""

    values: Array
    unreadable: BoolArray

    @property
    def missing(self) -> BoolArray:
        """The values that are not there."""
        return np.isnan(self.values) & ~self.unreadable


def numbers_of(column: Column, decimal: str = "") -> Readings:
    """Return a column of numbers, times, or text of numbers. decimal: comma or point, for text of amounts."""
    column = plain_values(column)
    if not holds_text(column.type):
        return Readings(floats_of(column).astype(np.float64), np.zeros(len(column), bool))
    text = _trimmed(column)
    plain = _plain_amounts(text, decimal) if decimal else text
    is_number = pc.match_substring_regex(plain, _NUMBER).fill_null(fill_value=False)
    numbers = pc.if_else(is_number, plain, pa.scalar(None, text.type)).cast(pa.float64())
    return Readings(floats_of(numbers), to_numpy(pc.and_not(pc.is_valid(text), is_number)))


def _plain_amounts(text: Column, decimal: str) -> Column:
    """Return amounts as plain numbers, without units and signs between thousands; null where one is no amount."""
    mark, thousands = (",", r"[.'\x{2019}\s\p{Z}]") if decimal == "comma" else (r"\.", r"[,'\x{2019}\s\p{Z}]")
    gap, unit = r"[\s\p{Z}]*", r"(?:\p{Sc}|%|\p{L}{1,3}\.?)?"
    whole = rf"(?P<whole>[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+|[0-9]+)"
    signs = rf"(?:\+|(?P<first>-))?{gap}{unit}{gap}(?P<second>-)?"
    found = pc.extract_regex(text, rf"^{signs}{whole}(?:{mark}(?P<fraction>[0-9]+))?{gap}{unit}$")
    first, second, whole, parts = (pc.struct_field(found, at) for at in range(found.type.num_fields))
    zero, point, nothing = (pa.scalar(each, text.type) for each in ("0", ".", ""))
    number = pc.binary_join_element_wise(first, second, pc.replace_substring_regex(whole, thousands, ""), nothing)
    return pc.binary_join_element_wise(number, pc.if_else(pc.equal(parts, ""), zero, parts), point)


def words_of(text: Column) -> BoolArray:
    """Return which texts are words: no numbers, not even with units or with signs between their thousands."""
    is_amount = pc.match_substring_regex(text, _AMOUNT)
    return numbers_of(text).unreadable & ~to_numpy(is_amount.fill_null(fill_value=False))


def times_of(column: Column, form: str = "") -> Readings:
    """Return a column of dates, timestamps, or text of these, as seconds since 1970.

    form: of text in another form than ISO's, as strptime writes it.
    """
    column = plain_values(column)
    if not holds_text(column.type):
        return Readings(floats_of(column).astype(np.float64), np.zeros(len(column), bool))
    text = _trimmed(column)
    if form:
        times = _parsed_times(text, form)
        return Readings(floats_of(times), to_numpy(pc.and_(pc.is_valid(text), pc.is_null(times))))
    is_time = pc.match_substring_regex(text, _ISO)
    seconds = np.full(len(text), np.nan)
    zoned = pc.match_substring_regex(text, _ZONE)
    bad = np.zeros(len(text), bool)
    for zone, own in (("UTC", pc.and_(is_time, zoned)), (None, pc.and_(is_time, pc.invert(zoned)))):
        rows = np.flatnonzero(to_numpy(own.fill_null(fill_value=False)))
        kept = pc.replace_substring_regex(text.take(pa.array(rows)), r"(\.[0-9]{6})[0-9]+", r"\1")
        try:
            seconds[rows] = floats_of(kept.cast(pa.timestamp("us", zone)))
        except pa.ArrowInvalid:  # a day that does not exist, such as 30 February
            bad[rows] = True
    return Readings(seconds, np.asarray(bad | to_numpy(pc.invert(is_time.fill_null(fill_value=True)))))


def _parsed_times(text: Column, form: str) -> Column:
    """Return text of one form as timestamps, null where it has another form or names no day."""
    times = pc.strptime(text.cast(pa.string()), format=form, unit="s", error_is_null=True)
    # strptime reads 31 February as 3 March
    padded = pc.replace_substring_regex(text.cast(pa.string()), r"\b([0-9])\b", r"0\1")
    is_same = pc.equal(pc.utf8_lower(pc.strftime(times, format=form)), pc.utf8_lower(padded))
    return pc.if_else(is_same, times, pa.scalar(None, times.type))


def _trimmed(column: Column) -> Column:
    text = pc.utf8_trim_whitespace(combine(column).cast(pa.large_string()))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)


def texts_of(column: Column) -> Column:
    """Return values as large_string, null where they are missing: an empty text, a null or NaN.

    A whole number is written without a point, so integers that became floats stay the same values.
    """
    column = plain_values(column)
    found = column.type
    if holds_text(found):
        text = combine(column).cast(pa.large_string())
    elif pa.types.is_floating(found):
        numbers = floats_of(column).astype(np.float64)
        whole = np.isfinite(numbers) & (np.abs(numbers) < _LARGEST_WHOLE) & (numbers == np.rint(numbers))
        integers = pa.array(np.where(whole, numbers, 0).astype(np.int64)).cast(pa.large_string())
        given = pa.array(numbers, mask=np.isnan(numbers)).cast(pa.large_string())
        text = pc.if_else(pa.array(whole), integers, given)
    else:
        text = combine(column).cast(pa.large_string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)


class Members(NamedTuple):
    """The values of all rows as text, the row of each [V], and which rows have none [R]."""

    values: Column
    rows: IntArray
    missing: BoolArray


def members_of(column: Column, separator: str) -> Members:
    """Return the values of rows with several: of lists, or of text between separators. Each value counts once a row."""
    if not holds_lists(column.type):
        text = texts_of(column)
        column = pc.split_pattern(text, separator) if separator else text
    if not holds_lists(column.type):
        rows, values = np.arange(len(column)), column
    else:
        rows = to_numpy(pc.list_parent_indices(column)).astype(np.int64)
        values = texts_of(combine(pc.list_flatten(column)))
    missing = to_numpy(pc.is_null(column))
    values = pc.utf8_trim_whitespace(values)
    known = np.flatnonzero(to_numpy(pc.and_(pc.is_valid(values), pc.not_equal(values, "")).fill_null(fill_value=False)))
    values, rows = values.take(pa.array(known)), rows[known]
    if len(rows):  # a value that a row repeats counts once
        coded = values.dictionary_encode()
        pair = rows * max(len(coded.dictionary), 1) + to_numpy(coded.indices).astype(np.int64)
        _, first = np.unique(pair, return_index=True)
        values, rows = values.take(pa.array(first)), rows[first]
    return Members(values, rows, missing)
