"""Reads CSV as text: cuts a file into blocks of bytes at line ends, and reads a block as columns of text.

`text_types.py` decides the types of the text over all blocks. A block holds the lines that begin in its span, so a task
reads its bytes and the rest of its last line. A gzipped file, or one that is rewritten since it has another dialect,
cannot be cut and is one block. In a file that is cut no quoted field may hold a line break; such a file is refused,
since a cut might lie within a field.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from gnnflow.graph.errors import TableError
from gnnflow.storage.csv_dialects import Dialect, rewrite, say_form, separator_of
from gnnflow.storage.filesystem import open_input, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_BYTES = 32 << 20
_HEAD_BYTES = 1 << 16
_LONGEST_LINE = 1 << 24
_NEWLINE, _RETURN = 10, 13
_COMMENTS = (b"#", b"%")
_EXCEL = re.compile(rb"\s*(sep=.)\s*", re.IGNORECASE)
_LINE_ENDS = (b"\r", b"\n")
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP_MARK = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"
# 1,5 and 1.234,5; 1.234 has a point for thousands in a column of such, 0.125 has not
_NUMBER_WITH_COMMA = r"^\s*[+-]?([1-9][0-9]{0,2}(\.[0-9]{3})+|[0-9]+)(,[0-9]+([eE][+-]?[0-9]+)?)?\s*$"
REWRITE = "Write the table again as UTF-8 CSV, or as Parquet."
_OTHER_ENCODING = f"{say_form('encoding', 'cp1252')} Or: {REWRITE}"


class Span(NamedTuple):
    """A block of a file: its first byte, and the byte after its last; None is the end of the file."""

    start: int
    stop: int | None


WHOLE_FILE = Span(0, None)


@dataclass(frozen=True)
class CsvFile:
    """A CSV file: its columns, its first byte after the header, and its size (None where it cannot be cut).

    dialect: of a file that is rewritten as UTF-8 CSV before it is read; `start` is then a byte of the rewritten file.
    commas: the columns of numbers with a decimal comma, or with points for thousands in such a file.
    """

    uri: str
    names: tuple[str, ...]
    start: int
    size: int | None
    separator: str = ","
    dialect: Dialect | None = None
    commas: tuple[str, ...] = ()
    has_header: bool = True

    @property
    def text(self) -> str:
        """The form of the file in a few words; empty for a CSV as it is written mostly."""
        parts = [(self.dialect or Dialect(self.separator)).text] if self.dialect or self.separator != "," else []
        parts += [f"decimal commas in {', '.join(self.commas)}"] if self.commas else []
        return "; ".join(parts + ([] if self.has_header else ["no header"]))

    @property
    def spans(self) -> list[Span]:
        """The blocks of the file, in order."""
        if self.size is None or self.size - self.start <= BLOCK_BYTES:
            return [Span(self.start, None)]
        count = -(-(self.size - self.start) // BLOCK_BYTES)
        cuts = np.linspace(self.start, self.size, count + 1).astype(np.int64).tolist()
        return [Span(*each) for each in pairwise(cuts)]


def open_csv(
    uri: str,
    *,
    separator: str = ",",
    header: bool = True,
    comments: bool = False,
    dialect: Dialect | None = None,
) -> CsvFile:
    """Return a CSV file after reading its head. comments: skip lines before the first row that begin with `#` or `%`.

    dialect: of a file that has to be rewritten as UTF-8 CSV; it has precedence over separator. Raises TableError for an
    empty file, one that is not text, and a header that does not end.
    """
    zipped = is_zipped(uri)
    file = CsvFile(uri, (), 0, None, separator if dialect is None else separator_of(dialect), dialect)
    content = read_head(uri, zipped=zipped) if dialect is None else read_all(file)
    refuse_foreign(uri, content)
    start = len(_MARK) if content.startswith(_MARK) else 0
    skipped = (_COMMENTS if comments else ()) + (_LINE_ENDS if dialect else ())
    while content[start : start + 1] in skipped:
        start = (content.find(b"\n", start) + 1) or len(content)
    line = _first_line(uri, content[start:])
    if header and (found := _EXCEL.fullmatch(line)):
        raise TableError(
            f"its first line is {found[1].decode(errors='replace')!r}, which Excel writes above the header",
            where=uri,
            fix="Take the line out: the separator is found without it.",
        )
    if not line.strip():
        raise TableError("is empty: it has no header", where=uri, fix="Write the columns' names in the first line.")
    names = _names(uri, line, file.separator)
    if not header:
        names = tuple(f"f{number}" for number in range(len(names)))
    size = None if zipped or dialect is not None else _size(uri)
    return replace(file, names=names, start=start + len(line) * header, size=size, has_header=header)


def head_span(file: CsvFile, *, most: int) -> Span:
    """Return a span of whole lines at a file's beginning of at most `most` bytes; the whole file where it is shorter.

    The whole file, up to the size of a block, where quotes are among these bytes: they may hold line breaks.
    """
    data = _beginning(file, file.start + most + 1)
    if len(data) <= file.start + most:
        return Span(file.start, None)
    if b'"' in data[file.start :] and (file.size is None or file.size - file.start <= BLOCK_BYTES):
        return Span(file.start, None)
    end = data.rfind(b"\n", file.start) + 1
    return Span(file.start, end) if end > file.start else Span(file.start, None)


def _beginning(file: CsvFile, stop: int) -> bytes:
    """Return the first bytes of a file's text."""
    if file.dialect is not None:
        return read_all(file)[:stop]
    if file.size is not None:
        return _read(file.uri, 0, min(stop, file.size))
    with open_input(file.uri) as stream:
        try:
            text: Any = gzip.GzipFile(fileobj=stream) if file.uri.lower().endswith(".gz") else stream
            return bytes(text.read(stop))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _no_gzip(file.uri) from error


