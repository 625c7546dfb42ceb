"""Reads the first rows of the tables that a user gives, from which a config is proposed."""

from __future__ import annotations

import csv
import io
import re
import shlex
import unicodedata
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config.formats_section import CsvFormat
from gnnflow.datasets.edge_headers import are_numbers
from gnnflow.graph.errors import TableError
from gnnflow.storage.columns import combine
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.inner_tables import MARK
from gnnflow.storage.samples import Sample, sample_table
from gnnflow.storage.user_tables import (
    Chunk,
    chunks_of,
    holds_text,
    plain,
    read_chunk,
    read_typed,
    schema_of,
    survey_all,
    with_types,
)

_SUFFIXES = r"(\.(csv|tsv|parquet|pq|arrow|feather|ipc|jsonl|ndjson|xlsx|xlsm|gz))+$"
_MOST_READ = 256 << 20  # bytes of a table whose ids are read as a whole


@dataclass(frozen=True)
class GivenTable:
    """A sampled table. name: of its file or folder, which becomes a type's or a relation's.

    form: as the user says it, None where its files show it.
    padded: the columns of integers in text that have leading zeros, which are text as ids.
    """

    uri: str
    name: str
    sample: Sample
    chunks: tuple[Chunk, ...]
    rows: pa.Table
    form: CsvFormat | None = None
    padded: frozenset[str] = frozenset()

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.rows.column_names)

    def named(self, given: str) -> str | None:
        """Return the column that COLUMN or TABLE.COLUMN names; None where this table has none. Names may hold dots."""
        owned = (given.removeprefix(f"{each}.") for each in (self.uri, self.name) if given.startswith(f"{each}."))
        return next((each for each in (given, *owned) if each in self.columns), None)

    @property
    def num_rows(self) -> int:
        """About the number of its rows."""
        return self.sample.about_rows(self.rows.num_rows)

    def values(self, column: str) -> pa.Array:
        """Return the sample of a column that can be an id, as text; empty for other columns.

        Whole floats with nulls count as integers: pandas makes such of foreign keys. Leading zeros are kept.
        """
        held = combine(self.rows[column])
        kind = plain(held.type)
        if pa.types.is_floating(kind) and held.null_count:
            numbers = held.drop_null()
            is_whole = pc.all(pc.equal(numbers, pc.round(numbers))).as_py() and pc.all(pc.is_finite(numbers)).as_py()
            held = numbers.cast(pa.int64(), safe=False) if is_whole else pa.array([], pa.int64())
            kind = held.type
        if column in self.padded:
            return self.texts(column)
        if not (pa.types.is_integer(kind) or holds_text(kind)):
            return pa.array([], pa.large_string())
        return held.cast(pa.large_string()).drop_null()

    def missing(self, column: str) -> float:
        """Return the share of the sample's rows without a value in a column."""
        held = combine(self.rows[column])
        gaps: int = held.null_count
        if holds_text(plain(held.type)):
            gaps += pc.sum(pc.equal(held.cast(pa.large_string()), "")).as_py() or 0
        return gaps / max(len(held), 1)

    def texts(self, column: str) -> pa.Array:
        """Return the sample of a column of CSV as it is written, without gaps."""
        parts = [combine(read_chunk(chunk, [column])[column]) for chunk in self.sample.chunks]
        held = pa.concat_arrays([part.cast(pa.large_string()).drop_null() for part in parts])
        return held.filter(pc.not_equal(held, ""))


def read_given(uri: str, *, form: CsvFormat | None = None) -> GivenTable:
    """Return a table with its sampled rows. Raises TableError and StorageError as ingest does.

    form: of a table that cannot be read without; None where none is known.
    """
    if form is not None:
        try:
            return read_given(uri)
        except TableError:
            pass
    sample = sample_table(absolute(uri), form=form)
    for chunk in sample.chunks[:1]:
        if chunk.csv is not None and are_numbers(chunk.csv.names):
            raise TableError(
                f"its first line is a row: {', '.join(chunk.csv.names)}",
                where=uri,
                fix="Write the columns' names above it. In a config, graph.formats names them.",
            )
    surveys = survey_all(sample.chunks)
    chunks = with_types(sample.chunks, surveys, {})
    names = schema_of(chunks[0]).names
    rows = read_typed(chunks, columns=[name for name in names if names.count(name) == 1])
    inexact = {name for found in surveys for name, facts in found.columns.items() if not facts.exact}
    padded = frozenset(name for name in rows.column_names if name in inexact and pa.types.is_integer(rows[name].type))
    return GivenTable(uri, _name_of(uri), sample, tuple(chunks), rows, form, padded)


def _name_of(uri: str) -> str:
    last = uri.rstrip("/").rsplit("/", 1)[-1].rpartition(MARK)[2]
    return type_name(re.sub(_SUFFIXES, "", last, flags=re.IGNORECASE)) or "table"


def type_name(name: str) -> str:
    """Return the name of a table or column as a type's or a relation's, which are parts of file names."""
    plain_letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()  # no dots of an umlaut
    return re.sub(r"[^A-Za-z0-9]+", "_", plain_letters).strip("_")


def say_id(table: GivenTable, column: str) -> str:
    """Return the option that names a table's column of ids, as a shell reads it."""
    return f"--id {shlex.quote(f'{table.name}.{column}')}"


def say_ends(src: str, dst: str) -> str:
    """Return the option that names the columns of ends, as a shell reads it; a name with a comma is in quotes."""
    names = io.StringIO()
    csv.writer(names, lineterminator="").writerow((src, dst))
    return f"--ends {shlex.quote(names.getvalue())}"


def all_values(table: GivenTable, column: str) -> pa.Array:
    """Return the values of a column of ids as text: of the whole table, or of its sample where the table is large."""
    if table.sample.is_whole or table.sample.num_bytes > _MOST_READ:
        return table.values(column)
    chunks = [chunk for file in table.sample.files.files for chunk in chunks_of(file)]
    parts = [read_chunk(chunk, [column])[column] for chunk in chunks]
    return pa.concat_arrays([combine(part).cast(pa.large_string()).drop_null() for part in parts])
