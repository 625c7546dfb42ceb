"""The rounds that fit the columns of all tables, before any row is ingested.

`columns_fit` reads the columns to fit once, chunk by chunk; `columns_merge` adds up the values, each at the task that
its hash chooses, so that no task holds more than its share of them. Tables whose columns are all read as they are pay
nothing. Columns that a published model gives the states of are not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from gnnflow.columns import SAMPLES, VALUES, count_column, merge_samples, merge_values, state_of
from gnnflow.config.columns_section import (
    CategoricalColumn,
    MulticategoricalColumn,
    NumericalColumn,
    TextColumn,
    TimestampColumn,
)
from gnnflow.config.graph_section import edge_tables_by_name, node_tables_by_name
from gnnflow.graph.encodings import NumericalState, TextState, TimestampState
from gnnflow.graph.errors import TableError
from gnnflow.graph.hashing import combine as combine_keys
from gnnflow.ingest.edge_rounds import are_edges, end_columns
from gnnflow.ingest.source import take_kept
from gnnflow.ingest.tables import EdgeTable
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.storage.columns import combine, id_keys
from gnnflow.storage.user_tables import read_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gnnflow.config import GraphConfig
    from gnnflow.config.columns_section import ColumnSection
    from gnnflow.graph.arrays import KeyArray
    from gnnflow.graph.encodings import ColumnState, EncodedColumn, States
    from gnnflow.graph.facts import RowCounts
    from gnnflow.ingest.fields import ColumnPart
    from gnnflow.ingest.tables import NodeTable, Tables
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.storage.user_tables import Chunk

Table = TypeVar("Table", "NodeTable", "EdgeTable")

_VALUES, _SAMPLES = "values", "samples"


@dataclass(frozen=True)
class _FitJob:
    """The chunks to read, each with the number of its table, and each table's columns to fit.

    tables: in the order of the numbers.
    """

    chunks: tuple[tuple[int, Chunk], ...]
    columns: tuple[tuple[ColumnPart, ...], ...]
    tables: tuple[NodeTable | EdgeTable, ...]
    destinations: int

    @property
    def first(self) -> tuple[int, ...]:
        """The number of each table's first column."""
        return tuple(sum(map(len, self.columns[:table])) for table in range(len(self.columns)))

    @property
    def kept(self) -> dict[int, int]:
        """The number of values that each column keeps."""
        every = [part.section for columns in self.columns for part in columns]
        return {number: getattr(section, "values", 0) for number, section in enumerate(every)}


def fit_columns(tables: Tables, config: GraphConfig, runner: RoundRunner, *, given: States) -> Tables:
    """Return the tables with the states of their columns. given: of tables whose columns a published model knows.

    Raises TableError where a column has another kind than its given state.
    """
    names = [*node_tables_by_name(config), *edge_tables_by_name(config)]
    every: list[NodeTable | EdgeTable] = [*tables.nodes, *tables.edges]
    known = [_given(table, given[name]) if name in given else {} for name, table in zip(names, every, strict=True)]
    to_fit = [() if name in given else _to_fit(table) for name, table in zip(names, every, strict=True)]
    fitted = _fit(every, to_fit, config, runner) if any(to_fit) else known
    states = [own or found for own, found in zip(known, fitted, strict=True)]
    nodes = [_with_states(*each) for each in zip(tables.nodes, states, strict=False)]
    edges = [_with_states(*each) for each in zip(tables.edges, states[len(nodes) :], strict=True)]
    return replace(tables, nodes=tuple(nodes), edges=tuple(edges))


def _with_states(table: Table, states: Mapping[str, ColumnState]) -> Table:
    if not states:
        return table
    parts = [part.fitted(states[part.name]) if part.name in states else part for part in table.schema.parts]
    return replace(table, schema=table.schema.with_parts(tuple(parts)))