def read_text(file: CsvFile, span: Span, columns: Sequence[str], *, check: bool) -> pa.Table:
    """Return columns of one block as large_string, without nulls.

    check: also check that lines and rows agree, which one pass over a table has to do. Raises TableError for invalid
    UTF-8, a different number of fields than in the header, and quotes that do not close.
    """
    data, begin = _block(file, span)
    if check:
        refuse_foreign(file.uri, data)
        _decode(file, data, begin)
    if not data.strip():
        return pa.table({name: pa.array([], pa.large_string()) for name in columns})
    ragged: list[Any] = []
    try:
        table = _parsed(file, data, columns, ragged=ragged)
    except (pa.ArrowException, ValueError) as error:
        _refuse_quotes(file, span, data, begin)
        raise _ragged(file, data, begin, ragged) from error
    if check and (_num_lines(data) != table.num_rows or b'"' in data.rstrip(b"\r\n").rpartition(b"\n")[2]):
        _refuse_quotes(file, span, data, begin)
    for name in {*file.commas} & {*columns}:
        table = table.set_column(table.column_names.index(name), name, _with_points(table[name]))
    return table.select(list(columns)) if columns else table


def _with_points(column: Any) -> Any:
    """Return text whose numbers with a decimal comma are written with a point, and without points before it."""
    is_number = pc.match_substring_regex(column, _NUMBER_WITH_COMMA)
    pointed = pc.replace_substring(pc.replace_substring(column, ".", ""), ",", ".")
    return pc.if_else(is_number, pointed, column)


def _parsed(file: CsvFile, data: bytes, columns: Sequence[str], *, ragged: list[Any]) -> pa.Table:
    """Return columns of a block's lines, or the first one. ragged: gets the lines with a different number of fields."""

    def note(row: Any) -> str:
        ragged.append(row)
        return "error"

    return pa_csv.read_csv(
        pa.BufferReader(data),
        read_options=pa_csv.ReadOptions(
            column_names=list(file.names), use_threads=False, block_size=min(len(data) + 1, 1 << 30)
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=file.separator,
            newlines_in_values=True,
            invalid_row_handler=note,
        ),
        convert_options=pa_csv.ConvertOptions(
            include_columns=list(columns) or [file.names[0]],
            column_types=dict.fromkeys(file.names, pa.large_string()),
            strings_can_be_null=False,
        ),
    )


def is_zipped(uri: str) -> bool:
    """Return whether a file is gzipped, by its name."""
    return uri.lower().endswith(".gz")


def read_head(uri: str, *, zipped: bool, least: int = _HEAD_BYTES) -> bytes:
    """Return the first bytes of the text, and all of its first line where that is long."""
    with open_input(uri) as stream:
        try:
            text: Any = gzip.GzipFile(fileobj=stream) if zipped else stream
            content = text.read(least)
            while b"\n" not in content[-_HEAD_BYTES:] and len(content) < _LONGEST_LINE:
                more = text.read(_HEAD_BYTES)
                if not more:
                    break
                content += more
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _no_gzip(uri) from error
    return bytes(content)


def _no_gzip(uri: str) -> TableError:
    return TableError("is not a whole gzip file: truncated or damaged", where=uri, fix="Write or copy the file again.")


def _first_line(uri: str, content: bytes) -> bytes:
    """Return the first line with its end; a line break in a quoted name belongs to the line."""
    end, line_end = 0, b"\n" if b"\n" in content else b"\r"
    while True:
        end = content.find(line_end, end) + 1
        if not end:
            break
        if content.count(b'"', 0, end) % 2 == 0:
            return content[:end]
    if len(content) >= _LONGEST_LINE:
        raise TableError("has no end of its first line", where=uri, fix=REWRITE)
    return content


def _names(uri: str, line: bytes, separator: str) -> tuple[str, ...]:
    try:
        text = line.decode()
        names = next(csv.reader([text.rstrip("\r\n")], delimiter=separator))
        # pandas writes its index without a name, and calls it so
        return tuple(name or f"Unnamed: {number}" for number, name in enumerate(names))
    except UnicodeDecodeError as error:
        raise TableError("line 1 is not UTF-8", where=uri, fix=_OTHER_ENCODING) from error
    except csv.Error as error:
        raise TableError("its first line is not a header", where=uri, fix=REWRITE) from error


def _size(uri: str) -> int | None:
    fs, path = resolve(uri)
    size = fs.info(path).get("size")
    return None if size is None else int(size)


