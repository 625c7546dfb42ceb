"""Finds the form of a CSV file from its first bytes: the separator, quotes, encoding, comments and decimal commas.

A table of a config is read with commas where these fit its first lines; else its form is found here.
"""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import TableError
from gnnflow.storage.csv_blocks import (
    GZIP_MARK,
    UTF16_MARKS,
    CsvFile,
    is_zipped,
    open_csv,
    read_all,
    read_head,
    refuse_foreign,
)
from gnnflow.storage.csv_dialects import Dialect, decimal_commas, sniff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config.formats_section import CsvFormat

_SAMPLE_BYTES = 1 << 20
_SEPARATORS = ";\t|"
_MOST_LINES = 1000


def open_table(uri: str, form: CsvFormat | None = None) -> CsvFile:
    """Return a CSV file. Its form is found where commas do not give the first lines as many fields as the header.

    form: said by the config. Raises TableError where the form cannot be known.
    """
    if form is not None:
        return _open_said(uri, form)
    content = read_head(uri, zipped=is_zipped(uri), least=_SAMPLE_BYTES)
    file = None if content.startswith(UTF16_MARKS) else open_csv(uri)
    if file is not None and _has_usual_form(file, content):
        return file
    dialect = sniff_csv(uri)
    if file is not None and dialect.is_plain and dialect.separator == "," and len(file.names) > 1:
        return file
    file = open_csv(uri, comments=True, **_way_of(dialect))
    return with_decimals(file, decimal="", columns=file.names)


def _open_said(uri: str, form: CsvFormat) -> CsvFile:
    """Return a CSV file whose form the config says, as far as it does; the rest is found."""
    width = len(form.columns) if form.columns else None
    dialect = sniff_csv(uri, separator=form.separator, encoding=form.encoding, width=width)
    file = open_csv(uri, header=form.has_header, comments=True, **_way_of(dialect))
    names = form.columns or file.names
    if form.separator and len(file.names) == 1 and any(sign in file.names[0] for sign in f",{_SEPARATORS}"):
        raise TableError(
            f"no {form.separator!r} is in its first line, which has other separators: {file.names[0]!r}",
            where=uri,
            fix="Leave the separator out of graph.formats: it is found in the lines.",
        )
    if len(names) != len(file.names):
        raise TableError(
            f"has {len(file.names)} columns ({file.text or 'separator comma'}), and graph.formats names {len(names)}",
            where=uri,
            fix="Name all columns in their order, or say the separator.",
        )
    return with_decimals(replace(file, names=names), decimal=form.decimal or "", columns=names)


def _way_of(dialect: Dialect) -> dict[str, Any]:
    """Return how a file of a dialect is opened: as it is, or rewritten."""
    return {"separator": dialect.separator} if dialect.is_plain else {"dialect": dialect}


def sniff_csv(
    uri: str, *, separator: str | None = None, encoding: str | None = None, width: int | None = None
) -> Dialect:
    """Return the dialect of a file, found in its first bytes. Raises TableError where it cannot be known.

    separator, encoding, width (number of columns): chosen by the caller; None to find them.
    """
    content = read_head(uri, zipped=is_zipped(uri), least=_SAMPLE_BYTES)
    if content.startswith(GZIP_MARK) or (b"\0" in content and encoding is None):
        refuse_foreign(uri, content, mark=True)
    encoding = encoding or ("utf-16" if content.startswith(UTF16_MARKS) else None)
    if len(content) >= _SAMPLE_BYTES:
        with suppress(LookupError):  # an unknown encoding is refused below
            # the sample may end within a letter
            text = content.decode(encoding or "latin-1", errors="ignore")
            content = text[: text.rfind("\n") + 1].encode(encoding or "latin-1")
    return sniff(content, separator=separator, encoding=encoding, width=width, where=uri)


def with_decimals(file: CsvFile, *, decimal: str, columns: Sequence[str]) -> CsvFile:
    """Return a file with the columns, of those given, whose numbers have a decimal comma in its first lines.

    decimal: comma, point, or "" to find it. Raises TableError where numbers may be fractions or thousands.
    """
    if file.separator == "," and not decimal:
        return file
    fields = sample_rows(file)
    found = decimal_commas(
        fields, file.names, decimal=decimal, separator=file.separator, where=file.uri, columns=columns
    )
    return replace(file, commas=found)


def sample_rows(file: CsvFile) -> list[list[str]]:
    """Return the fields of the first whole lines below the header."""
    found = read_all(file) if file.dialect else read_head(file.uri, zipped=is_zipped(file.uri), least=_SAMPLE_BYTES)
    sample = found[file.start : file.start + _SAMPLE_BYTES]
    ends_within = file.start + len(sample) < len(found) or (not file.dialect and len(found) >= _SAMPLE_BYTES)
    sample = sample[: sample.rfind(b"\n") + 1] if ends_within else sample
    return _rows_of(sample.decode(errors="replace"), file.separator)


def _has_usual_form(file: CsvFile, content: bytes) -> bool:
    """Return whether commas give all first lines as many fields as the header, or no other separator is there."""
    if len(file.names) == 1:
        return not any(sign in file.names[0] for sign in _SEPARATORS) and not file.names[0].startswith("#")
    rows = _rows_of(content[file.start :].decode(errors="replace"), file.separator)
    return {len(row) for row in rows} <= {len(file.names)}


def _rows_of(text: str, separator: str) -> list[list[str]]:
    """Return the fields of the first lines, up to one that does not parse."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        for row, _ in zip(csv.reader(io.StringIO(text), delimiter=separator), range(_MOST_LINES), strict=False):
            rows += [row] if row else []
    return rows
