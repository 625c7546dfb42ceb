"""Finds the dialect of a CSV file from its first lines, and rewrites bytes of another dialect as UTF-8 CSV.

The separator comes from a library (DuckDB where it is installed, else Python's `csv.Sniffer`) and counts only where it
gives every line of the sample the same number of fields. Where several separators do, the caller has to choose.
"""

from __future__ import annotations

import codecs
import csv
import importlib.util
import re
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import ConfigError, TableError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space", "::": "::"}
_STRONG = ("\t", ",", ";", "|", "::")  # a space separates only where none of these does
_COMMENTS = ("#", "%")
_MOST_LINES = 1000
_PAIR = 2
_DECIMAL = re.compile(r"[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+),[0-9]+([eE][+-]?[0-9]+)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DECIMALS = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")  # a decimal comma, or thousands
_PLAIN = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+|[+-]?[0-9]+|null|NULL|")


@dataclass(frozen=True)
class Dialect:
    """The form of a CSV file.

    runs: several separators in a row count as one. comment: lines that begin with it are skipped; "" for none.
    """

    separator: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    runs: bool = False
    comment: str = ""

    @property
    def is_plain(self) -> bool:
        """True where blocks of the file can be read as they are."""
        plain = not self.runs and self.quote == '"' and len(self.separator) == 1
        return plain and self.encoding in ("utf-8", "utf-8-sig") and not self.comment

    @property
    def text(self) -> str:
        """The dialect in a few words."""
        parts = [f"separator {_NAMES.get(self.separator, repr(self.separator))}{'s' * self.runs}"]
        parts += [f"quotes {self.quote}"] * (self.quote != '"')
        parts += [self.encoding] * (self.encoding not in ("utf-8", "utf-8-sig"))
        parts += [f"comments {self.comment}"] * bool(self.comment)
        return ", ".join(parts)


def rewrite(content: bytes, dialect: Dialect, *, where: str) -> bytes:
    """Return a file's bytes as UTF-8 CSV with a separator of one letter and `"` as quote. Lines keep their places.

    Raises TableError where the bytes are not in the dialect's encoding.
    """
    text = decode(content, dialect.encoding, where=where)
    if dialect.comment:
        text = re.sub(rf"(?m)^{re.escape(dialect.comment)}[^\r\n]*", "", text)
    if dialect.runs:
        text = re.sub(r"(?m)^[ \t]+|[ \t]+(?=\r?$)", "", text)
        text = re.sub(r"[ \t]+", "\t", text)
    elif len(dialect.separator) > 1:
        text = text.replace("\t", " ").replace(dialect.separator, "\t")
    if dialect.quote != '"':
        text = _with_usual_quotes(text, separator_of(dialect), dialect.quote)
    return text.encode()


def separator_of(dialect: Dialect) -> str:
    """Return the separator of a file after `rewrite`."""
    return "\t" if dialect.runs or len(dialect.separator) > 1 else dialect.separator


def decode(content: bytes, encoding: str, *, where: str) -> str:
    """Return bytes as text without a mark. Raises TableError for bytes of another encoding."""
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise ConfigError(
            f"{encoding!r} is no encoding", where=where, fix="Use utf-8, utf-16, cp1252 or another of Python's."
        ) from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"line {line} is not {encoding.upper()}",
            where=where,
            fix=f"{say_form('encoding', 'cp1252')} Or write the table as UTF-8.",
        ) from error


def say_form(key: str, *values: str) -> str:
    """Return how to say the form of a file, in a config and to `gnnflow import`. key: of a config."""
    option = {"separator": "sep"}.get(key, key)
    given = " or ".join(f"--option {option}={value}" for value in values)
    to_init = " or ".join(f"--{key} {value}" for value in values)
    line = f"{{TABLE: {{{key}: {' or '.join(values)}}}}}"
    return f"Set graph.formats: {line} in a config, or give an import {given}, and `gnnflow init` {to_init}."


