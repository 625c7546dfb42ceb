"""Types of text columns: found block by block, agreed over all blocks of a table, and only then converted.

A column is of integers where every value is one, of numbers where every value is one, and so on; otherwise it stays
text. The rule for ids is stricter: they are integers only where each is written as Python writes that integer, so that
`00012`, `0x33` and `1e5` stay text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.storage.columns import combine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Column = Any  # pa.Array | pa.ChunkedArray: pyarrow ships no complete types
Kind = Literal["integer id", "text id", "integer", "number", "boolean", "text", "nothing"]

_NULLS = pa.array(["", "null", "NULL"], pa.large_string())
_TRUTH = pa.array(["true", "false"], pa.large_string())
_HEAD = 100
_SHOWN = 40  # letters of a value that an error shows
_INTEGER = r"^[+-]?[0-9]+$"
_LARGEST = str(2**63 - 1)
_NUMBER = r"^(?i:[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity))$"
_TYPES: dict[Kind, pa.DataType] = {
    "integer id": pa.int64(),
    "text id": pa.large_string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.large_string(),
    "nothing": pa.null(),
}


@dataclass(frozen=True)
class TextFacts:
    """Properties that all values of some rows share. text_row: the first row that is not a number, or None; text: it.

    Where all are integers, and some beyond 64 bits, it is the first of these.
    """

    rows: int
    values: int
    exact: bool
    integer: bool
    number: bool
    boolean: bool
    text_row: int | None = None
    text: str = ""


@dataclass(frozen=True)
class TextType:
    """The type of a column of text. text: the first value that is not a number; text_row, text_file: its place.

    Where all are integers, and some beyond 64 bits, it is the first of these.
    """

    kind: Kind
    text_row: int | None = None
    text_file: str = ""
    text: str = ""

    @property
    def type(self) -> pa.DataType:
        """The Arrow type."""
        return _TYPES[self.kind]

    @property
    def place(self) -> str:
        """The first value that is not a number, with its place; empty where there is none."""
        return "" if self.text_row is None else f"{self.text!r} in {self.text_file}, row {self.text_row}"


def facts_of(column: Column) -> TextFacts:
    """Return the properties of a text column's values."""
    raw = combine(column)
    filled = _nulled(raw, _NULLS).drop_null()
    # the first values rule out most columns
    if _is_exact(filled[:_HEAD]) and _is_exact(filled):
        return TextFacts(len(raw), len(filled), exact=True, integer=True, number=True, boolean=not len(filled))
    values = _trimmed(raw)
    given = values.drop_null()
    number = _casts(given, pa.float64())
    whole = number and _all_match(given, _INTEGER)
    integer = whole and _casts(_unsigned(given), pa.int64())
    boolean = not number and bool(pc.all(pc.is_in(pc.utf8_lower(given), value_set=_TRUTH)).as_py())
    facts = TextFacts(len(raw), len(given), exact=False, integer=integer, number=number, boolean=boolean)
    if integer or (number and not whole):
        return facts
    fits = _fit_int64(values) if number else pc.match_substring_regex(values, _NUMBER)
    row = max(0, pc.index(pc.fill_null(fits, fill_value=True), value=False).as_py())
    return replace(facts, text_row=row, text=(raw[row].as_py() or "")[:_SHOWN])


def agreed(found: Sequence[tuple[str, int, TextFacts]]) -> TextType:
    """Return the type of a column, from (file, first row, facts) of every block."""
    given = [(file, first, facts) for file, first, facts in found if facts.values]
    if not given:
        return TextType("nothing")
    if all(facts.integer for _, _, facts in given):
        return TextType("integer")
    if all(facts.number for _, _, facts in given):
        return _number_type(given)
    if all(facts.boolean for _, _, facts in given):
        return TextType("boolean")
    file, first, facts = next(each for each in given if not each[2].number)
    return TextType("text", first + (facts.text_row or 0), file, facts.text)


def _number_type(given: Sequence[tuple[str, int, TextFacts]]) -> TextType:
    """Return the type of a number column, with the first integer beyond 64 bits where all are integers."""
    beyond = [each for each in given if each[2].text_row is not None]
    if not beyond or not all(facts.integer or facts.text_row is not None for _, _, facts in given):
        return TextType("number")
    file, first, facts = beyond[0]
    return TextType("number", first + (facts.text_row or 0), file, facts.text)


def beyond_integers(types: Mapping[str, TextType]) -> Iterator[str]:
    """Yield a warning for each column of integers beyond 64 bits. types: by the column's name."""
    for name, found in types.items():
        if found.kind == "number" and found.place:
            yield (
                f"column {name!r} holds integers beyond 64 bits, the first is {found.place}: they are read as floats "
                "of 53 bits. If they are codes, not quantities, leave the column out."
            )


def convert(column: Column, found: TextType) -> Column:
    """Return a text column with its agreed type; an empty field, `null` and `NULL` are null."""
    text = combine(column)
    match found.kind:
        case "text id" | "integer id":
            return _nulled(text, _NULLS).cast(found.type)
        case "integer":
            return _unsigned(_trimmed(text)).cast(found.type)
        case "boolean":
            return pc.equal(pc.utf8_lower(_trimmed(text)), "true")
        case "nothing":
            return pa.nulls(len(text))
        case "number":
            return _trimmed(text).cast(found.type)
        case _:
            return _nulled(text, _NULLS)


def _nulled(text: Column, words: Column) -> Column:
    return pc.if_else(pc.is_in(text, value_set=words), pa.scalar(None, text.type), text)


def _trimmed(text: Column) -> Column:
    return _nulled(pc.utf8_trim_whitespace(text), _NULLS)


def _unsigned(text: Column) -> Column:
    return pc.replace_substring_regex(text, r"^\+", "")


def _fit_int64(integers: Column) -> Column:
    """Return which integers in text fit 64 bits, null where null; the lowest negative one does not count."""
    digits = pc.ascii_ltrim(integers, "+-0")
    length = pc.utf8_length(digits)
    as_long = pc.and_(pc.equal(length, len(_LARGEST)), pc.less_equal(digits, _LARGEST))
    return pc.or_(pc.less(length, len(_LARGEST)), as_long)


def _is_exact(given: Column) -> bool:
    try:
        numbers = given.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return bool(pc.all(pc.equal(numbers.cast(pa.large_string()), given)).as_py() is not False)


def _casts(text: Column, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _all_match(text: Column, pattern: str) -> bool:
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() is not False for part in (text[:_HEAD], text))