def _to_fit(table: NodeTable | EdgeTable) -> tuple[ColumnPart, ...]:
    """Return the columns to fit: numbers that may be missing, and columns of other kinds."""
    return tuple(part for part in table.schema.parts if part.section is not None)


def _given(table: NodeTable | EdgeTable, states: Sequence[ColumnState]) -> dict[str, ColumnState]:
    """Return the given states of a table's columns by name. Raises TableError where one has another kind."""
    found = {state.name: state for state in states}
    for part in table.schema.parts:
        state, kind = found.get(part.name), "numerical" if part.section is None else part.section.kind
        if (state is None and kind != "numerical") or (state is not None and state.kind != kind):
            raise TableError(
                f"column {part.name!r} is {kind}, the model was trained on "
                f"{'numbers' if state is None else state.kind}",
                where=table.uri,
                fix="Write the column as it was, or train a model on these tables.",
            )
    return {part.name: found[part.name] for part in table.schema.parts if part.name in found}


def sections_of(states: States, config: GraphConfig) -> GraphConfig:
    """Return a config that says the kinds of columns as their states do."""
    sections = {**config.columns}
    for table, columns in states.items():
        side, _, owner = table.partition("/")
        sections |= {f"{owner or side}.{state.name}": _section_of(state) for state in columns}
    return config.model_copy(update={"columns": sections})


def _section_of(state: ColumnState) -> ColumnSection:
    if isinstance(state, NumericalState):
        return NumericalColumn.model_validate(
            {"missing": state.missing_as, "scale": state.scale, "decimal": state.decimal or None}
        )
    if isinstance(state, TimestampState):
        return TimestampColumn(format=state.format or None)
    if isinstance(state, TextState):
        return TextColumn(width=state.width, encoder=state.encoder or None)
    values = max(len(state.values), 1)
    if state.kind == "categorical":
        return CategoricalColumn(values=values)
    return MulticategoricalColumn(values=values, separator=state.separator or None)


def _fit(
    tables: Sequence[NodeTable | EdgeTable],
    to_fit: Sequence[tuple[ColumnPart, ...]],
    config: GraphConfig,
    runner: RoundRunner,
) -> list[dict[str, ColumnState]]:
    """Return the states of each table's columns by name."""
    assert config.partitions is not None, "a resolved run has a number of partitions"
    held = list(enumerate(zip(tables, to_fit, strict=True)))
    chunks = tuple((number, chunk) for number, (table, parts) in held if parts for chunk in table.chunks)
    job = _FitJob(chunks, tuple(to_fit), tuple(tables), config.partitions)
    counted = runner.run(Round("columns_fit", len(chunks), config.partitions, partial(count_chunk, job=job)))
    merged: list[TaskRecord] = []
    if any(_is_merged(part) for parts in to_fit for part in parts):
        reads = dict.fromkeys((_VALUES, _SAMPLES), "columns_fit")
        step = Round("columns_merge", config.partitions, 1, partial(merge_columns, job=job), reads, frozenset(reads))
        merged = runner.run(step)
    found: list[dict[str, ColumnState]] = []
    for number, (_, parts) in held:
        own = [record.counts["columns"] for (of, _), record in zip(chunks, counted, strict=True) if of == number]
        first = job.first[number]
        found.append(
            {
                part.name: _state(part, first + place, [counts[place] for counts in own], merged)
                for place, part in enumerate(parts)
            }
        )
    return found


def _is_merged(part: ColumnPart) -> bool:
    """Return whether a column's values or samples are merged by tasks."""
    return isinstance(part.section, CategoricalColumn | MulticategoricalColumn) or is_sampled(part)


def is_sampled(part: ColumnPart) -> bool:
    """Return whether rows that the hashes of their ids choose show how a column is scaled."""
    return isinstance(part.section, NumericalColumn) and part.section.scale == "quantile"