def sniff(
    content: bytes, *, separator: str | None, encoding: str | None, where: str, width: int | None = None
) -> Dialect:
    """Return the dialect of a file's first bytes, which end with a line.

    separator, encoding, width (number of columns): chosen by the caller; None to find them. Raises TableError
    where two separators fit.
    """
    mark = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    encoding = encoding or mark
    text = decode(content, encoding, where=where)
    lines = [line for line in re.split(r"\r\n|\r|\n", text) if line.strip()][:_MOST_LINES]
    comment = next((sign for sign in _COMMENTS if lines and lines[0].startswith(sign)), "")
    rows = [line for line in lines if not comment or not line.startswith(comment)]
    dialect = Dialect(encoding=encoding)
    if not rows:
        return replace(dialect, separator=separator or ",")
    dialect = replace(dialect, **_choose(rows, separator, width, where=where))
    first = lines.index(rows[0])
    # "# from<TAB>to" is a comment as published lists have it
    heads = [line for line in lines[:first] if line[1:2] not in (" ", "\t", "")]
    _refuse_unclear([rows[0], *heads], replace(dialect, comment=comment or _COMMENTS[0]), where=where)
    later = lines[first:]
    if comment and any(line.startswith(comment) for line in later):
        dialect = replace(dialect, comment=comment)
        _refuse_unclear(later, dialect, where=where)
    return dialect


def _choose(rows: Sequence[str], given: str | None, width: int | None, *, where: str) -> dict[str, Any]:
    """Return the separator, runs and quotes that give all rows the same number of fields, `width` where it is given.

    given: the separator.
    """
    said = _of_library(rows)
    for quote in ("'", '"') if said is not None and said[1] == "'" else ('"',):
        fit = [each for each in ((given,) if given else _STRONG) if _fits(rows, each, quote, width)]
        if fit == ["\t"] and not given and _is_aligned(rows):
            return {"separator": " ", "runs": True}
        are_numbers = all(map(_DECIMALS.fullmatch, " ".join(rows).split()))
        if fit and not given and are_numbers and _fits(rows, " ", quote, width):
            fit.append(" ")
        if len(fit) > 1:
            names = [_NAMES[each] for each in fit]
            raise TableError(
                f"each of {', '.join(names)} gives every line the same number of fields",
                where=where,
                fix=say_form("separator", *names),
            )
        if fit and quote == "'" and any('"' in row for row in rows) and _fits(rows, fit[0], '"', width):
            raise TableError(
                "both ' and \" may be the quotes around its fields",
                where=where,
                fix='Write it with " around fields that hold a separator or a quote, and with no quotes around others.',
            )
        if fit:
            return {"separator": fit[0], "quote": quote}
    if given not in (None, " "):
        return {"separator": given}
    if _fits(rows, " ", '"', width):
        return {"separator": " "}
    widths = {len(row.split()) for row in rows}
    if all('"' not in row for row in rows) and len(widths) == 1 and min(widths) >= _PAIR:
        return {"separator": " ", "runs": True}
    # lines of different lengths, which reading refuses by their number
    found = said[0] if said is not None and said[0] in rows[0] else None
    return {"separator": given or found or next((each for each in (",", "\t", ";", "|", " ") if each in rows[0]), ",")}


def _is_aligned(rows: Sequence[str]) -> bool:
    """Return whether rows hold only numbers, one count in each, with spaces and tabs mixed between them."""
    words = [row.split() for row in rows]
    mixed = any(len(row.split("\t")) != len(each) for row, each in zip(rows, words, strict=True))
    return (
        mixed
        and len({len(each) for each in words}) == 1
        and all(_NUMBER.fullmatch(word) for each in words for word in each)
    )


def _fits(rows: Sequence[str], separator: str, quote: str, width: int | None = None) -> bool:
    """Return whether a separator gives all rows one number of fields, above one; `width` where it is given."""
    if separator not in rows[0]:
        return False
    if len(separator) > 1:
        found = {row.count(separator) + 1 for row in rows}
        return len(found) == 1 and width in (None, *found)
    try:
        read = csv.reader((f"{row}\n" for row in rows), delimiter=separator, quotechar=quote, strict=True)
        found = {len(fields) for fields in read}
    except csv.Error:
        # the sample may end within a quoted field
        return False
    return len(found) == 1 and min(found) >= _PAIR and width in (None, *found)


