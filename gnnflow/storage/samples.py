"""Samples of users' tables: the first rows of the first files, and about how many rows all files have.

A sample is chunks as a whole table's are, so that everything that reads a table reads a sample too. At most
`MOST_ROWS` rows are read, or `_MOST_BYTES` of text, and the footers of `_MOST_FILES` files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnnflow.storage.csv_blocks import head_span
from gnnflow.storage.filesystem import size_of
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.table_parts import TableFiles
from gnnflow.storage.user_tables import chunks_of, empty_chunk, kind_of, null_counts, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config.formats_section import CsvFormat
    from gnnflow.storage.user_tables import Chunk

MOST_ROWS = 20_000
_MOST_BYTES = 2 << 20
_MOST_FILES = 32
_MOST_FOOTERS = 64  # row groups


@dataclass(frozen=True)
class Sample:
    """The first rows of a table.

    is_whole: they are all of its rows. num_bytes: of all files. counted: rows of all chunks that were looked at, None
    where text has to be read for it. counted_share: their share of the table's bytes. missing: nulls of each flat
    column as footers count them, among `missing_of` rows.
    """

    files: TableFiles
    chunks: tuple[Chunk, ...]
    is_whole: bool
    num_bytes: int
    counted: int | None
    counted_share: float
    missing: dict[str, int]
    missing_of: int

    def about_rows(self, read: int) -> int:
        """Return about how many rows the table has. read: the rows of the sample."""
        if self.is_whole:
            return read
        if self.counted is not None:
            return self.counted if self.counted_share >= 1 else _rounded(self.counted / max(self.counted_share, 1e-9))
        # text that is zipped takes about four times the file's bytes
        taken = sum((each.span.stop or 0) / (4 if each.uri.lower().endswith(".gz") else 1) for each in self.chunks)
        return max(read, _rounded(read * self.num_bytes / taken)) if taken else read


NO_SAMPLE = Sample(TableFiles("", ()), (), False, 0, 0, 1.0, {}, 0)  # noqa: FBT003 - is_whole
"""The sample of a type of nodes without a table."""


def _rounded(rows: float) -> int:
    """Return an estimate with three digits."""
    return int(float(f"{rows:.3g}"))


def sample_table(uri: str, *, form: CsvFormat | None = None) -> Sample:
    """Return the first rows of a table. Raises StorageError where it is missing, TableError for bytes of no table.

    form: of CSV, where the config says it.
    """
    files = find_table_files(uri, form=form)
    sizes = [size_of(file.uri) or 0 for file in files.files]
    looked = files.files[:_MOST_FILES]
    chunks = [chunk for file in looked for chunk in chunks_of(file)]
    taken, is_whole = _first_rows(chunks) if chunks else (scan(replace(files, files=looked)), True)
    total = sum(sizes)
    known = [chunk.num_rows for chunk in chunks if chunk.num_rows is not None]
    missing, of = _missing(chunks)
    return Sample(
        files=files,
        chunks=tuple(taken),
        is_whole=is_whole and len(looked) == len(files.files),
        num_bytes=total,
        counted=sum(known) if len(known) == len(chunks) else None,
        counted_share=sum(sizes[: len(looked)]) / total if total else 1.0,
        missing=missing,
        missing_of=of,
    )


def chunks_beyond(sample: Sample) -> list[Chunk]:
    """Return one chunk of each file that a sample does not reach; none of CSV, whose columns have no types."""
    seen = {chunk.uri for chunk in sample.chunks}
    others = [each for each in sample.files.files if each.uri not in seen and kind_of(each) != "csv"]
    # JSON lines have to be read for their schema, and a library's part is asked for it
    is_read = [each.part is not None or kind_of(each) == "json" for each in others]
    return [next(chunks_of(each)) if read else empty_chunk(each) for each, read in zip(others, is_read, strict=True)]


def _first_rows(chunks: Sequence[Chunk]) -> tuple[list[Chunk], bool]:
    """Return the first chunks, of which the last may be cut, and whether they are all rows."""
    taken: list[Chunk] = []
    rows, size = MOST_ROWS, _MOST_BYTES
    for chunk in chunks:
        if rows <= 0 or size <= 0:
            return taken, False
        if chunk.csv is not None:
            span = head_span(chunk.csv, most=size)
            if span.stop is not None:
                return [*taken, replace(chunk, span=span)], False
            taken.append(chunk)
            size -= (chunk.csv.size or _MOST_BYTES) - chunk.csv.start
            continue
        assert chunk.num_rows is not None, "only text has an unknown number of rows"
        is_cut = chunk.num_rows > rows
        taken.append(replace(chunk, num_rows=rows, is_head=True) if is_cut else chunk)
        if is_cut:
            return taken, False
        rows -= chunk.num_rows
    return taken, True


def _missing(chunks: Sequence[Chunk]) -> tuple[dict[str, int], int]:
    """Return the nulls of columns, as the first footers count them, and the rows of these chunks."""
    found: dict[str, int] = {}
    rows = 0
    for chunk in chunks[:_MOST_FOOTERS]:
        counts = null_counts(chunk)
        if counts is None:
            continue
        rows += chunk.num_rows or 0
        for name, count in counts.items():
            found[name] = found.get(name, 0) + count
    return found, rows