def _state(
    part: ColumnPart, number: int, counted: Sequence[Mapping[str, Any]], merged: Sequence[TaskRecord]
) -> ColumnState:
    assert part.section is not None
    key = str(number)
    values = [record.counts["values"][key] for record in merged if key in record.counts["values"]]
    quantiles = [record.counts["quantiles"][key] for record in merged if key in record.counts["quantiles"]]
    return state_of(part.name, part.section, counted, values=values, quantiles=quantiles[0] if quantiles else ())


def count_chunk(index: int, inbox: Inbox, *, job: _FitJob) -> TaskOutput:
    """Count one chunk's columns to fit; values go where their hash says, samples where their column's number does."""
    number, chunk = job.chunks[index]
    parts, reads_ids = job.columns[number], any(map(is_sampled, job.columns[number]))
    rows, keys = _rows_to_fit(chunk, job.tables[number], parts, reads_ids=reads_ids)
    counts, values, samples = [], [VALUES.empty_table()], [SAMPLES.empty_table()]
    for column, part in enumerate(parts, job.first[number]):
        assert part.section is not None
        found = count_column(combine(rows.column(part.name)), part.section, number=column, keys=keys)
        counts.append(found.counts)
        values.append(found.values)
        samples.append(found.samples)
    counted, sampled = pa.concat_tables(values).combine_chunks(), pa.concat_tables(samples).combine_chunks()
    home = id_keys(counted["value"]) % np.uint64(job.destinations)
    emits = (
        Emit(_VALUES, counted, home.astype(np.int64)),
        Emit(_SAMPLES, sampled, np.asarray(sampled["column"].to_numpy() % job.destinations)),
    )
    return TaskOutput(emits=emits, counts={"columns": counts})


def _rows_to_fit(
    chunk: Chunk, table: NodeTable | EdgeTable, parts: Sequence[ColumnPart], *, reads_ids: bool
) -> tuple[pa.Table, KeyArray]:
    """Return a chunk's rows that are nodes or edges, and a hash of each row's ids.

    Hashes are zeros where none is needed.
    """
    is_edge, names = isinstance(table, EdgeTable), [part.name for part in parts]
    ids = (table.config.src_column, table.config.dst_column) if is_edge else (table.config.id_column,)
    chosen = table if isinstance(table, EdgeTable) and table.chosen is not None else None
    names += [*(ids if reads_ids else ()), *(end_columns(chosen) if chosen is not None else ())]
    rows = read_chunk(chunk, list(dict.fromkeys(names)))
    if chosen is not None:
        rows = take_kept(rows, np.flatnonzero(are_edges(rows, source=chosen)))
    return rows, _keys(rows, ids) if reads_ids else np.zeros(rows.num_rows, np.uint64)


def _keys(rows: pa.Table, ids: Sequence[str]) -> KeyArray:
    """Return a hash of each row's ids."""
    keys = []
    for name in ids:
        column = combine(rows.column(name))
        if pa.types.is_integer(column.type):
            keys.append(id_keys(column.cast(pa.int64(), safe=False).fill_null(0)))
        else:
            keys.append(id_keys(column.cast(pa.large_string()).fill_null("")))
    return keys[0] if len(keys) == 1 else combine_keys(*keys)


def merge_columns(index: int, inbox: Inbox, *, job: _FitJob) -> TaskOutput:
    """Add up the values that came here, and take the quantiles of the columns that did."""
    values = merge_values(inbox.read(_VALUES), job.kept)
    return TaskOutput(counts={"values": values, "quantiles": merge_samples(inbox.read(_SAMPLES))})


def report_encodings(
    encodings: Mapping[str, Sequence[EncodedColumn]],
    rows: Mapping[str, RowCounts],
    tell: Callable[[str], None],
    *,
    given: States,
) -> None:
    """Report in a line what was done to each column that is not read as it is. given: as for `fit_columns`."""
    for table, columns in encodings.items():
        for each in columns:
            if text := each.text(rows[table].rows_in, is_given=table in given):
                tell(f"{table}: {text}")