def _of_library(rows: Sequence[str]) -> tuple[str, str] | None:
    """Return the separator and the quote that DuckDB or Python's sniffer finds; None where it finds none."""
    text = "\n".join(rows) + "\n"
    if importlib.util.find_spec("duckdb") is not None and (found := _of_duckdb(text)) is not None:
        return found
    try:
        sniffed = csv.Sniffer().sniff(text, delimiters="\t,;|")
    except csv.Error:
        return None
    return sniffed.delimiter, sniffed.quotechar or '"'


def _of_duckdb(text: str) -> tuple[str, str] | None:
    import duckdb

    with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as sample:
        sample.write(text)
        sample.flush()
        query = "SELECT Delimiter, Quote FROM sniff_csv(?)"
        with duckdb.connect() as connection:
            try:
                found = connection.execute(query, [sample.name]).fetchone()
            except duckdb.Error:
                return None
    return None if found is None else (found[0], found[1] if found[1] == "'" else '"')


def _refuse_unclear(lines: Sequence[str], dialect: Dialect, *, where: str) -> None:
    """Raise TableError where a line that begins as a comment has as many fields as the first row."""
    for line in lines[1:] if dialect.separator != " " else ():
        if line.startswith(dialect.comment) and _fits([lines[0], line], dialect.separator, dialect.quote):
            raise TableError(
                f"a line begins with {dialect.comment!r} and may be a comment, a row or a header: {line[:40]!r}",
                where=where,
                fix=f"Take it out, or its {dialect.comment!r} if it is the header; quote the field if it is a row.",
            )


def _with_usual_quotes(text: str, separator: str, quote: str) -> str:
    """Return text whose quoted fields have `"` around them."""
    mark, sep = re.escape(quote), re.escape(separator)
    field = re.compile(rf"(?m)(^|{sep}){mark}((?:[^{mark}]|{mark}{mark})*){mark}(?={sep}|\r?$)")

    def requote(found: re.Match[str]) -> str:
        return found[1] + '"' + found[2].replace(quote * 2, quote).replace('"', '""') + '"'

    return field.sub(requote, text)


def decimal_commas(
    fields: Sequence[Sequence[str]],
    names: Sequence[str],
    *,
    columns: Collection[str],
    decimal: str,
    separator: str,
    where: str,
) -> tuple[str, ...]:
    """Return the columns of a sample whose numbers have a decimal comma, or points for thousands in such a file.

    fields: of each line. columns: to look at. decimal: comma, point, or "" to find it. Raises TableError for numbers
    such as 1,234 or 1.234, which may be thousands.
    """
    if decimal == "point":
        return ()
    commas: list[str] = []
    thousands: dict[str, str] = {}  # the first number with a point
    has_points = False
    for name, column in zip(names, zip(*fields, strict=False), strict=False):
        values = [value.strip() for value in column] if name in columns else []
        fitting = [value for value in values if _DECIMAL.fullmatch(value)]
        if fitting and all(_DECIMAL.fullmatch(value) or _PLAIN.fullmatch(value) for value in values):
            if not decimal and all(_GROUPED.fullmatch(value) for value in fitting):
                raise _unclear(name, fitting[0], where=where)
            commas.append(name)
        elif pointed := [value for value in values if "." in value]:
            if all(map(_PLAIN.fullmatch, values)):
                thousands[name] = max(pointed, key=lambda value: value.count("."))
            else:
                has_points |= all(_NUMBER.fullmatch(value) or _PLAIN.fullmatch(value) for value in values)
    if not decimal and not commas:
        # 1.234.567 is no fraction, and may be text
        asked = [name for name, value in thousands.items() if value.count(".") == 1]
        if separator == ";" and asked and not has_points:
            raise _unclear(asked[0], thousands[asked[0]], where=where)
        return ()
    if not decimal and thousands and has_points:
        raise _unclear(*next(iter(thousands.items())), where=where)
    return tuple(name for name in names if name in commas or name in thousands)


def _unclear(name: str, value: str, *, where: str) -> TableError:
    return TableError(
        f"column {name!r} holds {value!r}, which may be a fraction or thousands",
        where=where,
        fix=say_form("decimal", "comma", "point"),
    )