def _block(file: CsvFile, span: Span) -> tuple[bytes, int]:
    """Return the lines that begin in a span, and the place of their first byte in the file."""
    start, stop = span
    if stop is None:
        return read_all(file)[start:], start
    if file.size is None:
        return _beginning(file, stop)[start:], start
    # read one byte more before the span: if it ends a line, the span begins with a line
    before = start if start == file.start else start - 1
    data = _read(file.uri, before, stop)
    if before < start:
        skipped = data.find(b"\n") + 1
        if not skipped:
            return b"", start
        before, data = before + skipped, data[skipped:]
    step = _HEAD_BYTES
    while data and not data.endswith(b"\n") and stop < file.size:
        more = _read(file.uri, stop, min(stop + step, file.size))
        end = more.find(b"\n") + 1
        data += more[:end] if end else more
        stop, step = stop + len(more), 2 * step
    return data, before


def read_all(file: CsvFile) -> bytes:
    """Return all bytes of a file, unzipped and rewritten."""
    with open_input(file.uri) as stream:
        content = stream.read()
    try:
        content = gzip.decompress(content) if is_zipped(file.uri) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _no_gzip(file.uri) from error
    return content if file.dialect is None else rewrite(content, file.dialect, where=file.uri)


def _read(uri: str, start: int, stop: int) -> bytes:
    fs, path = resolve(uri)
    found: bytes = fs.cat_file(path, start=start, end=stop)
    # a web server without range requests sends everything
    return found if len(found) <= stop - start else found[start:stop]


def refuse_foreign(uri: str, content: bytes, *, mark: bool = False) -> None:
    """Raise TableError for gzip, and for UTF-16 (mark: without a mark) and other binary content."""
    if content.startswith(GZIP_MARK):
        raise TableError("is gzip, not text", where=uri, fix="Give it a name that ends in .csv.gz.")
    if (not mark and content.startswith(UTF16_MARKS)) or (b"\0" in content and not content.startswith(UTF16_MARKS)):
        raise TableError("is not UTF-8 text, but UTF-16 or binary", where=uri, fix=REWRITE)


def _decode(file: CsvFile, data: bytes, begin: int) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = _line_of(file, begin, data, error.start)
        raise TableError(f"line {line} is not UTF-8", where=file.uri, fix=_OTHER_ENCODING) from error


def _line_of(file: CsvFile, begin: int, data: bytes, offset: int) -> int:
    """Return the number of the line that holds a byte of a block, from 1. Reads the bytes before the block again."""
    line = 1 + data.count(b"\n", 0, offset)
    if file.size is None:
        return line + read_all(file).count(b"\n", 0, begin)
    starts = range(0, begin, BLOCK_BYTES)
    return line + sum(_read(file.uri, at, min(at + BLOCK_BYTES, begin)).count(b"\n") for at in starts)


def _num_lines(data: bytes) -> int:
    """Return the number of lines that are not empty."""
    if b"\r" not in data and b"\n\n" not in data and not data.startswith(b"\n"):
        return data.count(b"\n") + (not data.endswith(b"\n"))
    values = np.frombuffer(data, np.uint8)
    ends = (values == _NEWLINE) | (values == _RETURN)
    return int(np.count_nonzero(~ends & np.r_[True, ends[:-1]]))


def _refuse_quotes(file: CsvFile, span: Span, data: bytes, begin: int) -> None:
    """Raise TableError for a quoted field that does not close, or breaks a line of a file that is cut."""
    separator = re.escape(file.separator.encode())
    quoted = re.compile(rb"(?:\A|(?<=[\r\n])|(?<=" + separator + rb'))"([^"]*+(?:""[^"]*+)*+)("?)')
    for field in quoted.finditer(data):
        if not field[2] and span.stop is None:
            raise TableError(
                f"line {_line_of(file, begin, data, field.start())}: a quote does not close",
                where=file.uri,
                fix="Close it, or double a quote that belongs to the text.",
            )
        if span.stop is not None and (not field[2] or b"\n" in field[1]):
            raise TableError(
                f"line {_line_of(file, begin, data, field.start())}: a quoted field holds a line break, or a quote "
                f"does not close; files above {BLOCK_BYTES >> 20} MiB are read in pieces that end with a line",
                where=file.uri,
                fix="Remove line breaks from the fields, split the file, or write Parquet.",
            )


def _ragged(file: CsvFile, data: bytes, begin: int, ragged: Sequence[Any]) -> TableError:
    if not ragged or ragged[0].number is None:
        return TableError("cannot be read as CSV", where=file.uri, fix=REWRITE)
    # the first byte of the row, if every row is one line
    ends = [match.start() for match in re.finditer(rb"\n+", data)]
    offset = ends[min(ragged[0].number - 2, len(ends) - 1)] + 1 if ragged[0].number > 1 and ends else 0
    return TableError(
        f"line {_line_of(file, begin, data, offset)} has {ragged[0].actual_columns} fields, "
        f"the header has {ragged[0].expected_columns}",
        where=file.uri,
        fix="Write every row with all fields; quote a field that holds the separator.",
    )
